"""One trial: a model on one engine in a fresh process, from its start to the last warm answer."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct


class TrialRequest(Struct, frozen=True):
    """What a trial is to measure.

    Attributes:
        model: As `subjects.open_subject` takes it.
        engine: The engine.
        sample: File of one sample input, None for the golden input, or else a blank one.
        warm_up: Answers that aren't counted, after the first.
        runs: Answers that are.
        spawned_ns: The monotonic clock when the process was started.
    """

    model: str
    engine: str
    sample: str | None
    warm_up: int
    runs: int
    spawned_ns: int


_Mebibytes = Annotated[float, Meta(ge=0)]


class Memory(Struct, frozen=True):
    """Resident memory of the process, in MiB.

    Attributes:
        before: With the engine's library, before the model is loaded.
        loaded: With the loaded model.
        peak: The most that it ever was from then on.
    """

    before: _Mebibytes
    loaded: _Mebibytes
    peak: _Mebibytes

    @property
    def session(self) -> float:
        """What the model needs at most: `contract.memory_mib` speaks of it."""
        return self.peak - self.before


class Trial(Struct, frozen=True):
    """What a trial found; or ``error``, where it failed.

    Attributes:
        cold_ms: Milliseconds by stage. ``start``: to the agent's first line of work; ``open``:
            every signature and digest; ``read``: the input's file, and NumPy; ``load``: the
            engine's library and the session; ``first``: the first answer, with decoding and
            post-processing; ``total``: all of them.
        warm_ms: Milliseconds of each run by stage. ``prepare``: decoding and pre-processing;
            ``infer``: the engine; ``answer``: post-processing; ``total``: all three.
        memory: None where the system doesn't say.
        sample: What it ran on: a file's name, ``golden`` or ``blank``.
        wrong: What is wrong with the answer to the golden input, None where it is right or wasn't
            asked for.
        threads: Threads of the engine.
        version: The engine's package and version.
        error: Why there is no figure.
    """

    cold_ms: dict[str, float] = {}
    warm_ms: dict[str, list[float]] = {}
    memory: Memory | None = None
    sample: str = ""
    wrong: str | None = None
    threads: int = 0
    version: str = ""
    error: str | None = None
