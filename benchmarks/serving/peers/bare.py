"""The bare loops, in a process of their own: ONNX Runtime alone, and Pillow before it.

python bare.py FRAMES_DIR: reads ``raw SECONDS`` or ``jpeg SECONDS`` lines, answers each with a JSON
list of how many nanoseconds each turn took. Each turn sees another input.
"""

from __future__ import annotations

import io
import itertools
import json
import sys
from collections.abc import Callable
from pathlib import Path
from time import perf_counter_ns
from typing import Any

import numpy as np
import onnxruntime as ort

sys.path.insert(0, str(Path(__file__).parents[2]))
import bare_infer

_TENSORS = 64


def works(frames: list[bytes]) -> dict[str, Callable[[], Any]]:
    """Returns what can be timed."""
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    session, labels = bare_infer.session(options), bare_infer.labels()
    noise = np.random.default_rng(2).random((_TENSORS, 1, 3, 224, 224), np.float32)
    tensors = itertools.cycle(noise * 1.9921875 - 0.9921875)
    files = itertools.cycle(frames)

    def raw() -> Any:
        return session.run(None, {"input": next(tensors)})

    def jpeg() -> Any:
        tensor = bare_infer.prepare(io.BytesIO(next(files)))
        return bare_infer.best(session.run(None, {"input": tensor})[0][0], labels)

    return {"raw": raw, "jpeg": jpeg}


def timed(work: Callable[[], Any], seconds: float) -> list[int]:
    """Returns how long each turn took, in nanoseconds."""
    taken = []
    now = perf_counter_ns()
    end = now + int(seconds * 1e9)
    while now < end:
        started = now
        work()
        now = perf_counter_ns()
        taken.append(now - started)
    return taken


def main() -> None:
    known = works([file.read_bytes() for file in sorted(Path(sys.argv[1]).iterdir())])
    for line in sys.stdin:
        name, seconds = line.split()
        print(json.dumps(timed(known[name], float(seconds))), flush=True)


if __name__ == "__main__":
    main()
