"""Where the daemon's sockets lie; imports next to nothing, since the thin client begins with it."""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

DATA_SOCKET = "data.sock"
ADMIN_SOCKET = "admin.sock"
SYSTEM = "/run/edge-agent"


def runtime_dir(environment: Mapping[str, str]) -> str:
    """Returns the folder of this user's daemon's sockets.

    ``EDGE_AGENT_RUNTIME_DIR`` wins; root's is /run/edge-agent, anyone else's below
    ``XDG_RUNTIME_DIR``, and without that the system's.
    """
    return runtime_dirs(environment)[0]


def runtime_dirs(environment: Mapping[str, str]) -> tuple[str, ...]:
    """Returns where a client looks for a daemon: this user's folder first, then the system's."""
    given = environment.get("EDGE_AGENT_RUNTIME_DIR")
    if given:
        return (given,)
    own = environment.get("XDG_RUNTIME_DIR", "")
    if os.geteuid() == 0 or not own.startswith("/"):
        return (SYSTEM,)
    return (own + "/edge-agent", SYSTEM)
