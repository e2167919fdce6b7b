"""What `models install` and `models remove` tell a daemon, and what they print of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import typer

from edge_agent import errors
from edge_agent.cli import admin_socket, models, models_daemon
from edge_agent.config import AgentConfig
from edge_agent.daemon.kept_state import DesiredFile
from edge_agent.serving.desired import SCHEMA, Desired, DesiredModel

DONE: dict[str, Any] = {
    "action": "load",
    "model": "acme/x",
    "version": "1.0.0",
    "before": None,
    "error": None,
}


class Owner:
    """A daemon's admin socket.

    Attributes:
        asked: What was to be changed.
        state_dir: Whose store it serves.
        steps: What it says it did.
        problem: What it refuses changes with.
    """

    def __init__(self, state_dir: Path) -> None:
        self.asked: list[tuple[str, str, Any]] = []
        self.state_dir = str(state_dir)
        self.steps = [DONE]
        self.problem: Exception | None = None

    def ask(self, path: Path, method: str, target: str, document: Any = None) -> Any:
        assert path.name == "admin.sock"
        if method == "GET":
            return {"desired": None, "state_dir": self.state_dir}
        self.asked.append((method, target, document))
        if self.problem is not None:
            raise self.problem
        return {"steps": self.steps}


@pytest.fixture
def config(tmp_path: Path) -> AgentConfig:
    return AgentConfig(tmp_path, tmp_path, runtime_dir=tmp_path)


@pytest.fixture
def owner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Owner:
    made = Owner(tmp_path)
    monkeypatch.setattr(models_daemon, "ask", made.ask)
    return made


def keep(config: AgentConfig, *models: DesiredModel) -> None:
    DesiredFile(config.state_dir).write(Desired(SCHEMA, models))


def told(config: AgentConfig, capsys: pytest.CaptureFixture[str], *removed: str) -> Any:
    """The member ``daemon`` of the one document that is printed, and the notices."""

    def follow() -> str | None:
        if removed:
            return models_daemon.have_unloaded(config, "acme/x", list(removed))
        return models_daemon.have_served(config, "acme/x", "1.0.0")

    try:
        models._tell(follow, {"schema": "x"})
        code = 0
    except typer.Exit as end:
        code = end.exit_code
    shown = capsys.readouterr()
    document = json.loads(shown.out)
    assert document["schema"] == "x"
    assert (code != 0) == isinstance(document["daemon"], dict)
    return document["daemon"], shown.err


def test_without_a_desired_state_it_serves_what_is_installed(
    config: AgentConfig, owner: Owner, capsys: pytest.CaptureFixture[str]
) -> None:
    daemon, notices = told(config, capsys)
    assert daemon == "served"
    assert "the daemon serves acme/x 1.0.0" in notices
    assert owner.asked == [("DELETE", "/desired", None)]


@pytest.mark.parametrize(
    ("model", "daemon"),
    [
        (DesiredModel("acme/x"), "served"),
        (DesiredModel("acme/x", "0.9.0", ("1.0.0",)), "served"),
        (DesiredModel("acme/x", "0.9.0"), "not_desired"),
        (DesiredModel("acme/y"), "not_desired"),
    ],
)
def test_what_apply_said_is_said_again(
    model: DesiredModel,
    daemon: str,
    config: AgentConfig,
    owner: Owner,
    capsys: pytest.CaptureFixture[str],
) -> None:
    keep(config, model)
    said, notices = told(config, capsys)
    assert said == daemon
    is_told = "desired state doesn't name acme/x 1.0.0, so that isn't served" in notices
    assert is_told == (daemon == "not_desired")
    ((method, target, document),) = owner.asked
    assert (method, target) == ("PUT", "/desired")
    assert [one["name"] for one in document["models"]] == [model.name]


def test_a_desired_state_that_cannot_be_read_is_not_forgotten(
    config: AgentConfig, owner: Owner, capsys: pytest.CaptureFixture[str]
) -> None:
    (config.state_dir / "desired.json").write_text("{")
    daemon, _ = told(config, capsys)
    assert daemon["error"]["kind"] == "StoreError"
    assert owner.asked == []


def test_a_daemon_of_another_store_is_let_be(
    config: AgentConfig, owner: Owner, capsys: pytest.CaptureFixture[str]
) -> None:
    owner.state_dir = "/var/lib/edge-agent"
    assert told(config, capsys) == (None, "")
    assert owner.asked == []


def test_what_it_refuses_is_told_in_the_same_document(
    config: AgentConfig, owner: Owner, capsys: pytest.CaptureFixture[str]
) -> None:
    owner.problem = errors.UnavailableError("no", hint="wait")
    error = told(config, capsys)[0]["error"]
    assert error == {"kind": "UnavailableError", "exit_code": 5, "message": "no", "hint": "wait"}


def test_what_cannot_be_served_any_more_is_named(
    config: AgentConfig, owner: Owner, capsys: pytest.CaptureFixture[str]
) -> None:
    keep(config, DesiredModel("acme/x", "1.0.0", ("0.9.0",)))
    owner.steps = [
        DONE | {"error": "it isn't installed"},
        DONE | {"action": "add", "version": "0.9.0", "error": "it neither"},
        DONE | {"action": "unload"},
    ]
    message = told(config, capsys, "1.0.0", "0.9.0")[0]["error"]["message"]
    assert message == (
        "the daemon can't serve what it should: "
        "+ acme/x 1.0.0: it isn't installed; + acme/x 0.9.0: it neither"
    )


def test_another_model_that_fails_is_only_told(
    config: AgentConfig, owner: Owner, capsys: pytest.CaptureFixture[str]
) -> None:
    owner.steps = [DONE, DONE | {"model": "acme/y", "error": "is broken"}]
    daemon, notices = told(config, capsys)
    assert daemon == "served"
    assert "acme/y 1.0.0: is broken" in notices


def test_what_was_removed_is_unloaded(
    config: AgentConfig, owner: Owner, capsys: pytest.CaptureFixture[str]
) -> None:
    daemon, notices = told(config, capsys, "0.9.0", "1.0.0")
    assert daemon == "unloaded"
    assert "doesn't serve acme/x 0.9.0, 1.0.0 any more" in notices


@pytest.mark.parametrize("problem", [PermissionError, FileNotFoundError, ConnectionRefusedError])
def test_a_socket_that_is_not_for_us_is_no_daemon_of_ours(
    problem: type[OSError],
    config: AgentConfig,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def connect(self: object) -> None:
        raise problem

    monkeypatch.setattr(admin_socket._Connection, "connect", connect)
    assert told(config, capsys) == (None, "")
    admin_socket.have_reloaded(config.admin_socket)
    assert capsys.readouterr().err == ""
