"""Lines of the log: their form, their bounds, and what never gets in."""

from __future__ import annotations

import io
import json
import logging
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edge_agent.errors import WorkerFailedError
from edge_agent.telemetry import logs

log = logging.getLogger("edge_agent.test")


@pytest.fixture
def stream() -> Iterator[io.StringIO]:
    """What is written, at level info; logging is put back as it was."""
    root, own = logging.getLogger(), logging.getLogger("edge_agent")
    handlers, levels = root.handlers[:], (root.level, own.level)
    written = io.StringIO()
    logs.start("info", written)
    yield written
    root.handlers[:] = handlers
    root.setLevel(levels[0])
    own.setLevel(levels[1])
    logging.captureWarnings(False)


def only(stream: io.StringIO) -> dict[str, Any]:
    (line,) = stream.getvalue().splitlines()
    document: dict[str, Any] = json.loads(line)
    return document


def test_form_of_a_line(stream: io.StringIO) -> None:
    log.warning("worker replaced", extra={"pid": 12, "reason": "hung", "is_last": False})
    line = only(stream)
    assert line.pop("time").endswith("Z")
    assert line == {
        "level": "warning",
        "logger": "edge_agent.test",
        "event": "worker replaced",
        "pid": 12,
        "reason": "hung",
        "is_last": False,
    }


def test_request_is_named_by_context_or_by_hand(stream: io.StringIO) -> None:
    token = logs.REQUEST_ID.set("of-context")
    log.error("x")
    log.error("x", extra={"request_id": "by-hand"})
    logs.REQUEST_ID.reset(token)
    log.error("x")
    lines = map(json.loads, stream.getvalue().splitlines())
    assert [one.get("request_id") for one in lines] == ["of-context", "by-hand", None]


def test_levels(stream: io.StringIO) -> None:
    log.debug("not wanted")
    logs.start("debug", stream)
    log.debug("wanted")
    assert only(stream)["event"] == "wanted"


@pytest.mark.parametrize(
    "value",
    [b"secret", bytearray(b"secret"), ["secret"], {"secret": 1}, np.full(3, 7.25), Path("secret")],
)
def test_only_plain_values_get_in(value: object, stream: io.StringIO) -> None:
    log.error("x", extra={"field": value})
    assert only(stream)["field"] == type(value).__name__


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf"), 1 << 9999])
def test_numbers_that_json_lacks_are_words(value: float, stream: io.StringIO) -> None:
    log.error("x", extra={"field": value})
    assert isinstance(only(stream)["field"], str)


def test_nothing_is_long(stream: io.StringIO) -> None:
    fields = {f"field{number}{'x' * 9999}": "y" * 9999 for number in range(999)}
    log.error("z" * 9999, extra={**fields, "request_id": "w" * 9999})
    assert len(stream.getvalue()) < 40_000


def test_control_characters_are_escaped(stream: io.StringIO) -> None:
    log.error("a\nb\x1b[31m\x7f\x9b\u202e", extra={"k\n": "\r\x00"})
    text = stream.getvalue()
    assert text.endswith("\n")
    assert text[:-1].isprintable()
    assert text.isascii()
    assert only(stream)["event"] == "a\nb\x1b[31m\x7f\x9b\u202e"


def test_fields_change_nothing_of_the_line_itself(stream: io.StringIO) -> None:
    log.error("x", extra={"level": "debug", "time": "never", "event": "y", "logger": "z"})
    line = only(stream)
    assert (line["level"], line["event"], line["logger"]) == ("error", "x", "edge_agent.test")


def test_error_of_ours_is_named_with_its_message(stream: io.StringIO) -> None:
    try:
        raise WorkerFailedError("it hung")
    except WorkerFailedError as error:
        log.warning("call failed", exc_info=error)
    assert only(stream)["error"] == {"kind": "WorkerFailedError", "message": "it hung"}


def test_message_of_a_fault_may_quote_an_input(stream: io.StringIO) -> None:
    try:
        int("the caller's secret")
    except ValueError as error:
        log.error("a fault", exc_info=error)
    told = only(stream)["error"]
    assert told["kind"] == "ValueError"
    assert told["places"][-1].endswith("test_message_of_a_fault_may_quote_an_input")
    assert "secret" not in stream.getvalue()


def test_message_that_does_not_fit_its_arguments() -> None:
    record = logging.makeLogRecord({"msg": "%d of %s", "args": ("x",)})
    assert json.loads(logs.JsonLines().format(record))["event"] == "%d of %s"


@pytest.mark.parametrize("level", ["debug", "info", "warning", "error"])
def test_other_libraries_warn_at_most(stream: io.StringIO, level: str) -> None:
    logs.start(level, stream)
    other = logging.getLogger("aiosqlite")
    other.debug("SELECT 1")
    other.info("opened")
    assert not stream.getvalue()
    other.warning("trouble")
    assert ("trouble" in stream.getvalue()) is (level != "error")


def test_nobody_reads(stream: io.StringIO) -> None:
    stream.close()
    log.error("x")


def test_journald_is_given_the_priority(
    stream: io.StringIO, monkeypatch: pytest.MonkeyPatch
) -> None:
    with tempfile.TemporaryFile("w+") as file:
        status = os.fstat(file.fileno())
        monkeypatch.setenv("JOURNAL_STREAM", f"{status.st_dev}:{status.st_ino}")
        logs.start("info", file)
        log.error("x")
        monkeypatch.setenv("JOURNAL_STREAM", "1:1")
        logs.start("info", file)
        log.error("y")
        file.seek(0)
        first, second = file
    assert first.startswith('<3>{"time"')
    assert second.startswith('{"time"')
