"""Whether others could have written what decides whom this agent trusts."""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING

from edge_agent.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path


def require_ours(path: Path) -> None:
    """Refuses a file or folder that anyone but its owner and root can change.

    Args:
        path: A file or folder; one that isn't there is nobody's.

    Raises:
        ConfigError: It belongs to another user, or its group or others may write.
    """
    try:
        facts = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return
    except OSError as error:
        raise ConfigError(f"can't be read: {error.strerror}", path=str(path)) from error
    if facts.st_uid not in (0, os.geteuid()):
        raise ConfigError(
            "belongs to another user, who could change whom this agent trusts",
            path=str(path),
            hint=f"run: chown {os.geteuid()} {path}",
        )
    if facts.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise ConfigError(
            "can be changed by others, who could change whom this agent trusts",
            path=str(path),
            hint=f"run: chmod go-w {path}",
        )
