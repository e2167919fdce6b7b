"""What was freed goes back to the kernel, and what hangs together in circles is freed first."""

from __future__ import annotations

import gc
import weakref

from edge_agent.memory_allocator import give_back


class Ring:
    """Holds itself."""

    def __init__(self) -> None:
        self.next = self


def test_frees_what_only_a_collection_finds() -> None:
    gc.disable()
    try:
        gone = weakref.ref(Ring())
        assert gone() is not None
        give_back()
        assert gone() is None
    finally:
        gc.enable()
