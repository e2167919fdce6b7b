"""What a fault tells: enough to find it, nothing of what was asked."""

from __future__ import annotations

import pytest

from edge_agent.workers.child import batches


def convert(value: str) -> int:
    return int(value)


def test_a_fault_quotes_no_input(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ValueError, match="secret") as caught:
        convert("secret")
    failure = batches.failure(caught.value)
    told = capsys.readouterr().err
    assert "secret" not in told + failure.message
    assert failure.kind == "EngineFailedError"
    assert failure.message == "a fault in the worker: ValueError"
    *_, place, last = told.splitlines()
    assert place.endswith(" convert")
    assert last == failure.message


def test_a_log_that_nobody_reads_is_no_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    class Full:
        def write(self, text: str) -> int:
            raise BlockingIOError

    monkeypatch.setattr("sys.stderr", Full())
    assert batches.failure(KeyError("secret")).message == "a fault in the worker: KeyError"
