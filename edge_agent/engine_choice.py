"""Which engine runs a bundle on this machine: the one that measured fastest and answers right."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from time import perf_counter
from typing import TYPE_CHECKING, Final, NamedTuple

from msgspec import Struct

from edge_agent.errors import AgentError, EngineUnavailableError

if TYPE_CHECKING:
    from pathlib import Path

    from edge_agent.types import Tensor

BUDGET_MS: Final = 300.0
_MAX_RUNS: Final = 20
_SCHEMA: Final = "edge-agent/engine-choice/v1"
_MAX_FILE_BYTES: Final = 64 * 1024


class Probe(NamedTuple):
    """One inference and the judgement of its answer; only the first is timed.

    Attributes:
        run: Runs the engine once.
        wrong: Says what is wrong with the outputs, or None.
    """

    run: Callable[[], Mapping[str, Tensor]]
    wrong: Callable[[Mapping[str, Tensor]], str | None]


class Measurement(Struct, frozen=True):
    """What the probe found for one engine.

    Attributes:
        engine: Its name.
        run_ms: Median of one inference in milliseconds, None where it can't be used.
        problem: Why it can't be used, None where it can.
    """

    engine: str
    run_ms: float | None
    problem: str | None = None


def measure(engine: str, load: Callable[[], Probe], share_ms: float) -> Measurement:
    """Times an engine.

    Args:
        engine: Its name.
        load: Loads the model and returns the probe.
        share_ms: Runs stop before the one that would pass this. An engine can't be interrupted
            while it loads or runs, so one run always happens, and loading doesn't count.

    Returns:
        The median of the runs after the first, or the first where there was time for one only.
    """
    try:
        probe = load()
        times: list[float] = []
        while len(times) <= _MAX_RUNS and (not times or sum(times) + times[-1] <= share_ms):
            started = perf_counter()
            outputs = probe.run()
            times.append((perf_counter() - started) * 1e3)
            problem = probe.wrong(outputs)
            if problem:
                return Measurement(engine, None, f"wrong answer to the golden input: {problem}")
    except AgentError as error:
        return Measurement(engine, None, str(error))
    warm = sorted(times[1:] or times)
    return Measurement(engine, warm[len(warm) // 2])


def fastest(measured: Sequence[Measurement]) -> str:
    """Returns the engine with the smallest time; the earlier one where two are equal.

    Raises:
        EngineUnavailableError: None can be used; the message has every reason.
    """
    usable = [one for one in measured if one.run_ms is not None]
    if not usable:
        reasons = "; ".join(f"{one.engine}: {one.problem}" for one in measured)
        raise EngineUnavailableError(
            f"no engine can run this bundle here ({reasons})",
            hint="edge-agent doctor shows what is missing",
        )
    return min(usable, key=lambda one: one.run_ms or 0.0).engine


class ChoiceMemory:
    """Remembers choices in one small file a bundle; a damaged file counts as nothing remembered."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def recall(self, bundle_digest: str, fingerprint: str) -> str | None:
        """Returns the engine that was chosen for these bytes on this machine, if any."""
        try:
            with open(self._file(bundle_digest), "rb") as stream:
                value = json.loads(stream.read(_MAX_FILE_BYTES))
            if value["schema"] == _SCHEMA and value["fingerprint"] == fingerprint:
                engine = value["engine"]
                return engine if isinstance(engine, str) else None
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            return None
        return None

    def remember(
        self, bundle_digest: str, fingerprint: str, engine: str, run_ms: Mapping[str, float]
    ) -> None:
        """Keeps a choice.

        Raises:
            OSError: The folder can't be written.
        """
        from edge_signing.durable import write_durably

        # Each with its mode: `parents` would leave the state folder open to everybody.
        self._directory.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._directory.mkdir(mode=0o700, exist_ok=True)
        value = {
            "schema": _SCHEMA,
            "fingerprint": fingerprint,
            "engine": engine,
            "run_ms": {name: round(ms, 3) for name, ms in run_ms.items()},
        }
        write_durably(self._file(bundle_digest), json.dumps(value, indent=1).encode(), 0o600)

    def _file(self, bundle_digest: str) -> Path:
        return self._directory / (bundle_digest.removeprefix("sha256:") + ".json")
