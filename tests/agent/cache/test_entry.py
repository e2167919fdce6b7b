"""A damaged entry is none; it is never another answer."""

from __future__ import annotations

import random

import pytest
from msgspec import structs

from edge_agent import clock
from edge_agent.cache import entry
from edge_agent.cache.entry import Kept
from edge_agent.calls import Answer, OutputTensor
from edge_agent.types import ScoredLabel

from .conftest import answer

KEY = bytes(range(32))
KEPT = Kept(answer(3), 1_800_000_000)


def encoded(kept: Kept = KEPT) -> bytes:
    data = entry.encode(KEY, kept)
    assert data is not None
    return data


def test_what_is_kept_comes_back_without_timings() -> None:
    timed = structs.replace(KEPT.answer, timings_ms={"infer": 3.5})
    assert entry.decode(KEY, encoded(Kept(timed, 7))) == Kept(KEPT.answer, 7)


@pytest.mark.parametrize(
    "one",
    [
        Answer(),
        Answer(((), (ScoredLabel(0, "ünïcode \0", float("inf")),)), (), (False, True)),
        Answer((), (OutputTensor("", "bool", (0, 3), b""), OutputTensor("y", "int8", (), b"\1"))),
    ],
)
def test_answers_of_every_form(one: Answer) -> None:
    assert entry.decode(KEY, encoded(Kept(one, 1))) == Kept(one, 1)


def test_only_its_own_key_opens_it() -> None:
    assert entry.decode(bytes(32), encoded()) is None
    assert entry.decode(KEY[:31], encoded()) is None


def test_every_flipped_bit_and_every_cut_is_noticed() -> None:
    data = encoded()
    for place in range(len(data) * 8):
        damaged = bytearray(data)
        damaged[place // 8] ^= 1 << (place % 8)
        assert entry.decode(KEY, bytes(damaged)) is None
    for length in range(len(data)):
        assert entry.decode(KEY, data[:length]) is None
    assert entry.decode(KEY, data + b"\0") is None


@pytest.mark.parametrize("other", [None, 7, "text", b"", b"\x01", b"\x02" + bytes(200)])
def test_what_isn_t_an_entry(other: object) -> None:
    assert entry.decode(KEY, other) is None


def test_noise_is_no_entry() -> None:
    noise = random.Random(1)
    assert not any(entry.decode(KEY, b"\x01" + noise.randbytes(n)) for n in range(300))


def test_a_well_checked_body_of_another_kind_is_none() -> None:
    body = b"\xc1"  # the one byte that MessagePack never uses
    assert entry.decode(KEY, b"\x01" + entry._check(body) + body) is None


def test_what_is_too_large_or_has_no_text_is_not_kept() -> None:
    assert entry.encode(KEY, Kept(answer(1, entry.MAX_ENTRY_BYTES), 1)) is None
    assert entry.encode(KEY, Kept(answer(1, entry.MAX_ENTRY_BYTES - 1000), 1)) is not None
    odd = Answer(((ScoredLabel(0, "\ud800", 0.5),),))
    assert entry.encode(KEY, Kept(odd, 1)) is None


def test_an_answer_lasts_for_its_time_and_not_from_the_future() -> None:
    now = entry.seconds_now()
    assert entry.lasts(now, 60)
    assert entry.lasts(now - 50, 60)
    assert not entry.lasts(now - 61, 60)
    assert not entry.lasts(now + 3600, 60)
    assert now >= int(clock.FLOOR.timestamp())


def test_sizes_in_memory_grow_with_what_is_held() -> None:
    assert entry.size_in_memory(answer(1, 80_000)) > 80_000
    assert entry.size_in_memory(Answer()) < entry.size_in_memory(answer(1))
