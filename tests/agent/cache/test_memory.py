"""Memory is bounded by bytes, and keeps what was used last."""

from __future__ import annotations

from edge_agent.cache.entry import Kept
from edge_agent.cache.memory import AnswerMemory, Held

from .conftest import answer


def held(number: int, size: int = 10) -> Held:
    return Held(Kept(answer(number), 0), size, is_stored=False)


def test_what_was_used_least_lately_goes_first() -> None:
    memory = AnswerMemory(30)
    for name in (b"a", b"b", b"c"):
        memory.put(name, held(1))
    assert memory.get(b"a") is not None
    memory.put(b"d", held(1))
    assert [memory.get(name) is not None for name in (b"a", b"b", b"c", b"d")] == [
        True, False, True, True,
    ]  # fmt: skip
    assert (len(memory), memory.size) == (3, 30)


def test_one_large_answer_displaces_several() -> None:
    memory = AnswerMemory(30)
    for name in (b"a", b"b", b"c"):
        memory.put(name, held(1))
    memory.put(b"d", held(1, 25))
    assert (len(memory), memory.size) == (1, 25)


def test_what_is_larger_than_the_whole_is_not_held_and_neither_is_what_it_replaces() -> None:
    memory = AnswerMemory(30)
    memory.put(b"a", held(1))
    memory.put(b"a", held(2, 31))
    assert memory.get(b"a") is None
    assert memory.size == 0


def test_replacing_and_removing_keep_count() -> None:
    memory = AnswerMemory(100)
    memory.put(b"a", held(1, 40))
    memory.put(b"a", held(2, 50))
    assert memory.get(b"a") == held(2, 50)
    assert memory.size == 50
    memory.remove(b"a")
    memory.remove(b"a")
    assert (len(memory), memory.size) == (0, 0)
    memory.put(b"b", held(1))
    memory.clear()
    assert (len(memory), memory.size) == (0, 0)
