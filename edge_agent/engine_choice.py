"""Which engine runs a bundle on this machine: the one that measured fastest and answers right."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from time import perf_counter
from typing import TYPE_CHECKING, Annotated, Final, Literal, NamedTuple

import msgspec
from msgspec import Meta, Struct

from edge_agent.errors import (
    AgentError,
    ConfigError,
    EngineUnavailableError,
    GoldenMismatchError,
    ModelFileError,
)
from edge_agent.files import read_regular
from edge_agent.ownership import private_folder, require_ours

if TYPE_CHECKING:
    from pathlib import Path

    from edge_agent.types import Tensor

BUDGET_MS: Final = 300.0
_MAX_RUNS: Final = 20
_NOISE: Final = 1.1
_MAX_FINGERPRINTS: Final = 8
_MAX_FILE_BYTES: Final = 64 * 1024


_RunMs = dict[str, Annotated[float, Meta(ge=0)] | None]


class _Kept(Struct, frozen=True, forbid_unknown_fields=True):
    """By fingerprint, the newest last: threads or engine packages may change to and fro."""

    by_fingerprint: dict[str, _RunMs]
    schema: Literal["edge-agent/engine-choice/v1"] = "edge-agent/engine-choice/v1"


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
        error: Why it can't be used, None where it can.
    """

    engine: str
    run_ms: float | None
    error: AgentError | None = None

    @property
    def is_lasting(self) -> bool:
        """Whether it speaks of the model; a lack of memory or of a library may pass."""
        return self.error is None or isinstance(self.error, GoldenMismatchError | ModelFileError)

    @property
    def problem(self) -> str | None:
        """The error in words."""
        return None if self.error is None else str(self.error)


def measure(engine: str, load: Callable[[], Probe], share_ms: float) -> Measurement:
    """Times an engine.

    Args:
        engine: Its name.
        load: Loads the model and returns the probe.
        share_ms: Runs stop before the one that would pass this. An engine can't be interrupted
            while it loads or runs, so one run always happens, and loading doesn't count.

    Returns:
        The median of the runs after the first, or the first where there was time for one only.

    Raises:
        GoldenMismatchError: The answer is wrong.
        AgentError: What loading or running raised.
    """
    probe = load()
    times: list[float] = []
    while len(times) <= _MAX_RUNS and (not times or sum(times) + times[-1] <= share_ms):
        started = perf_counter()
        outputs = probe.run()
        times.append((perf_counter() - started) * 1e3)
        problem = probe.wrong(outputs)
        if problem:
            raise GoldenMismatchError(
                f"wrong answer to the golden input on {engine}: {problem}",
                hint="the bundle can't be used with this engine on this machine",
            )
    warm = sorted(times[1:] or times)
    return Measurement(engine, warm[len(warm) // 2])


def fastest(measured: Sequence[Measurement]) -> str:
    """Returns the first engine that is at most 10 % slower than the fastest: noise decides nothing.

    Raises:
        AgentError: None can be used; the message has every reason. The kind is that of the
            reasons where they agree, else `EngineUnavailableError`.
    """
    usable = [one for one in measured if one.run_ms is not None]
    if not usable:
        reasons = "; ".join(f"{one.engine}: {one.problem}" for one in measured)
        kinds = {type(one.error) for one in measured if one.error}
        kind = kinds.pop() if len(kinds) == 1 else EngineUnavailableError
        missing = kind is EngineUnavailableError
        raise kind(
            f"no engine can run this bundle here ({reasons})",
            hint="edge-agent doctor shows what is missing" if missing else None,
        )
    limit_ms = min(one.run_ms or 0.0 for one in usable) * _NOISE
    return next(one.engine for one in usable if (one.run_ms or 0.0) <= limit_ms)


class ChoiceMemory:
    """Remembers what was measured, one small file a bundle; a damaged one counts as none."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def recall(self, bundle_digest: str, fingerprint: str) -> dict[str, float | None]:
        """Returns what was measured for these bytes on this machine.

        Returns:
            Milliseconds by engine; None for an engine that can't be used.
        """
        return self._read(bundle_digest).get(fingerprint, {})

    def remember(
        self, bundle_digest: str, fingerprint: str, measured: Sequence[Measurement]
    ) -> None:
        """Keeps what was measured, beside what is known of other engines.

        Raises:
            OSError: The folder can't be written.
        """
        from edge_signing.durable import write_durably

        private_folder(self._directory.parent, 0o700)
        private_folder(self._directory, 0o700)
        kept = self._read(bundle_digest)
        lasting = [one for one in measured if one.is_lasting]
        known = kept.pop(fingerprint, {}) | {one.engine: one.run_ms for one in lasting}
        newest = dict([*kept.items(), (fingerprint, known)][-_MAX_FINGERPRINTS:])
        write_durably(self._file(bundle_digest), msgspec.json.encode(_Kept(newest)), 0o600)

    def _read(self, bundle_digest: str) -> dict[str, _RunMs]:
        file = self._file(bundle_digest)
        try:
            for place in (self._directory.parent, self._directory, file):
                require_ours(place)  # who writes here decides which engine needs no golden check
            data = read_regular(file, _MAX_FILE_BYTES)
            return msgspec.json.decode(data, type=_Kept).by_fingerprint
        except (ConfigError, OSError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return {}

    def _file(self, bundle_digest: str) -> Path:
        return self._directory / (bundle_digest.removeprefix("sha256:") + ".json")
