"""A model that never answers ends the command, not the author's patience."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.agent.endless import endless_model

from .conftest import Publisher, Run

SCRIPT = """
import sys
from edge_agent.cli import watchdog
watchdog.STEP_TIMEOUT_S = 0.5
with watchdog.watched("answering") as step:
    for turn in range({turns}):
        import time
        time.sleep(0.2)
        step(turn + 1, {steps})
    time.sleep({last})
print("done")
"""


@pytest.mark.parametrize(
    ("turns", "steps", "last", "code"), [(5, 6, 0, 0), (2, 6, 30, 5), (2, 2, 2, 0)]
)
def test_a_step_has_a_deadline(run: Run, turns: int, steps: int, last: int, code: int) -> None:
    """Together the steps may take longer, and so may what comes after the last."""
    done = run(script=SCRIPT.format(turns=turns, steps=steps, last=last))
    assert done.code == code
    assert ("done" in done.out) == (code == 0)
    assert ("answering: one input took longer than 0.5 s: gave up" in done.err) == (code == 5)


def test_an_engine_that_never_answers_is_left(
    run: Run, publisher: Publisher, tmp_path: Path
) -> None:
    """The engine holds no lock of the interpreter while it runs."""
    shutil.rmtree(publisher.bundle / "signatures")
    publisher.put("weights/model.onnx", endless_model())
    before = {p: p.read_bytes() for p in publisher.bundle.rglob("*") if p.is_file()}
    script = (
        "import sys; from edge_agent.cli import watchdog, main; watchdog.STEP_TIMEOUT_S = 3.0; "
        "sys.argv[1:] = ['bundle', 'golden', './bundle', 'green.png']; main.main()"
    )
    (tmp_path / "green.png").write_bytes((publisher.bundle / "golden/green.png").read_bytes())
    done = run(script=script)
    assert (done.code, "gave up" in done.err) == (5, True), done.err
    assert {p: p.read_bytes() for p in publisher.bundle.rglob("*") if p.is_file()} == before
