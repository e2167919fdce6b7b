"""What was never seen costs nothing, and what is never found little."""

from __future__ import annotations

from edge_agent.cache.admission import GENERATION, PATIENCE, PROBE_ONE_OF, Doorkeeper, Patience


def test_the_second_time_is_recognised() -> None:
    door = Doorkeeper()
    assert [door.has_seen(one) for one in (1, 2, 1, 1, 3, 2)] == [
        False, False, True, True, False, True,
    ]  # fmt: skip


def test_two_generations_are_remembered_and_no_more() -> None:
    door = Doorkeeper()
    for one in range(GENERATION):
        assert not door.has_seen(one)
    assert not door.has_seen(-1)  # the next generation begins
    assert door.has_seen(0)
    for one in range(GENERATION, 3 * GENERATION):
        assert not door.has_seen(one)
    assert not door.has_seen(1)
    assert len(door._current) <= GENERATION
    assert len(door._previous) <= GENERATION


def test_what_keeps_coming_is_never_forgotten() -> None:
    door = Doorkeeper()
    door.has_seen(-1)
    for one in range(5 * GENERATION):
        door.has_seen(one)
        if one % (GENERATION // 2) == 0:
            assert door.has_seen(-1)


def test_what_the_database_has_counts_as_seen() -> None:
    door = Doorkeeper()
    door.remember(range(2 * GENERATION))
    assert door.has_seen(0)
    assert not door.has_seen(GENERATION)


def test_patience_ends_and_one_hit_brings_it_back() -> None:
    patience = Patience()
    for _ in range(PATIENCE):
        assert patience.lasts()
        patience.learn(found=False)
    tried = 0
    for _ in range(10 * PROBE_ONE_OF):
        if patience.lasts():
            tried += 1
            patience.learn(found=False)
    assert tried == 10
    assert patience.stepped_aside == 10 * (PROBE_ONE_OF - 1)
    patience.learn(found=True)
    assert all(patience.lasts() for _ in range(100))
