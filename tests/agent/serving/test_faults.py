"""A model that breaks workers: first they are its own, then it has none."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from edge_agent.errors import GoldenMismatchError, ModelNotReadyError, WorkerFailedError
from edge_agent.serving import faults

from .scene import Scene, play, until, who

A1 = "sha256:acme/a@1.0.0"


def owners(s: Scene) -> list[str | None]:
    return [host.kind.owner for host in s.hosts]


def test_twice_on_shared_workers_moves_it_to_its_own(tmp_path: Path) -> None:
    async def act(s: Scene) -> None:
        entry = await s.serve()
        await s.serve(name="acme/b")
        s.faults.on_worker_failed(A1, "crashed")
        assert s.logged("model_isolated") == []
        s.faults.on_worker_failed(A1, "crashed")
        await until(lambda: entry.wakes)
        assert s.logged("model_isolated")[0]["model"] == "acme/a"
        assert who(await s.ask()) == A1
        assert owners(s) == [None, "acme/a"]
        assert A1 not in s.pools[0].models
        assert (await s.ask(name="acme/b")).model.name == "acme/b"

    play(tmp_path, act)


def test_a_batch_that_fails_counts_once_however_often_its_jobs_run(tmp_path: Path) -> None:
    async def act(s: Scene) -> None:
        await s.serve(name="acme/b")
        (pool,) = s.pools
        pool.can_batch = True
        entry = await s.serve()
        pool.crash = lambda digest: s.faults.on_worker_failed(digest, "crashed")
        pool.running.clear()
        busy = s.asking(name="acme/b")
        await until(lambda: pool.batches)
        calls = [s.asking(number) for number in range(3)]
        await until(lambda: s.waiting() == 3)
        pool.failure = WorkerFailedError("crashed")
        pool.running.set()
        await asyncio.wait([busy, *calls])
        assert [len(batch.queries) for batch in pool.batches] == [1, 3, 1, 1, 1]
        assert (entry.state, owners(s)) == ("READY", [None])
        with pytest.raises(WorkerFailedError):
            await s.ask(4)
        await until(lambda: entry.wakes)

    play(tmp_path, act)


def test_five_times_on_its_own_workers_takes_it_out_until_it_is_loaded(tmp_path: Path) -> None:
    async def act(s: Scene) -> None:
        s.placement.isolate("acme/a")
        entry = await s.serve()
        for _ in range(faults.OWN_FAULTS - 1):
            s.faults.on_worker_failed(A1, "crashed")
        assert who(await s.ask()) == A1
        s.faults.on_worker_failed(A1, "ended by SIGSEGV")
        await until(lambda: entry.state == "UNAVAILABLE")
        with pytest.raises(ModelNotReadyError, match="5 times in 60 s, last: ended by SIGSEGV"):
            await s.ask()
        assert owners(s) == []
        await s.life_cycle.load("acme/a", None)
        s.faults.on_worker_failed(A1, "crashed")  # it begins anew
        assert who(await s.ask(2)) == A1

    play(tmp_path, act)


def test_faults_long_ago_do_not_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1000.0
    monkeypatch.setattr(faults, "monotonic", lambda: now)

    async def act(s: Scene) -> None:
        nonlocal now
        entry = await s.serve()
        for _ in range(4):
            s.faults.on_worker_failed(A1, "crashed")
            now += faults.WINDOW_S + 1
        assert (entry.state, owners(s)) == ("READY", [None])

    play(tmp_path, act)


def test_nobody_is_blamed_for_what_nobody_did(tmp_path: Path) -> None:
    async def act(s: Scene) -> None:
        entry = await s.serve()
        for digest in (None, None, None, "sha256:gone", "sha256:gone"):
            s.faults.on_worker_failed(digest, "crashed")
        assert (entry.state, owners(s)) == ("READY", [None])
        assert len(s.logged("worker_failed")) == 5

    play(tmp_path, act)


def test_another_version_on_shared_workers_is_isolated_too(tmp_path: Path) -> None:
    async def act(s: Scene) -> None:
        beside = await s.serve("0.9.0")
        s.bundles.install("acme/a", "1.0.0")
        await s.life_cycle.load("acme/a", "1.0.0", keep=("0.9.0",))
        for digest in (A1, A1, beside.ref.digest, beside.ref.digest):
            s.faults.on_worker_failed(digest, "crashed")
        await until(lambda: beside.wakes)
        assert (await s.ask(version="0.9.0")).model.version == "0.9.0"
        assert (await s.ask()).model.version == "1.0.0"
        assert owners(s) == ["acme/a"]

    play(tmp_path, act)


def test_a_model_that_workers_lose_is_out_of_service(tmp_path: Path) -> None:
    async def act(s: Scene) -> None:
        entry = await s.serve()
        s.faults.on_model_lost(A1, GoldenMismatchError("answers wrongly"))
        s.faults.on_model_lost("sha256:gone", GoldenMismatchError("answers wrongly"))
        await until(lambda: entry.state == "UNAVAILABLE")
        with pytest.raises(ModelNotReadyError, match="answers wrongly"):
            await s.ask()
        s.faults.on_recycled("held 200 MiB")
        assert s.logged("worker_recycled") == [{"reason": "held 200 MiB"}]

    play(tmp_path, act)
