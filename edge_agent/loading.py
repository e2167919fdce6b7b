"""From a trusted bundle to a model that answers: choose an engine, hand it verified bytes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct

from edge_agent import golden
from edge_agent.engine_choice import BUDGET_MS, Measurement, Probe, fastest, measure
from edge_agent.errors import AgentError, EngineUnavailableError
from edge_agent.runtime import Later, LoadedModel
from edge_agent.types import Request

if TYPE_CHECKING:
    from edge_agent.backends.base import Backend, ModelFile, Session
    from edge_agent.bundles import Bundle, Contents
    from edge_agent.description import EngineFile, Layout, ModelDescription
    from edge_agent.engine_choice import ChoiceMemory
    from edge_agent.images import ImageLimits
    from edge_agent.pipeline import Pipeline
    from edge_agent.types import Tensor
    from edge_profiles.detect import Machine

Notify = Callable[[str], None]


class ModelLoader(Struct, frozen=True):
    """Loads bundles on this machine.

    Attributes:
        backends: The engines, by name.
        memory: What was measured before.
        machine: Says what it was measured on; asked only where a choice must be made.
        limits: The largest images that are taken.
        threads: Threads of an engine.
        notify: Told, in a sentence, of what takes time or could not be kept.
        order: Engines in this machine's order of preference; others follow in the publisher's.
    """

    backends: Mapping[str, Backend]
    memory: ChoiceMemory
    machine: Callable[[], Machine]
    limits: ImageLimits
    threads: int
    notify: Notify
    order: tuple[str, ...] = ()

    def load(self, bundle: Bundle, engine: str) -> LoadedModel:
        """Loads a bundle.

        The first time on this machine each engine must answer the golden input rightly.

        Args:
            bundle: A trusted one.
            engine: ``auto``, or the engine that must run it.

        Raises:
            EngineUnavailableError: The bundle has nothing for the engine, or no engine that is
                installed here can run it.
            GoldenMismatchError: The only engine answers the golden input wrongly.
            ModelFileError: The engine refuses the file. The session is made in a thread, so
                this may come from the model's first run instead.
        """
        parts = self._candidates(bundle, engine)
        known = self._recall(bundle, parts)
        if known is None and bundle.description.golden is None:
            known = self._without_golden(bundle, parts)
        return self._start(bundle, known) if known else self._choose(bundle, parts)

    def foreseen(self, bundle: Bundle, engine: str) -> str | None:
        """Returns which engine `load` will take, as far as that is known without importing any.

        Args:
            bundle: A trusted one.
            engine: As for `load`.

        Raises:
            EngineUnavailableError: The bundle has nothing for the engine.
        """
        parts = self._candidates(bundle, engine)
        known = self.memory.recall(bundle.ref.digest, self.fingerprint())
        chosen: str | None = None
        if all(part.engine in known for part in parts):
            measured = [Measurement(part.engine, known[part.engine]) for part in parts]
            usable = any(one.run_ms is not None for one in measured)
            chosen = fastest(measured) if usable else None
        elif bundle.description.golden is None:
            only = _incomparable(bundle, parts)
            chosen = only.engine if only else None
        return chosen if chosen and self.backends[chosen].stamp() else None

    def _measure_all(
        self, bundle: Bundle, parts: list[EngineFile], sessions: dict[str, Session]
    ) -> list[Measurement]:
        """Runs the bundle's probe on each engine, at most 300 ms in all beside the loading.

        Args:
            bundle: A trusted one.
            parts: The engines to try.
            sessions: Filled with the sessions that were made.
        """
        measured = []
        for part in parts:
            try:
                share_ms = BUDGET_MS / len(parts)
                measured.append(self._measure(bundle, part, share_ms, sessions))
            except AgentError as error:
                measured.append(Measurement(part.engine, None, error))
        return measured

    def check(self, bundle: Bundle) -> list[Measurement]:
        """Loads the bundle on every engine that this machine has, and runs its golden input.

        Returns:
            The problem of each engine; without a golden input the times are 0.
        """
        parts = self.usable_engines(bundle)
        if bundle.description.golden is not None:
            return self._measure_all(bundle, parts, {})
        return [self._loads(bundle, part) for part in parts]

    def _loads(self, bundle: Bundle, part: EngineFile) -> Measurement:
        try:
            self.session(bundle, part)
        except AgentError as error:
            return Measurement(part.engine, None, error)
        return Measurement(part.engine, 0.0)

    def usable_engines(self, bundle: Contents) -> list[EngineFile]:
        """Returns the bundle's engines that this machine has, in the order of preference."""
        return [p for p in self._ordered(bundle) if self.backends[p.engine].status().available]

    def _ordered(self, bundle: Contents) -> list[EngineFile]:
        rank = {engine: place for place, engine in enumerate(self.order)}
        return sorted(bundle.description.engines, key=lambda p: rank.get(p.engine, len(rank)))

    def _choose(self, bundle: Bundle, parts: list[EngineFile]) -> LoadedModel:
        """Measures the engines, and loads the fastest; one engine alone must answer rightly."""
        names = " and ".join(part.engine for part in parts)
        self.notify(f"trying {bundle.ref.name} on {names}")
        sessions: dict[str, Session] = {}
        if len(parts) == 1:
            measured = [self._measure(bundle, parts[0], BUDGET_MS, sessions)]
        else:
            measured = self._measure_all(bundle, parts, sessions)
        chosen = fastest(measured)
        told = "; ".join(_told(one) for one in measured)
        self.notify(f"{told}: using {chosen} from now on{_reason(chosen, measured)}")
        self._remember(bundle, measured)
        session = sessions[chosen]
        return LoadedModel(
            bundle, self._part(bundle, chosen), self.pipeline(bundle), Later(lambda: session)
        )

    def _measure(
        self, bundle: Bundle, part: EngineFile, share_ms: float, sessions: dict[str, Session]
    ) -> Measurement:
        return measure(part.engine, lambda: self._probe(bundle, part, sessions), share_ms)

    def _without_golden(self, bundle: Bundle, parts: list[EngineFile]) -> EngineFile | None:
        """Returns the engine to use where there is nothing to compare, or no way to."""
        only = _incomparable(bundle, parts)
        if only is not None and len(parts) > 1:
            self.notify(
                f"{bundle.ref.name} has open axes and no golden input, so engines can't be "
                f"compared: using {only.engine}"
            )
        return only

    def _start(self, bundle: Bundle, part: EngineFile) -> LoadedModel:
        """Begins to make the session; meanwhile the caller prepares its first input."""
        status = self.backends[part.engine].status()
        if status.problem:
            raise EngineUnavailableError(status.problem, hint=status.hint)
        session = Later(lambda: self.session(bundle, part))
        return LoadedModel(bundle, part, self.pipeline(bundle), session)

    def load_session(
        self, model: ModelFile, description: ModelDescription, part: EngineFile
    ) -> Session:
        """Makes a session of bytes that the caller vouches for.

        Raises:
            EngineUnavailableError: The engine isn't installed here, or doesn't load.
            ModelFileError: The engine refuses the file, or it isn't as described.
        """
        return self.backends[part.engine].load(model, description, part, self.threads)

    def session(self, bundle: Contents, part: EngineFile) -> Session:
        """Makes a session of one of the files of a bundle; for errors see `load_session`."""
        return self.load_session(bundle.model_file(part), bundle.description, part)

    def pipeline(self, bundle: Contents) -> Pipeline:
        """Returns what stands around the engines."""
        from edge_agent.pipeline import Pipeline  # it imports NumPy

        return Pipeline(bundle.description, bundle.labels(), self.limits)

    def _probe(self, bundle: Bundle, part: EngineFile, sessions: dict[str, Session]) -> Probe:
        pipeline = self.pipeline(bundle)
        session = sessions[part.engine] = self.session(bundle, part)
        return probe(bundle, pipeline, session, probe_inputs(bundle, pipeline, part.layout))

    def _part(self, bundle: Bundle, engine: str) -> EngineFile:
        part = bundle.description.engine(engine)
        if part is None:
            there = ", ".join(one.engine for one in bundle.description.engines)
            raise EngineUnavailableError(
                f"{bundle.ref.name} has no file for the engine {engine}; it has one for {there}"
            )
        return part

    def _candidates(self, bundle: Bundle, engine: str) -> list[EngineFile]:
        """Returns the engines to choose from, without importing any."""
        if engine != "auto":
            return [self._part(bundle, engine)]
        declared = self._ordered(bundle)
        return [p for p in declared if self.backends[p.engine].stamp()] or declared

    def fingerprint(self) -> str:
        """Returns what changes when answers or their speed may: machine, threads, engines."""
        stamps = [f"{name}={backend.stamp()}" for name, backend in self.backends.items()]
        return self.machine().fingerprint(f"threads={self.threads}", *stamps)

    def _recall(self, bundle: Bundle, parts: list[EngineFile]) -> EngineFile | None:
        """Returns the fastest of the engines if all of them were measured, and it is there."""
        known = self.memory.recall(bundle.ref.digest, self.fingerprint())
        unknown = [part.engine for part in parts if part.engine not in known]
        if any(self.backends[engine].status().available for engine in unknown):
            return None
        measured = [Measurement(part.engine, known.get(part.engine)) for part in parts]
        if all(one.run_ms is None for one in measured):
            return None
        chosen = fastest(measured)
        return self._part(bundle, chosen) if self.backends[chosen].status().available else None

    def _remember(self, bundle: Bundle, measured: list[Measurement]) -> None:
        try:
            self.memory.remember(bundle.ref.digest, self.fingerprint(), measured)
        except OSError as error:
            self.notify(f"the choice can't be kept, so it is measured again next time: {error}")


def _incomparable(bundle: Bundle, parts: list[EngineFile]) -> EngineFile | None:
    """Returns the first engine of a bundle without a golden input, if none can be compared."""
    has_open_axes = any(
        isinstance(axis, str) for spec in bundle.description.inputs for axis in spec.shape
    )
    return parts[0] if len(parts) == 1 or has_open_axes else None


def probe_inputs(bundle: Contents, pipeline: Pipeline, layout: Layout | None) -> dict[str, Tensor]:
    """Prepares the golden input, or a blank one where there is none.

    Args:
        bundle: The model.
        pipeline: Its own.
        layout: What the engine's entry in model.yaml says.
    """
    return pipeline.prepare(golden.request(bundle) or blank_request(bundle), layout)


def probe(
    bundle: Contents, pipeline: Pipeline, session: Session, inputs: Mapping[str, Tensor]
) -> Probe:
    """Makes the probe of one session.

    Args:
        bundle: The model.
        pipeline: Its own.
        session: What is probed.
        inputs: What `probe_inputs` returned.
    """

    def wrong(outputs: Mapping[str, Tensor]) -> str | None:
        return golden.difference(bundle, pipeline.answer(outputs, 1), outputs)

    return Probe(lambda: session.run(inputs), wrong)


def _reason(chosen: str, measured: Sequence[Measurement]) -> str:
    """Says why the fastest isn't chosen, where it isn't."""
    least = min((one.run_ms, one.engine) for one in measured if one.run_ms is not None)
    return "" if least[1] == chosen else " (as fast, within noise, and preferred on this device)"


def _told(one: Measurement) -> str:
    if one.run_ms is None:
        return f"{one.engine}: {one.problem}"
    return f"{one.engine} {one.run_ms:.1f} ms"


def blank_request(bundle: Contents) -> Request:
    """Inputs of the right form where there is no golden one: good for timing only."""
    import numpy as np

    blanks = {}
    for spec in bundle.description.inputs:
        shape = tuple(axis if isinstance(axis, int) else 1 for axis in spec.shape)
        value = sum(spec.range) / 2 if spec.range else 0
        blanks[spec.name] = np.full(shape, value, dtype=spec.dtype)
    return Request(bundle.ref.name, "blank input", tensors=blanks)
