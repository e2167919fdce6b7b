"""`edge-agent serve` and `apply`, as a gateway's owner and its applications meet them."""

from __future__ import annotations

import os
import shutil
import signal
import stat
from io import BytesIO
from pathlib import Path
from typing import Any

import httpx
import pytest
from PIL import Image

from edge_signing.keyring import Keyring

from .conftest import MODEL_YAML, NAME, Publisher, Run
from .daemons import Daemon, is_alive

COLOURS = {"red": (255, 0, 0), "green": (0, 255, 0), "blue": (0, 0, 255)}


def picture(colour: str = "red") -> bytes:
    file = BytesIO()
    Image.new("RGB", (8, 8), COLOURS[colour]).save(file, "PNG")
    return file.getvalue()


def best(reply: httpx.Response) -> Any:
    assert reply.status_code == 200, reply.text
    return reply.json()["labels"][0]["label"]


def ask(daemon: Daemon, colour: str = "red", name: str = NAME, **headers: str) -> httpx.Response:
    with daemon.client() as client:
        return client.post(f"/infer/{name}", content=picture(colour), headers=headers)


def publish(publisher: Publisher, version: str) -> None:
    """Makes another version of the publisher's bundle, in place."""
    yaml = MODEL_YAML.replace("version: 1.2.3", f"version: {version}")
    publisher.put("model.yaml", yaml.encode())
    shutil.rmtree(publisher.bundle / "signatures", ignore_errors=True)
    publisher.sign()


@pytest.fixture
def installed(run: Run, publisher: Publisher, daemon: Daemon) -> Daemon:
    """A daemon that has `acme/colour` 1.2.3 installed, started."""
    assert run("models", "install", publisher.bundle).code == 0
    return daemon.start().wait_ready()


def test_answers_for_what_is_installed(installed: Daemon) -> None:
    for colour in COLOURS:
        reply = ask(installed, colour)
        assert best(reply) == colour
        assert reply.json()["model"]["version"] == "1.2.3"
    assert installed.get("/v2/models/demo/efficientnet-lite0").status_code == 404


def test_serves_the_demo_where_nothing_is_installed(daemon: Daemon, photos: Path) -> None:
    daemon.start().wait_ready()
    with daemon.client() as client:
        reply = client.post("/infer/demo/efficientnet-lite0", content=photos_bytes(photos))
    assert best(reply) == "espresso"


def photos_bytes(photos: Path) -> bytes:
    return (photos / "coffee.png").read_bytes()


def test_the_command_line_asks_the_daemon(installed: Daemon, run: Run, tmp_path: Path) -> None:
    (tmp_path / "blue.png").write_bytes(picture("blue"))
    told = run("infer", "blue.png", "--model", NAME, "--json").json()
    assert told["answered_by"] == "daemon"
    assert told["labels"][0]["label"] == "blue"
    installed.stop()
    told = run("infer", "blue.png", "--model", NAME, "--json").json()
    assert told["answered_by"] == "here"
    assert told["labels"][0]["label"] == "blue"


def test_the_daemon_imports_no_engine_and_no_decoder(installed: Daemon) -> None:
    assert best(ask(installed)) == "red"
    maps = Path(f"/proc/{installed.process.pid}/maps").read_text()
    loaded = [line for line in maps.splitlines() if line.endswith(".so")]
    assert loaded
    for library in ("onnxruntime", "numpy", "PIL", "litert", "tflite"):
        assert not [line for line in loaded if f"/{library}" in line.lower()], library


def test_sockets_are_for_those_who_may(installed: Daemon) -> None:
    """The daemon's group for the one; for the other the owner, of root's daemon root's group."""
    modes = {"data.sock": 0o660, "admin.sock": 0o600 if os.geteuid() else 0o660}
    for name, mode in modes.items():
        facts = (installed.runtime_dir / name).stat()
        assert stat.S_ISSOCK(facts.st_mode)
        assert stat.S_IMODE(facts.st_mode) == mode
        assert (facts.st_uid, facts.st_gid) == (os.geteuid(), os.getegid())


def test_loading_is_for_the_admin_socket(installed: Daemon) -> None:
    with installed.client() as client:
        assert client.post(f"/v2/repository/models/{NAME}/unload", json={}).status_code == 403
    assert best(ask(installed)) == "red"


def test_unload_and_load(installed: Daemon) -> None:
    assert installed.admin("POST", f"/v2/repository/models/{NAME}/unload", {}).status_code == 200
    assert ask(installed).status_code == 404
    assert installed.admin("POST", f"/v2/repository/models/{NAME}/load", {}).status_code == 200
    assert best(ask(installed)) == "red"


def test_a_version_is_switched_and_the_old_one_freed(
    installed: Daemon, run: Run, publisher: Publisher
) -> None:
    publish(publisher, "1.3.0")
    assert run("models", "install", publisher.bundle).code == 0
    installed.wait(lambda: ask(installed).json()["model"]["version"] == "1.3.0")
    old = f"/v2/models/{NAME}/versions/1.2.3/ready"
    installed.wait(lambda: installed.get(old).status_code == 404)


def test_what_was_tampered_with_is_never_loaded(
    installed: Daemon, run: Run, publisher: Publisher, tmp_path: Path
) -> None:
    publish(publisher, "1.3.0")
    assert installed.admin("POST", f"/v2/repository/models/{NAME}/unload", {}).status_code == 200
    (model,) = (tmp_path / "state" / "bundles").glob("*/weights/model.onnx")
    model.chmod(0o600)
    model.write_bytes(model.read_bytes() + b"\0")
    refused = installed.admin("POST", f"/v2/repository/models/{NAME}/load", {})
    assert refused.status_code == 403
    assert ask(installed).status_code in (404, 503)


def test_follows_what_is_installed_and_removed(
    daemon: Daemon, run: Run, publisher: Publisher
) -> None:
    """It serves what a start would serve: the demo too, where nothing is installed."""
    demo = "/v2/models/demo/efficientnet-lite0"
    daemon.start().wait_ready()
    assert daemon.get(f"{demo}/ready").status_code == 200
    told = run("models", "install", publisher.bundle, "--json")
    assert told.json()["daemon"] == "served"
    assert f"the daemon serves {NAME} 1.2.3" in told.err
    assert best(ask(daemon)) == "red"
    assert daemon.get(demo).status_code == 404
    publish(publisher, "1.3.0")
    assert run("models", "install", publisher.bundle).code == 0
    assert ask(daemon).json()["model"]["version"] == "1.3.0"
    assert run("models", "remove", f"{NAME}@1.3.0", "--json").json()["daemon"] == "unloaded"
    assert ask(daemon).json()["model"]["version"] == "1.2.3"
    assert run("models", "remove", NAME).code == 0
    assert ask(daemon).status_code == 404
    assert daemon.get(f"{demo}/ready").status_code == 200


def test_what_is_removed_though_it_is_desired_is_not_served(
    installed: Daemon, run: Run, publisher: Publisher, tmp_path: Path
) -> None:
    publish(publisher, "1.3.0")
    assert run("models", "install", publisher.bundle).code == 0
    (tmp_path / "desired.yaml").write_text(
        "schema: edge-agent/desired/v1\n"
        f"models: [{{name: {NAME}, version: 1.3.0, also: [1.2.3]}}]\n"
        f"aliases: {{colour: {NAME}}}\n"
    )
    assert run("apply", "-f", "desired.yaml").code == 0
    removed = run("models", "remove", f"{NAME}@1.3.0")
    assert removed.code == 5
    assert removed.out.startswith(f"removed {NAME} 1.3.0")
    assert f"{NAME} 1.3.0: no model '{NAME}@1.3.0' is installed" in removed.err
    for _ in range(2):  # as it is now, and after a start
        for name in (NAME, "colour", f"{NAME}@1.3.0"):
            refused = ask(installed, name=name)
            assert (refused.status_code, refused.json()["kind"]) == (503, "ModelNotReadyError")
        ready = installed.get(f"/v2/models/{NAME}/ready")
        assert (ready.status_code, ready.json()["ready"]) == (503, False)
        assert best(ask(installed, name=f"{NAME}@1.2.3")) == "red"
        index = installed.admin("POST", "/v2/repository/index", {}).json()
        assert {one["version"]: one["state"] for one in index} == {
            "1.2.3": "READY",
            "1.3.0": "UNAVAILABLE",
        }
        assert "is installed" in index[1]["reason"]
        assert not installed.is_ready()
        installed.stop()
        installed.log_file.unlink()
        installed.start().wait(lambda: bool(installed.events("ready")))


def test_a_dry_run_looks_into_the_store(installed: Daemon, run: Run, tmp_path: Path) -> None:
    (tmp_path / "desired.yaml").write_text(
        f"schema: edge-agent/desired/v1\nmodels: [{{name: {NAME}, also: [9.9.9]}}]\n"
    )
    shown = run("apply", "-f", "desired.yaml", "--dry-run")
    assert (shown.code, shown.out) == (5, f"+ {NAME} 9.9.9\n")
    assert f"{NAME} 9.9.9: no model '{NAME}@9.9.9' is installed" in shown.err
    assert installed.is_ready()


def test_applies_a_desired_state(
    installed: Daemon, run: Run, publisher: Publisher, tmp_path: Path
) -> None:
    (tmp_path / "desired.yaml").write_text(
        "schema: edge-agent/desired/v1\n"
        "models:\n"
        "  - {name: demo/efficientnet-lite0}\n"
        f"  - {{name: {NAME}, version: 1.2.3}}\n"
        "aliases:\n"
        f"  colour: {NAME}\n"
    )
    shown = run("apply", "-f", "desired.yaml", "--dry-run")
    assert "+ demo/efficientnet-lite0" in shown.out
    assert installed.get("/v2/models/demo/efficientnet-lite0").status_code == 404
    assert run("apply", "-f", "desired.yaml").code == 0
    assert best(ask(installed, "green", "colour")) == "green"
    assert installed.get("/v2/models/demo/efficientnet-lite0").status_code == 200
    assert run("apply", "-f", "desired.yaml").out == "nothing to do\n"
    installed.stop()
    installed.start().wait_ready()
    assert best(ask(installed, "blue", "colour")) == "blue"
    assert installed.get("/v2/models/demo/efficientnet-lite0").status_code == 200


def test_a_desired_state_that_cannot_be_reached_says_why(
    installed: Daemon, run: Run, tmp_path: Path
) -> None:
    (tmp_path / "desired.yaml").write_text(
        "schema: edge-agent/desired/v1\n"
        f"models: [{{name: {NAME}}}, {{name: acme/absent, version: 1.0.0}}]\n"
    )
    failed = run("apply", "-f", "desired.yaml")
    assert failed.code == 5
    assert "acme/absent" in failed.err
    assert best(ask(installed)) == "red"


def test_apply_without_a_daemon(run: Run, tmp_path: Path) -> None:
    (tmp_path / "desired.yaml").write_text("schema: edge-agent/desired/v1\nmodels: []\n")
    failed = run("apply", "-f", "desired.yaml")
    assert failed.code == 5
    assert "no daemon listens" in failed.err


def test_reload_takes_a_changed_keyring(installed: Daemon, publisher: Publisher) -> None:
    publisher.trust(Keyring())
    installed.process.send_signal(signal.SIGHUP)
    installed.wait(lambda: bool(installed.events("reloaded")))
    assert ask(installed).status_code == 503
    publisher.trust_key()
    installed.process.send_signal(signal.SIGHUP)
    installed.wait(lambda: len(installed.events("reloaded")) == 2)
    assert installed.admin("POST", f"/v2/repository/models/{NAME}/load", {}).status_code == 200
    assert best(ask(installed)) == "red"


def test_an_invalid_configuration_keeps_the_old_one(installed: Daemon, tmp_path: Path) -> None:
    (tmp_path / "config" / "config.toml").write_text("[serve]\nmax_queued = 0\n")
    installed.process.send_signal(signal.SIGHUP)
    installed.wait(lambda: bool(installed.events("reload_refused")))
    assert "max_queued" in installed.events("reload_refused")[0]["reason"]
    assert best(ask(installed)) == "red"


def test_a_second_daemon_is_refused(installed: Daemon, run: Run) -> None:
    second = run("serve")
    assert second.code == 2
    assert "another daemon" in second.err
    assert best(ask(installed)) == "red"


def test_stops_when_told_and_leaves_nothing(installed: Daemon) -> None:
    children = installed.children()
    assert children
    assert installed.stop() == 0
    assert not [pid for pid in children if is_alive(pid)]
    assert not list(installed.runtime_dir.iterdir())


def test_workers_end_with_a_killed_daemon_and_a_new_one_serves(installed: Daemon) -> None:
    children = installed.children()
    installed.stop(signal.SIGKILL)
    installed.wait_gone(children)
    installed.start().wait_ready()
    assert best(ask(installed)) == "red"


def test_a_killed_worker_is_replaced(installed: Daemon) -> None:
    (worker,) = installed.children()
    os.kill(worker, signal.SIGKILL)
    assert best(ask(installed, "green", **{"Edge-Agent-Timeout-Ms": "20000"})) == "green"
    assert worker not in installed.children()
