"""What the kernel keeps a worker from, once it may have run a stranger's model."""

from __future__ import annotations

import ctypes
from typing import Final

from edge_agent.workers.child import landlock, seccomp

_PR_SET_NO_NEW_PRIVS: Final = 38


def confine() -> str | None:
    """Confines this process for good, as far as the kernel can; call it before threads start.

    Returns:
        What holds; None where nothing does.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0:
        return None
    version = landlock.apply(libc)
    filtered = seccomp.apply(libc)
    holds = [f"Landlock {version}: reads libraries only"] if version else []
    holds += ["seccomp: no new sockets, programs or signals"] if filtered else []
    return "; ".join(holds) or None
