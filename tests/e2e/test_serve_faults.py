"""The daemon where things go wrong under load: what one model does costs no other a request."""

from __future__ import annotations

import os
import signal
import sqlite3
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import httpx
import pytest

from edge_agent.bundles import open_bundle
from edge_agent.model_store import ModelStore
from edge_signing.keyring import Keyring
from edge_signing.trust import Purpose

from . import models
from .conftest import NAME, Publisher, Run, colour_model
from .daemons import Daemon
from .load import Answer, Load, picture
from .models import EATER, HANG

ENGLISH, FRENCH = b'["red", "green", "blue"]', b'["rouge", "vert", "bleu"]'
LABELS = {
    "1.0.0": {"red": "red", "green": "green", "blue": "blue"},
    "2.0.0": {"red": "rouge", "green": "vert", "blue": "bleu"},
}
Serve = Callable[..., Daemon]


@pytest.fixture
def serve(run: Run, publisher: Publisher, daemon: Daemon, tmp_path: Path) -> Serve:
    """Starts the daemon with a good model and, where one is given, another, and a configuration."""

    def start(config: str = "", *bundles: tuple[str, bytes]) -> Daemon:
        (tmp_path / "config" / "config.toml").write_text(config)
        for name, model in ((NAME, colour_model()), *bundles):
            models.publish(publisher, name, model)
            assert run("models", "install", publisher.bundle).code == 0
        return daemon.start().wait_ready()

    return start


def ask(
    daemon: Daemon,
    name: str = NAME,
    colour: str = "red",
    number: int = 0,
    headers: dict[str, str] | None = None,
) -> httpx.Response:
    with daemon.client() as client:
        return client.post(f"/infer/{name}", content=picture(colour, number), headers=headers)


def load(daemon: Daemon, version: str, name: str = NAME) -> httpx.Response:
    wanted = {"parameters": {"version": version}}
    return daemon.admin("POST", f"/v2/repository/models/{name}/load", wanted)


def is_consistent(one: Answer) -> bool:
    return one.label == LABELS[one.version][one.colour]


def is_later(than: float, one: Answer) -> bool:
    return one.begun > than


def has_reloaded(daemon: Daemon, times: int) -> bool:
    return len(daemon.events("reloaded")) == times


def executions(daemon: Daemon, name: str = NAME) -> int:
    (statistics,) = daemon.get(f"/v2/models/{name}/stats").json()["model_stats"]
    return int(statistics["execution_count"])


def assert_database_is_whole(state_dir: Path) -> None:
    database = sqlite3.connect(state_dir / "cache.sqlite3")
    try:
        assert database.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    finally:
        database.close()


def install_both(run: Run, publisher: Publisher) -> None:
    """Installs two versions that answer in two languages, and keeps the first active."""
    for version, labels in (("2.0.0", FRENCH), ("1.0.0", ENGLISH)):
        models.publish(publisher, NAME, colour_model(), version, labels)
        assert run("models", "install", publisher.bundle).code == 0


def install_unchecked(publisher: Publisher, state_dir: Path) -> None:
    """Installs a bundle whose golden input nobody tried: it does harm in the daemon first."""
    keyring, now = Keyring.parse(publisher.keyring_file.read_bytes()), datetime.now(UTC)
    with open_bundle(publisher.bundle, keyring, now, Purpose.INSTALL) as bundle:
        ModelStore(state_dir).install(bundle, now.isoformat(), lambda folder: None)


def test_a_model_that_hangs_is_isolated_then_taken_out_and_costs_nobody_a_request(
    serve: Serve,
) -> None:
    config = "[cache]\nmib = 0\n[serve]\nmax_run_ms = 600\n"
    daemon = serve(config, (HANG, models.busy(models.ENDLESS)))
    assert ask(daemon, HANG, "green").status_code == 200
    with Load(daemon, 2) as good:
        statuses = [ask(daemon, HANG).status_code for _ in range(2)]
        daemon.wait(lambda: bool(daemon.events("model_isolated")))
        assert daemon.events("model_isolated")[0]["model"] == HANG
        while statuses[-1] != 503:
            ask(daemon, HANG, "green")  # an answer that is right, and the next start is at once
            statuses.append(ask(daemon, HANG).status_code)
            assert len(statuses) < 12
        assert ask(daemon, HANG, "green").status_code == 503
        good.wait_for(10)
    assert set(statuses[:-1]) <= {500, 504}
    assert good.failed() == []
    assert all(one.label == one.colour for one in good.answers)
    assert daemon.get("/v2/health/live").status_code == 200


def test_a_model_that_eats_memory_fails_alone(serve: Serve) -> None:
    config = "[cache]\nmib = 0\n[serve]\nworker_memory_mib = 64\n"
    daemon = serve(config, (EATER, models.eater(2000)))
    with Load(daemon, 2) as good:
        for _ in range(4):
            assert ask(daemon, EATER).status_code == 500
        good.wait_for(10)
    assert good.failed() == []
    assert ask(daemon, EATER, "green").status_code in (200, 503)


def test_a_worker_that_crashes_in_the_middle_of_a_run_fails_only_that_run(serve: Serve) -> None:
    config = "[cache]\nmib = 0\n[serve]\nmax_run_ms = 8000\n"
    daemon = serve(config, (HANG, models.busy(models.ENDLESS)))
    with Load(daemon, 2) as good, ThreadPoolExecutor(1) as thread:
        for _ in range(2):
            good.wait_for(5)
            bad = thread.submit(ask, daemon, HANG)
            daemon.wait(good.stalls)
            (worker,) = daemon.children()
            os.kill(worker, signal.SIGSEGV)
            reply = bad.result(20)
            assert reply.status_code == 500
            assert reply.json()["kind"] == "WorkerFailedError"
        daemon.wait(lambda: bool(daemon.events("model_isolated")))
        good.wait_for(10)
    assert good.failed() == []
    assert daemon.events("model_isolated")[0]["model"] == HANG


def test_a_version_whose_load_hangs_and_crashes_leaves_the_live_one(
    serve: Serve, publisher: Publisher, daemon: Daemon, tmp_path: Path
) -> None:
    serve("[cache]\nmib = 0\n")
    models.publish(publisher, NAME, models.busy(models.ENDLESS), "2.0.0", golden="red")
    install_unchecked(publisher, tmp_path / "state")
    with Load(daemon, 2) as good, ThreadPoolExecutor(1) as thread:
        before = daemon.children()
        loading = thread.submit(load, daemon, "2.0.0")
        daemon.wait(lambda: len(daemon.children()) == 2)
        good.wait_for(10)
        assert not loading.done()
        (trial,) = set(daemon.children()) - set(before)
        os.kill(trial, signal.SIGSEGV)
        assert loading.result(20).status_code == 500
        good.wait_for(5)
    assert good.failed() == []
    assert {one.version for one in good.answers} == {"1.0.0"}
    assert daemon.children() == before
    assert daemon.get(f"/v2/models/{NAME}/versions/2.0.0/ready").status_code == 503


def test_swaps_under_load_lose_nothing_and_mix_nothing(
    run: Run, publisher: Publisher, daemon: Daemon
) -> None:
    install_both(run, publisher)
    daemon.start().wait_ready()
    with Load(daemon, 4, kinds=2) as clients:
        for turn in range(20):
            wanted = ("2.0.0", "1.0.0")[turn % 2]
            assert load(daemon, wanted).status_code == 200
            loaded = time.monotonic()
            clients.wait_for(4, partial(is_later, loaded))
            later = [one for one in clients.answers if is_later(loaded, one)]
            assert {one.version for one in later} == {wanted}
    assert clients.failed() == []
    assert all(map(is_consistent, clients.answers))


def test_a_killed_worker_is_replaced_again_and_again(serve: Serve, tmp_path: Path) -> None:
    daemon = serve()
    with Load(daemon, 4) as clients:
        for _ in range(15):
            daemon.wait(lambda: bool(daemon.children()))
            for worker in daemon.children():
                os.kill(worker, signal.SIGKILL)
            clients.wait_for(4)
    assert {one.status for one in clients.failed()} <= {500}
    assert all(one.label == one.colour for one in clients.answers if one.status == 200)
    assert daemon.stop() == 0
    assert_database_is_whole(tmp_path / "state")


def test_a_killed_daemon_serves_again_and_again(serve: Serve, tmp_path: Path) -> None:
    daemon = serve()
    with Load(daemon, 2) as clients:
        for _ in range(5):
            clients.wait_for(4)
            children = daemon.children()
            daemon.stop(signal.SIGKILL)
            daemon.wait_gone(children)
            assert_database_is_whole(tmp_path / "state")
            daemon.start().wait_ready()
        clients.wait_for(4)
    assert all(one.label == one.colour for one in clients.answers if one.status == 200)
    assert daemon.stop() == 0
    assert_database_is_whole(tmp_path / "state")


def test_what_was_asked_before_the_end_is_answered(serve: Serve) -> None:
    daemon = serve("[cache]\nmib = 0\n", (HANG, models.busy(1e5)))
    with Load(daemon, 4, HANG, ["red"]) as clients:
        clients.wait_for(4)
        told = time.monotonic()
        assert daemon.stop() == 0
    asked = [one for one in clients.answers if one.begun < told - 0.1]
    assert {one.status for one in asked} <= {200, 503}
    assert {one.status for one in clients.answers} <= {200, 503, None}


def test_reloading_drops_nothing(serve: Serve) -> None:
    daemon = serve()
    with Load(daemon, 4) as clients:
        for number in range(1, 6):
            daemon.process.send_signal(signal.SIGHUP)
            daemon.wait(partial(has_reloaded, daemon, number))
            clients.wait_for(4)
    assert clients.failed() == []


def test_a_model_rests_and_wakes_for_a_call(serve: Serve) -> None:
    daemon = serve("[serve]\nidle_unload_s = 0.5\n")
    for colour in ("red", "blue"):
        daemon.wait(lambda: not daemon.children())
        assert daemon.get(f"/v2/models/{NAME}/ready").status_code == 200
        assert daemon.is_ready()
        assert ask(daemon, NAME, colour).json()["labels"][0]["label"] == colour


def test_a_worker_that_grew_is_replaced_without_a_failed_request(serve: Serve) -> None:
    config = "[cache]\nmib = 0\n[serve]\nworker_memory_mib = 64\n"
    daemon = serve(config, (EATER, models.eater(48)))
    with Load(daemon, 2) as good, Load(daemon, 1, EATER, ["red"]) as growing:
        daemon.wait(lambda: bool(daemon.events("worker_recycled")))
        good.wait_for(5)
        growing.wait_for(2)
    assert good.failed() == growing.failed() == []


def test_overload_is_told_with_when_to_come_back(serve: Serve) -> None:
    config = "[cache]\nmib = 0\n[serve]\nmax_queued = 2\nmax_run_ms = 1000\n"
    daemon = serve(config, (HANG, models.busy(1e5)))
    with ThreadPoolExecutor(12) as threads:
        replies = list(threads.map(lambda number: ask(daemon, HANG, number=number), range(12)))
    refused = [one for one in replies if one.status_code != 200]
    assert refused
    assert {one.status_code for one in refused} <= {429, 503}
    assert all(int(one.headers["Retry-After"]) >= 1 for one in refused)
    assert ask(daemon, HANG).status_code == 200


def test_what_is_too_late_is_not_run(serve: Serve) -> None:
    config = "[cache]\nmib = 0\n[serve]\nmax_run_ms = 2000\n"
    daemon = serve(config, (HANG, models.busy(models.ENDLESS)))
    with Load(daemon, 1) as clients, ThreadPoolExecutor(1) as thread:
        clients.wait_for(2)
        bad = thread.submit(ask, daemon, HANG)
        daemon.wait(clients.stalls)
    with ThreadPoolExecutor(1) as thread:
        bad = thread.submit(ask, daemon, HANG)
        daemon.wait(lambda: running(daemon))
        before = executions(daemon)
        assert ask(daemon, NAME, headers={"Edge-Agent-Timeout-Ms": "100"}).status_code == 504
        assert bad.result(20).status_code in (500, 504)
    assert executions(daemon) == before
    assert ask(daemon, NAME, "blue").status_code == 200
    assert executions(daemon) == before + 1


def running(daemon: Daemon) -> bool:
    """Whether a call that asks for little time gets none of the worker's."""
    return ask(daemon, NAME, headers={"Edge-Agent-Timeout-Ms": "20"}).status_code == 504


def test_a_call_that_is_sent_again_is_executed_once(serve: Serve) -> None:
    daemon = serve("[cache]\nmib = 0\n")
    key = {"Idempotency-Key": "first"}
    told = [ask(daemon, NAME, "blue", headers=key).json()["labels"] for _ in range(3)]
    assert told[0] == told[1] == told[2]
    assert executions(daemon) == 1
    assert ask(daemon, NAME, "red", headers=key).status_code == 400
    assert ask(daemon, NAME, "blue", headers={"Idempotency-Key": "other"}).status_code == 200
    assert executions(daemon) == 2
