"""The agent's configuration, read once: file, then environment, then flags."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct, structs

from edge_agent.errors import ConfigError
from edge_agent.files import read_regular
from edge_agent.socket_places import ADMIN_SOCKET, DATA_SOCKET, runtime_dir

if TYPE_CHECKING:
    from edge_agent.serve_config import CacheConfig, ServeConfig

ENGINES: Final = ("auto", "onnx", "tflite")
AUTO_PROFILE: Final = "auto"
MAX_FILE_BYTES: Final = 64 * 1024
_MAX_NAME: Final = 64


class AgentConfig(Struct, frozen=True):
    """Everything that an owner can set. Keys of ``config.toml`` have these names.

    Attributes:
        config_dir: Folder of ``config.toml`` and ``keyring.json`` (environment or default only).
        state_dir: Folder of installed bundles and of what was measured; private to the agent.
        engine: ``auto``, ``onnx`` or ``tflite``.
        threads: Threads of an engine; 0 means as the profile, CPU affinity and cgroup quota allow.
        max_image_mib: Largest image file that is read, in MiB.
        max_image_megapixels: Largest image that is decoded, in millions of pixels.
        profile: Name of the device profile; ``auto`` takes the one that fits the board.
        engine_order: Engines that come before those of the profile, in order of preference.
        min_available_mib: Memory that should be available before a model is loaded, in MiB; here
            and below None means as the profile says.
        max_memory_mib: Memory that the agent may use, in MiB.
        max_latency_ms: An answer that takes longer is too late, in milliseconds.
        runtime_dir: Folder of the daemon's sockets (environment or default only).
        serve: The table ``[serve]``; None where there is none.
        cache: The table ``[cache]``; None where there is none.
    """

    config_dir: Path
    state_dir: Path
    engine: str = "auto"
    threads: int = 0
    max_image_mib: int = 64
    max_image_megapixels: int = 64
    profile: str = AUTO_PROFILE
    engine_order: tuple[str, ...] = ()
    min_available_mib: int | None = None
    max_memory_mib: int | None = None
    max_latency_ms: int | None = None
    runtime_dir: Path = Path("/run/edge-agent")
    serve: ServeConfig | None = None
    cache: CacheConfig | None = None

    @property
    def file(self) -> Path:
        """Where the owner's configuration stands."""
        return self.config_dir / "config.toml"

    @property
    def profiles_dir(self) -> Path:
        """The owner's device profiles."""
        return self.config_dir / "profiles"

    @property
    def cache_file(self) -> Path:
        """The database of answers that were given before."""
        return self.state_dir / "cache.sqlite3"

    @property
    def data_socket(self) -> Path:
        """Where applications ask the daemon."""
        return self.runtime_dir / DATA_SOCKET

    @property
    def admin_socket(self) -> Path:
        """Where its owner tells the daemon what to do."""
        return self.runtime_dir / ADMIN_SOCKET

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
    "min_available_mib": (0, 1 << 20),
    "max_memory_mib": (1, 1 << 20),
    "max_latency_ms": (1, 600_000),
}
_TABLES: Final = ("cache", "serve")
_FROM_ENVIRONMENT: Final = {
    "EDGE_AGENT_STATE_DIR": "state_dir",
    "EDGE_AGENT_ENGINE": "engine",
    "EDGE_AGENT_THREADS": "threads",
    "EDGE_AGENT_PROFILE": "profile",
}


def load(environment: Mapping[str, str] = os.environ) -> AgentConfig:
    """Reads the configuration.

    Root uses /etc/edge-agent and /var/lib/edge-agent, anyone else the XDG base directories.
    A missing ``config.toml`` means defaults.

    Args:
        environment: EDGE_AGENT_CONFIG_DIR, EDGE_AGENT_STATE_DIR, EDGE_AGENT_ENGINE,
            EDGE_AGENT_THREADS and EDGE_AGENT_PROFILE override file and defaults; an empty value
            counts as unset.

    Raises:
        ConfigError: A file that can't be read, an unknown key, a value out of bounds.
    """
    config_dir, state_dir = _default_dirs(environment)
    config_dir = Path(environment.get("EDGE_AGENT_CONFIG_DIR") or config_dir)
    config = AgentConfig(config_dir, state_dir, runtime_dir=Path(runtime_dir(environment)))
    config = structs.replace(config, **parse(read(config.file), str(config.file)))
    for variable, key in _FROM_ENVIRONMENT.items():
        if environment.get(variable):
            value = _checked(key, _number(environment[variable]), variable)
            config = structs.replace(config, **{key: value})
    return config


def read(path: Path) -> bytes:
    """Returns the bytes of ``config.toml``, none where there is no file.

    Raises:
        ConfigError: It can't be read.
    """
    try:
        return read_regular(path, MAX_FILE_BYTES)
    except FileNotFoundError:
        return b""
    except OSError as error:
        raise ConfigError(f"can't be read: {error.strerror}", path=str(path)) from error


def parse(data: bytes, place: str) -> dict[str, Any]:
    """Reads the text of ``config.toml``.

    Args:
        data: Its bytes.
        place: What errors name.

    Returns:
        The keys that it sets, with values that `AgentConfig` takes.

    Raises:
        ConfigError: It isn't TOML, or too large; an unknown key, a value out of bounds.
    """
    if len(data) > MAX_FILE_BYTES:
        raise ConfigError(f"is larger than {MAX_FILE_BYTES} bytes", path=place)
    if not data:
        return {}
    import tomllib

    try:
        values = tomllib.loads(data.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"is not valid TOML: {error}", path=place) from error
    known = set(AgentConfig.__struct_fields__) - {"config_dir", "runtime_dir"}
    for key in values:
        if key not in known:
            raise ConfigError(
                f"unknown key {key!r}; known are {', '.join(sorted(known))}", path=place
            )
    return {key: _checked(key, value, place) for key, value in values.items()}


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


def _number(text: str) -> int | str:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 19 else text


def _checked(key: str, value: Any, place: str) -> Any:
    if key in _TABLES:
        from edge_agent.serve_config import table

        return table(key, value, place)
    if key in _BOUNDS:
        low, high = _BOUNDS[key]
        if type(value) is not int or not low <= value <= high:
            raise ConfigError(f"{key} must be a whole number from {low} to {high}", path=place)
        return value
    try:
        return _CHECKS[key](value)
    except ValueError as error:
        raise ConfigError(f"{key} must be {error}", path=place) from error


def _folder(value: Any) -> Path:
    if not isinstance(value, str) or not Path(value).is_absolute() or "\0" in value:
        raise ValueError("an absolute path")
    return Path(value)


def _engine(value: Any) -> Any:
    if value not in ENGINES:
        raise ValueError(f"one of {', '.join(ENGINES)}")
    return value


def _engines(value: Any) -> tuple[str, ...]:
    known = ENGINES[1:]
    wrong = not isinstance(value, list) or any(one not in known for one in value)
    if wrong or len(set(value)) < len(value):
        raise ValueError(f"a list of {', '.join(known)}, each at most once")
    return tuple(value)


def _profile_name(value: Any) -> str:
    plain = isinstance(value, str) and value.isascii() and value.replace("-", "a").isalnum()
    if not plain or value != value.lower() or len(value) > _MAX_NAME:
        raise ValueError("auto or a profile's name: lower-case letters, digits and hyphens")
    name: str = value
    return name


_CHECKS: Final[dict[str, Callable[[Any], Any]]] = {
    "state_dir": _folder,
    "engine": _engine,
    "engine_order": _engines,
    "profile": _profile_name,
}
