"""What `models install` and `models remove` tell a daemon, and what they print of it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import pytest
import typer

from edge_agent import errors
from edge_agent.cli import admin_socket, models
from edge_agent.config import AgentConfig

DONE: dict[str, Any] = {"action": "load", "model": "acme/x", "error": None}
Asked = list[tuple[str, str, Any]]


class Owner:
    """A daemon's admin socket."""

    def __init__(self, state_dir: Path) -> None:
        self.asked: Asked = []
        self.desired: Any = None
        self.state_dir = str(state_dir)
        self.answers: dict[str, Callable[[], Any]] = {}

    def ask(self, path: Path, method: str, target: str, document: Any = None) -> Any:
        assert path.name == "admin.sock"
        if method == "GET":
            return {"desired": self.desired, "state_dir": self.state_dir}
        self.asked.append((method, target, document))
        return self.answers.get(method, steps)()


def steps() -> Any:
    return {"steps": [DONE]}


def raising(error: Exception) -> Callable[[], NoReturn]:
    def work() -> NoReturn:
        raise error

    return work


@pytest.fixture
def config(tmp_path: Path) -> AgentConfig:
    return AgentConfig(tmp_path, tmp_path, runtime_dir=tmp_path)


@pytest.fixture
def owner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Owner:
    made = Owner(tmp_path)
    monkeypatch.setattr(admin_socket, "ask", made.ask)
    return made


def told(config: AgentConfig, capsys: pytest.CaptureFixture[str], action: str = "load") -> Any:
    """The member ``daemon`` of the one document that is printed."""
    try:
        models._have_served(config, "acme/x", action, document={"schema": "x"})
        code = 0
    except typer.Exit as end:
        code = end.exit_code
    document = json.loads(capsys.readouterr().out)
    assert document["schema"] == "x"
    assert (code != 0) == isinstance(document["daemon"], dict)
    return document["daemon"]


def test_a_daemon_of_this_store_loads_it(
    config: AgentConfig, owner: Owner, capsys: pytest.CaptureFixture[str]
) -> None:
    assert told(config, capsys) == "served"
    assert owner.asked == [("POST", "/v2/repository/models/acme/x/load", {})]


def test_what_apply_said_is_said_again(
    config: AgentConfig, owner: Owner, capsys: pytest.CaptureFixture[str]
) -> None:
    owner.desired = {"models": []}
    assert told(config, capsys) == "served"
    assert owner.asked == [("PUT", "/desired", {"models": []})]


def test_a_daemon_of_another_store_is_let_be(
    config: AgentConfig, owner: Owner, capsys: pytest.CaptureFixture[str]
) -> None:
    owner.state_dir = "/var/lib/edge-agent"
    assert told(config, capsys) is None
    assert owner.asked == []


def test_what_it_refuses_is_told_in_the_same_document(
    config: AgentConfig, owner: Owner, capsys: pytest.CaptureFixture[str]
) -> None:
    owner.answers["POST"] = raising(errors.UnavailableError("no", hint="wait"))
    error = told(config, capsys)["error"]
    assert error == {"kind": "UnavailableError", "exit_code": 5, "message": "no", "hint": "wait"}


def test_a_step_that_failed_is_no_success(
    config: AgentConfig, owner: Owner, capsys: pytest.CaptureFixture[str]
) -> None:
    owner.desired = {"models": []}
    owner.answers["PUT"] = lambda: {"steps": [DONE, DONE | {"error": "is broken"}]}
    error = told(config, capsys)["error"]
    assert error["message"] == "the daemon can't load acme/x: is broken"


def test_what_was_not_served_need_not_be_unloaded(
    config: AgentConfig, owner: Owner, capsys: pytest.CaptureFixture[str]
) -> None:
    owner.answers["POST"] = raising(errors.ModelNotFoundError("none"))
    assert told(config, capsys, "unload") == "served"
    assert told(config, capsys, "load")["error"]["kind"] == "ModelNotFoundError"


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
    assert told(config, capsys) is None
    admin_socket.have_reloaded(config.admin_socket)
    assert capsys.readouterr().err == ""
