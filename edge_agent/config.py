"""The agent's configuration, read once: file, then environment, then flags."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from msgspec import Struct, structs

from edge_agent.errors import ConfigError
from edge_agent.files import read_regular

ENGINES: Final = ("auto", "onnx", "tflite")
MAX_FILE_BYTES: Final = 64 * 1024


class AgentConfig(Struct, frozen=True):
    """Everything that an owner can set. Keys of ``config.toml`` have these names.

    Attributes:
        config_dir: Folder of ``config.toml`` and ``keyring.json`` (environment or default only).
        state_dir: Folder of installed bundles and of what was measured; private to the agent.
        engine: ``auto``, ``onnx`` or ``tflite``.
        threads: Threads of an engine; 0 means as many as CPU affinity and cgroup quota allow.
        max_image_mib: Largest image file that is read, in MiB.
        max_image_megapixels: Largest image that is decoded, in millions of pixels.
    """

    config_dir: Path
    state_dir: Path
    engine: str = "auto"
    threads: int = 0
    max_image_mib: int = 64
    max_image_megapixels: int = 64

    @property
    def keyring_file(self) -> Path:
        """The owner's keyring."""
        return self.config_dir / "keyring.json"

    @property
    def keys_dir(self) -> Path:
        """Where `keys generate` puts private keys unless told otherwise."""
        return self.config_dir / "keys"


_BOUNDS: Final = {
    "threads": (0, 1024),
    "max_image_mib": (1, 4096),
    "max_image_megapixels": (1, 4096),
}
_FROM_ENVIRONMENT: Final = {
    "EDGE_AGENT_STATE_DIR": "state_dir",
    "EDGE_AGENT_ENGINE": "engine",
    "EDGE_AGENT_THREADS": "threads",
}


def load(environment: Mapping[str, str] = os.environ) -> AgentConfig:
    """Reads the configuration.

    Root uses /etc/edge-agent and /var/lib/edge-agent, anyone else the XDG base directories.
    A missing ``config.toml`` means defaults.

    Args:
        environment: EDGE_AGENT_CONFIG_DIR, EDGE_AGENT_STATE_DIR, EDGE_AGENT_ENGINE and
            EDGE_AGENT_THREADS override file and defaults; an empty value counts as unset.

    Raises:
        ConfigError: A file that can't be read, an unknown key, a value out of bounds.
    """
    config_dir, state_dir = _default_dirs(environment)
    config_dir = Path(environment.get("EDGE_AGENT_CONFIG_DIR") or config_dir)
    config = AgentConfig(config_dir, state_dir)
    config = _override(config, _file(config_dir / "config.toml"), str(config_dir / "config.toml"))
    for variable, key in _FROM_ENVIRONMENT.items():
        if environment.get(variable):
            config = _override(config, {key: _number(environment[variable])}, variable)
    return config


def _default_dirs(environment: Mapping[str, str]) -> tuple[Path, Path]:
    if os.geteuid() == 0:
        return Path("/etc/edge-agent"), Path("/var/lib/edge-agent")
    home = Path(environment.get("HOME") or "/nonexistent")
    config = _xdg(environment, "XDG_CONFIG_HOME", home / ".config")
    state = _xdg(environment, "XDG_DATA_HOME", home / ".local/share")
    return config / "edge-agent", state / "edge-agent"


def _xdg(environment: Mapping[str, str], variable: str, default: Path) -> Path:
    """Returns a base directory. The specification says to ignore relative ones."""
    path = Path(environment.get(variable) or default)
    return path if path.is_absolute() else default


def _file(path: Path) -> dict[str, Any]:
    try:
        data = read_regular(path, MAX_FILE_BYTES)
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise ConfigError(f"can't be read: {error.strerror}", path=str(path)) from error
    if len(data) > MAX_FILE_BYTES:
        raise ConfigError(f"is larger than {MAX_FILE_BYTES} bytes", path=str(path))
    import tomllib

    try:
        return tomllib.loads(data.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"is not valid TOML: {error}", path=str(path)) from error


def _number(text: str) -> int | str:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 19 else text


def _override(config: AgentConfig, values: Mapping[str, Any], place: str) -> AgentConfig:
    known = set(AgentConfig.__struct_fields__) - {"config_dir"}
    changes: dict[str, Any] = {}
    for key, value in values.items():
        if key not in known:
            raise ConfigError(
                f"unknown key {key!r}; known are {', '.join(sorted(known))}", path=place
            )
        changes[key] = _checked(key, value, place)
    return structs.replace(config, **changes)


def _checked(key: str, value: Any, place: str) -> Any:
    if key == "state_dir":
        if not isinstance(value, str) or not Path(value).is_absolute() or "\0" in value:
            raise ConfigError("state_dir must be an absolute path", path=place)
        return Path(value)
    if key == "engine":
        if value not in ENGINES:
            raise ConfigError(f"engine must be one of {', '.join(ENGINES)}", path=place)
        return value
    low, high = _BOUNDS[key]
    if type(value) is not int or not low <= value <= high:
        raise ConfigError(f"{key} must be a whole number from {low} to {high}", path=place)
    return value
