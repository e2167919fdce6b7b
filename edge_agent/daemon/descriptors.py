"""File descriptors: as many as connections and workers take, or else fewer connections."""

from __future__ import annotations

import logging
import resource
from typing import Final

_LOG: Final = logging.getLogger("edge_agent.daemon")
# The database, the log, the sockets, and what is being loaded.
_OWN: Final = 64
# Its sockets and shared memory, and the files of its models.
_OF_WORKER: Final = 64


def connections(wanted: int, doors: int, workers: int) -> int:
    """Returns how many connections each door may have at a time.

    Raises this process's limit of descriptors as far as that takes and the hard limit allows.

    Args:
        wanted: What is configured.
        doors: How many doors there are.
        workers: How many worker processes.
    """
    reserved = _OWN + _OF_WORKER * workers
    limit = _raised(reserved + wanted * doors)
    possible = max(1, (limit - reserved) // doors)
    if possible >= wanted:
        return wanted
    facts = {"configured": wanted, "possible": possible, "descriptors": limit}
    hint = "raise the hard limit of open files (LimitNOFILE=), or lower serve.max_connections"
    _LOG.warning("fewer_connections", extra={**facts, "hint": hint})
    return possible


def _raised(needed: int) -> int:
    """Raises the limit to what is needed where it is lower, and returns what it is then."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= needed:
        return needed
    limit = needed if hard == resource.RLIM_INFINITY else min(hard, needed)
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
    return limit
