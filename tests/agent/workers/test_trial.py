"""A model is tried in a process that nobody else needs."""

from __future__ import annotations

import msgspec
import pytest

from edge_agent.errors import GoldenMismatchError, WorkerFailedError
from edge_agent.workers.settings import WorkerSettings
from edge_agent.workers.trial import trial
from edge_agent.workers.work import Loaded, ModelFiles
from tests.agent import models

from .daemon_side import LOOPS, SETTINGS, Loop, children, close, model_files, run, scripted


async def tried(settings: WorkerSettings, files: ModelFiles, timeout_s: float = 20.0) -> Loaded:
    try:
        return await trial(settings, files, timeout_s)
    finally:
        close(files)
        assert children() == ""


@pytest.mark.parametrize("loop", LOOPS)
def test_a_model_that_does_well(loop: Loop) -> None:
    loaded = run(tried(SETTINGS, model_files(models.COLOUR)), loop)
    assert loaded.engine_version.startswith("onnxruntime")
    assert loaded.run_ms > 0


def test_a_model_that_answers_wrongly() -> None:
    wrong = models.changed(models.COLOUR, "golden.top.index", 2)
    with pytest.raises(GoldenMismatchError):
        run(tried(SETTINGS, model_files(wrong)), LOOPS[0])


@pytest.mark.parametrize(
    ("code", "message"),
    [("kill(11)", "SIGSEGV"), ("time.sleep(60)", "took longer than 0.2 s for loading a model")],
)
def test_a_model_that_ends_its_process(stand_in: WorkerSettings, code: str, message: str) -> None:
    timeout_s = 0.2 if "sleep" in code else 20.0
    with pytest.raises(WorkerFailedError, match=message):
        run(tried(stand_in, scripted("m", code), timeout_s), LOOPS[0])


def test_an_engine_that_does_not_start(stand_in: WorkerSettings) -> None:
    settings = msgspec.structs.replace(stand_in, engine="sys.exit(4)")
    with pytest.raises(WorkerFailedError, match="exit code 4"):
        run(tried(settings, scripted("m")), LOOPS[0])
