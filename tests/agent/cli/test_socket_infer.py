"""`infer` through the daemon: what it asks, prints, and when it answers by itself."""

from __future__ import annotations

import json
import socket
from io import BytesIO
from pathlib import Path
from typing import Any, ClassVar

import pytest

from edge_agent.cli import http_socket, infer_here, main, socket_infer
from edge_agent.cli.infer_options import InferOptions
from edge_agent.socket_places import runtime_dirs

from .stand_in import DOCUMENT, StandIn, answer, daemon

OK = answer(DOCUMENT)


class Here:
    """Stands for this process's own model."""

    max_bytes = 1 << 20
    asked: ClassVar[list[tuple[str, bytes]]] = []

    def __init__(self, options: InferOptions) -> None:
        type(self).asked = []

    def answer(self, source: str, image: bytes) -> dict[str, Any]:
        self.asked.append((source, image))
        return {**DOCUMENT, "input": source, "answered_by": "here"}

    def close(self) -> None:
        pass


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with two images, and a model of this process's own that needs no engine."""
    monkeypatch.setattr(infer_here, "Here", Here)
    monkeypatch.setattr(Here, "asked", [])
    monkeypatch.delenv("EDGE_AGENT_ENGINE", raising=False)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.jpg").write_bytes(b"first")
    (tmp_path / "b.jpg").write_bytes(b"second")
    return tmp_path


def infer(stand_in: StandIn, monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setenv("EDGE_AGENT_RUNTIME_DIR", str(stand_in.folder))
    return main.guarded(["infer", *arguments])


def test_asks_once_an_image_over_one_connection(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with daemon(OK, OK) as stand_in:
        assert infer(stand_in, monkeypatch, "a.jpg", "b.jpg", "--top-k", "2") == 0
    target = "/infer/demo/efficientnet-lite0?top_k=2"
    assert stand_in.asked == [(target, b"first", 0), (target, b"second", 0)]
    assert capsys.readouterr().out.splitlines()[:3] == [
        "a.jpg  (demo/efficientnet-lite0 1.0.0, onnx, 25.6 ms, by the daemon)",
        "  espresso    0.949",
        "  coffee mug  0.013",
    ]


def test_document_is_the_daemons_with_the_input(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with daemon(OK) as stand_in:
        assert infer(stand_in, monkeypatch, "a.jpg", "--json") == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed == {**DOCUMENT, "input": "a.jpg", "answered_by": "daemon"}


def test_raw_outputs_and_unsure_answers(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    output = {"name": "y", "dtype": "float32", "shape": [1, 9], "data": [0.5, None, *range(7)]}
    raw = {**DOCUMENT, "labels": [], "outputs": [output], "confident": None}
    unsure = {**DOCUMENT, "confident": False}
    with daemon(answer(raw), answer(unsure)) as stand_in:
        assert infer(stand_in, monkeypatch, "a.jpg", "b.jpg") == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[1] == "  y  float32 [1, 9]: 0.5 null 0 1 2 3 4 5 …"
    assert lines[-1] == "  (below the model's min_confidence)"


@pytest.mark.parametrize(
    ("model", "target"),
    [
        ("acme/x@1.0.0", "/infer/acme/x@1.0.0"),
        ("acme/x y?z#%", "/infer/acme/x%20y%3Fz%23%25"),
        ("é\r\nHost: evil", "/infer/%C3%A9%0D%0AHost%3A%20evil"),
    ],
)
def test_model_is_a_part_of_the_path(
    model: str, target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with daemon(OK) as stand_in:
        assert infer(stand_in, monkeypatch, "a.jpg", "--model", model) == 0
    assert [one.target for one in stand_in.asked] == [target]


@pytest.mark.parametrize(
    ("status", "kind", "code"),
    [
        (400, "BadInputError", 4),
        (413, "BadInputError", 4),
        (415, "ImageError", 4),
        (429, "OverloadedError", 5),
        (500, "EngineFailedError", 5),
        (503, "OverloadedError", 5),
        (504, "DeadlineExceededError", 5),
    ],
)
def test_refusals_are_the_errors_that_this_process_has(
    status: int,
    kind: str,
    code: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    said = {"error": "no \x1b[31m answer", "kind": "OverloadedError" if status == 503 else "X"}
    with daemon(answer(said, status, Retry_After="3")) as stand_in:
        assert infer(stand_in, monkeypatch, "a.jpg", "--json") == code
    printed = capsys.readouterr()
    error = json.loads(printed.out)["error"]
    assert (error["kind"], error["exit_code"]) == (kind, code)
    assert "no \\x1b[31m answer" in printed.err
    assert Here.asked == []


def test_error_is_of_the_kind_that_the_daemon_names(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    named = {"error": "is cut off", "kind": "ImageError", "hint": "send all of it"}
    answers = [answer(named, 400), answer({"kind": "StoreError"}, 400), answer({"kind": 5}, 415)]
    answers.append(answer({"kind": "WorkerFailedError"}, 500))
    with daemon(*answers) as stand_in:
        assert infer(stand_in, monkeypatch, *["a.jpg"] * 4, "--json") == 5
    printed = capsys.readouterr()
    kinds = [json.loads(line)["error"]["kind"] for line in printed.out.splitlines()]
    assert kinds == ["ImageError", "BadInputError", "ImageError", "WorkerFailedError"]
    assert "a.jpg: is cut off" in printed.err
    assert "hint: send all of it" in printed.err


def test_bad_image_stops_no_other(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with daemon(answer({"error": "is cut off"}, 400), OK) as stand_in:
        assert infer(stand_in, monkeypatch, "a.jpg", "nowhere.jpg", "b.jpg") == 4
    printed = capsys.readouterr()
    assert "b.jpg  (demo" in printed.out
    assert "nowhere.jpg: can't be read" in printed.err


def test_overload_ends_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    with daemon(answer({"kind": "OverloadedError"}, 503), OK) as stand_in:
        assert infer(stand_in, monkeypatch, "a.jpg", "b.jpg") == 5
    assert len(stand_in.asked) == 1


@pytest.mark.parametrize(
    "cant",
    [
        answer({"error": "no such model"}, 404),
        answer({"error": "loading"}, 503),
        answer({"kind": "ModelNotReadyError"}, 503, Retry_After="1"),
        answer({"error": "no"}, 403),
        b"",
    ],
)
def test_this_process_answers_what_the_daemon_cant(
    cant: bytes, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with daemon(cant) as stand_in:
        assert infer(stand_in, monkeypatch, "a.jpg", "b.jpg", "--json") == 0
    assert Here.asked == [("a.jpg", b"first"), ("b.jpg", b"second")]
    printed = capsys.readouterr()
    assert printed.err == ""
    assert [json.loads(line)["answered_by"] for line in printed.out.splitlines()] == ["here"] * 2


def test_daemon_that_goes_meanwhile_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    with daemon(OK) as stand_in:
        assert infer(stand_in, monkeypatch, "a.jpg", "b.jpg") == 0
    assert [one.connection for one in stand_in.asked] == [0, 0, 1]
    assert Here.asked == [("b.jpg", b"second")]


def test_connection_that_ended_idle_is_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    with daemon(answer(DOCUMENT, Connection="close"), OK) as stand_in:
        assert infer(stand_in, monkeypatch, "a.jpg", "b.jpg") == 0
    assert Here.asked == []


def test_early_refusal_of_a_large_image_is_read(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "a.jpg").write_bytes(bytes(4 << 20))
    with daemon(answer({"error": "is larger than 1 MiB"}, 413), reads=False) as stand_in:
        assert infer(stand_in, monkeypatch, "a.jpg") == 4
    assert "a.jpg: is larger than 1 MiB" in capsys.readouterr().err


@pytest.mark.parametrize(
    "odd",
    [
        b"SSH-2.0-OpenSSH_9.2\r\n\r\n",
        b"HTTP/1.1 100 Continue\r\n\r\n" + OK,
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n\r\n{}",
        b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 999999999\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n{}",
        b"HTTP/1.1 200 OK\r\nX: " + b"x" * (1 << 17),
        OK[:-3],
        OK[:20],
        answer([]),
        answer({"schema": "edge-agent/infer/v2"}),
    ],
)
def test_odd_answers_are_an_error(
    odd: bytes, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with daemon(odd, reads=False) as stand_in:
        assert infer(stand_in, monkeypatch, "a.jpg") == 5
    assert "the daemon's answer" in capsys.readouterr().err
    assert Here.asked == []


def test_daemon_that_hangs_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(http_socket, "ANSWER_S", 0.02)
    with socket.socket(socket.AF_UNIX) as mute:
        mute.bind("data.sock")
        mute.listen()
        monkeypatch.setenv("EDGE_AGENT_RUNTIME_DIR", ".")
        assert main.guarded(["infer", "a.jpg"]) == 5
    assert "didn't answer within" in capsys.readouterr().err


@pytest.mark.parametrize("own", ["own", "dead"])
def test_the_systems_daemon_answers_where_this_user_has_none(
    own: str, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "dead" / "edge-agent").mkdir(parents=True)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("dead/edge-agent/data.sock")  # and nobody listens
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    monkeypatch.delenv("EDGE_AGENT_RUNTIME_DIR", raising=False)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(folder / own))
    with daemon(OK) as stand_in:
        monkeypatch.setattr("edge_agent.socket_places.SYSTEM", str(stand_in.folder))
        assert main.guarded(["infer", "a.jpg"]) == 0
    assert "by the daemon" in capsys.readouterr().out


def test_this_users_daemon_goes_first(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    own = {"XDG_RUNTIME_DIR": "/run/user/1000"}
    assert runtime_dirs(own) == ("/run/user/1000/edge-agent", "/run/edge-agent")
    assert runtime_dirs(own | {"EDGE_AGENT_RUNTIME_DIR": "/x"}) == ("/x",)
    assert runtime_dirs({"XDG_RUNTIME_DIR": "relative"}) == ("/run/edge-agent",)
    monkeypatch.setattr("os.geteuid", lambda: 0)
    assert runtime_dirs(own) == ("/run/edge-agent",)


@pytest.mark.parametrize("place", ["nowhere", "file", "dead", "x" * 200])
def test_no_daemon(
    place: str, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "file").mkdir()
    (folder / "file" / "data.sock").write_text("no socket")
    (folder / "dead").mkdir()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("dead/data.sock")  # and nobody listens
    monkeypatch.setenv("EDGE_AGENT_RUNTIME_DIR", place)
    assert main.guarded(["infer", "a.jpg"]) == 0
    printed = capsys.readouterr()
    assert (printed.err, "by the daemon" in printed.out) == ("", False)


@pytest.mark.parametrize(
    "options",
    [
        InferOptions(("a.jpg",), model="./bundle"),
        InferOptions(("a.jpg",), model="/bundle"),
        InferOptions(("a.jpg",), model="bundle.tar"),
        InferOptions(("a.jpg",), model=""),
        InferOptions(("a.jpg",), model="acme/x@"),
        InferOptions(("a.jpg",), engine="onnx"),
        InferOptions((), inputs=("a=b.npy",)),
    ],
)
def test_what_is_left_to_this_process(
    options: InferOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    with daemon() as stand_in:
        monkeypatch.setenv("EDGE_AGENT_RUNTIME_DIR", str(stand_in.folder))
        assert socket_infer.reach(options) is None


def test_engine_in_the_environment_is_a_choice_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EDGE_AGENT_ENGINE", "tflite")
    with daemon(OK) as stand_in:
        assert infer(stand_in, monkeypatch, "a.jpg") == 0
    assert (stand_in.asked, Here.asked) == ([], [("a.jpg", b"first")])


def test_what_was_read_of_standard_input_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """An image that is too large for the thin client, and one that the daemon has no model for."""

    class Input:
        buffer = BytesIO(b"0123456789")

    monkeypatch.setattr("sys.stdin", Input)
    monkeypatch.setattr(socket_infer, "MAX_IMAGE_BYTES", 4)
    with daemon() as stand_in:
        assert infer(stand_in, monkeypatch, "-") == 0
    assert Here.asked == [("-", b"0123456789")]
    Input.buffer = BytesIO(b"012")
    with daemon(answer({}, 404)) as stand_in:
        assert infer(stand_in, monkeypatch, "-") == 0
    assert Here.asked == [("-", b"012")]
