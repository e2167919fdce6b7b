"""What trust costs: one shot, in a warm process, and verification, each against bare code.

    .venv/bin/python benchmarks/one_shot.py [--json FILE] [--runs N]

Ratios are of medians of interleaved runs in one go.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

from report import Row, publish

ROOT = Path(__file__).parents[1]
BARE = ROOT / "benchmarks" / "bare_infer.py"
COFFEE = ROOT / "photos" / "coffee.png"
PACKAGES = ["edge-agent", "numpy", "onnxruntime", "ai-edge-litert", "pillow", "pynacl", "typer"]


def interleaved(works: list[Callable[[], Any]], runs: int) -> list[float]:
    """Returns the median time of each in milliseconds; the first round doesn't count."""
    times: list[list[float]] = [[] for _ in works]
    for turn in range(runs + 1):
        for work, taken in zip(works, times, strict=True):
            started = perf_counter()
            work()
            if turn:
                taken.append((perf_counter() - started) * 1e3)
    return [median(taken) for taken in times]


def one_shot(folder: Path, runs: int) -> list[Row]:
    """Whole commands, from start to exit."""
    frame = folder / "frame.jpg"
    camera_frame().save(frame, quality=90)
    agent = Path(sys.executable).with_name("edge-agent")
    rows = []
    for name, image in (("", COFFEE), ("_jpeg_1280x960", frame)):

        def command(*words: str | Path) -> Callable[[], Any]:
            return lambda: subprocess.run(words, check=True, capture_output=True)

        def asked_anew(*words: str | Path) -> Callable[[], Any]:
            """Looks in the cache, finds nothing, and keeps the answer."""
            classes = count(5)
            return lambda: command(*words, "--top-k", str(next(classes)))()

        bare, ours, auto, alone, again = interleaved(
            [
                command(sys.executable, BARE, image),
                asked_anew(agent, "infer", image, "--engine", "onnx"),
                asked_anew(agent, "infer", image),
                command(agent, "infer", image, "--engine", "onnx", "--no-cache"),
                command(agent, "infer", image, "--engine", "onnx"),
            ],
            runs,
        )
        rows += [
            Row(f"one_shot.wall_ratio{name}", ours / bare, "ratio", "bar 1.3"),
            Row(
                f"one_shot.wall_ratio_auto{name}", auto / bare, "ratio", "the engine that auto took"
            ),
            Row(f"one_shot.bare_ms{name}", bare, "ms"),
            Row(f"one_shot.agent_ms{name}", ours, "ms"),
            Row(f"one_shot.no_cache_ms{name}", alone, "ms"),
            Row(f"one_shot.cached_ms{name}", again, "ms"),
        ]
    return rows


def in_process(runs: int) -> list[Row]:
    """Decoding and inference, everything loaded and warm."""
    import bare_infer
    from msgspec import structs

    from edge_agent import config
    from edge_agent.app import Agent
    from edge_agent.references import DEMO_NAME
    from edge_agent.types import Request

    buffer = io.BytesIO()
    camera_frame().save(buffer, "JPEG", quality=90)
    data = buffer.getvalue()
    session, labels = bare_infer.session(), bare_infer.labels()

    def bare() -> list[tuple[str, float]]:
        tensor = bare_infer.prepare(io.BytesIO(data))
        return bare_infer.best(session.run(None, {"input": tensor})[0][0], labels)

    agent = Agent(structs.replace(config.load(), engine="onnx"), print)
    runtime = agent.runtime()
    request = Request(DEMO_NAME, "frame.jpg", data)
    slow, fast = interleaved([lambda: runtime.infer(request), bare], runs * 10)
    return [
        Row("inprocess.p50_ratio", slow / fast, "ratio", "bar 1.15"),
        Row("inprocess.bare_p50_ms", fast, "ms"),
        Row("inprocess.agent_p50_ms", slow, "ms"),
    ]


def verification(folder: Path, runs: int) -> list[Row]:
    """A 100 MB bundle, against SHA-256 alone over the same files."""
    from edge_signing.bundle import sign_directory, verify
    from edge_signing.ed25519 import PrivateKey
    from edge_signing.keyring import Keyring
    from edge_signing.sources import open_source
    from edge_signing.trust import Purpose

    bundle = folder / "bundle"
    bundle.mkdir()
    for index in range(4):
        (bundle / f"weights-{index}.bin").write_bytes(os.urandom(25_000_000))
    key = PrivateKey.generate()
    sign_directory(bundle, "bench/large", key)
    ring = Keyring().with_key(key.public).with_rule("bench/*", [key.public.keyid])
    now = datetime.now(UTC)

    def trusted() -> None:
        with open_source(bundle) as source:
            verify(source, ring, now, Purpose.LOAD)

    def hashed() -> None:
        for file in bundle.glob("*.bin"):
            with open(file, "rb") as stream:
                hashlib.file_digest(stream, "sha256")

    ours, bare = interleaved([trusted, hashed], runs)
    return [
        Row("verify.ratio_to_sha256", ours / bare, "ratio", "bar 1.5"),
        Row("verify.sha256_ms", bare, "ms"),
        Row("verify.agent_ms", ours, "ms"),
    ]


def camera_frame() -> Any:
    """A picture of a camera's size."""
    from PIL import Image

    photo = Image.open(COFFEE).convert("RGB")
    return photo.resize((1440, 960)).crop((80, 0, 1360, 960))


def main() -> None:
    """Runs everything."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path, metavar="FILE")
    parser.add_argument("--runs", type=int, default=21)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # installed packages are compiled too
        os.environ["ORT_DISABLE_TELEMETRY"] = "1"  # as the agent does: for both
        os.environ["EDGE_AGENT_STATE_DIR"] = str(folder / "state")
        os.environ["EDGE_AGENT_CONFIG_DIR"] = str(folder / "config")
        rows = one_shot(folder, options.runs)
        rows += in_process(options.runs)
        rows += verification(folder, options.runs)
    publish(rows, PACKAGES, options.json)


if __name__ == "__main__":
    main()
