"""`edge-agent doctor --apply`: a configuration that fits the board, beside what its owner wrote."""

from __future__ import annotations

import json
import os
import stat
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from edge_agent import config as configuration
from edge_agent.errors import ConfigError
from edge_agent.ownership import locked, private_folder
from edge_signing.durable import open_durably, write_durably

if TYPE_CHECKING:
    from edge_profiles.profile import DeviceProfile

_LOCK_TIMEOUT_S: Final = 10.0
_NEW_FILE: Final = 0o644


class Applied(NamedTuple):
    """What became of ``config.toml``.

    Attributes:
        path: The file.
        added: Lines that were put in; none where nothing was missing.
        kept: Keys of the owner's that would have been set.
    """

    path: Path
    added: tuple[str, ...]
    kept: tuple[str, ...]


def apply(path: Path, profile: DeviceProfile) -> Applied:
    """Names the board's profile in ``config.toml``, unless its owner has named one.

    What the profile sets is told in comments, so that a better profile in a later version counts,
    and threads and memory go on following the limits that the process runs under.

    Args:
        path: The file; what is in it stays.
        profile: Fitted to this machine.

    Raises:
        ConfigError: The file isn't a configuration, or it can't be written.
    """
    try:
        private_folder(path.parent)
        with locked(path.with_suffix(".lock"), _LOCK_TIMEOUT_S):
            return _complete(path, profile)
    except TimeoutError as error:
        raise ConfigError(
            f"somebody else has been changing it for {_LOCK_TIMEOUT_S:.0f} s", path=str(path)
        ) from error
    except OSError as error:
        raise ConfigError(
            f"can't be written: {error.strerror}",
            path=str(path),
            hint="run it as the user whose configuration it is (root's is /etc/edge-agent)",
        ) from error


def _complete(path: Path, profile: DeviceProfile) -> Applied:
    before = configuration.read(path)
    present = configuration.parse(before, str(path))
    wanted = _settings(profile)
    kept = tuple(key for key in wanted if key in present)
    if "profile" in present:
        return Applied(path, (), kept)
    added = _lines(profile, {key: wanted[key] for key in wanted if key not in present})
    after = _joined(before, added)
    configuration.parse(after, str(path))
    _write(path, after)
    return Applied(path, added, kept)


def _write(path: Path, data: bytes) -> None:
    """Writes the file; one that is there keeps its mode, owner and group."""
    if not path.exists():
        write_durably(path, data, _NEW_FILE)
        return
    facts = path.stat()
    with open_durably(path, stat.S_IMODE(facts.st_mode)) as stream:
        os.fchown(stream.fileno(), facts.st_uid, facts.st_gid)
        stream.write(data)


def _settings(profile: DeviceProfile) -> dict[str, object]:
    """Returns keys of ``config.toml`` and what the profile makes of them on this machine."""
    settings = {
        "profile": profile.name,
        "engine_order": list(profile.engines),
        "threads": profile.threads,
        "min_available_mib": profile.min_available_mib,
        "max_memory_mib": profile.max_memory_mib,
        "max_latency_ms": profile.max_latency_ms,
    }
    return {key: value for key, value in settings.items() if value is not None}


def _lines(profile: DeviceProfile, settings: dict[str, object]) -> tuple[str, ...]:
    # JSON's strings, numbers and lists of plain words are TOML's too.
    written = {key: f"{key} = {json.dumps(value)}" for key, value in settings.items()}
    named = written.pop("profile")
    return (
        f"# For this board, by edge-agent doctor --apply: {profile.title}",
        named,
        "# The profile says what follows. Where you take the # away, your value counts instead.",
        *(f"# {line}" for line in written.values()),
    )


def _joined(before: bytes, added: tuple[str, ...]) -> bytes:
    """Puts lines behind the keys of no table: behind a table's header they would be its own."""
    end = b"\r\n" if b"\r\n" in before else b"\n"
    at = _before_tables(before)
    head, tables = before[:at], before[at:]
    gap = b"" if not head else end if head.endswith(b"\n") else end * 2
    block = b"".join(line.encode("utf-8") + end for line in added)
    return head + gap + block + (end + tables if tables else b"")


def _before_tables(text: bytes) -> int:
    """Returns where the first table begins with the comment above it, or where the text ends."""
    lines = text.splitlines(keepends=True)
    for number, line in enumerate(lines):
        if not line.lstrip().startswith(b"[") or not _is_whole(lines[:number]):
            continue
        first = number
        while (
            first and lines[first - 1].lstrip().startswith(b"#") and _is_whole(lines[: first - 1])
        ):
            first -= 1
        return len(b"".join(lines[:first]))
    return len(text)


def _is_whole(lines: list[bytes]) -> bool:
    """Whether lines are TOML by themselves, and don't end inside of a text or a list."""
    try:
        tomllib.loads(b"".join(lines).decode("utf-8"))
    except ValueError:
        return False
    return True
