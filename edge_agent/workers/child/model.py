"""A model that a worker holds: one session, and what stands around it."""

from __future__ import annotations

from threading import Lock
from typing import TYPE_CHECKING, Final

import numpy as np

from edge_agent import golden, loading
from edge_agent.description import batch_axis
from edge_agent.engine_choice import Probe, measure
from edge_agent.errors import AgentError, EngineUnavailableError, ModelNotReadyError
from edge_agent.pipeline import Pipeline
from edge_agent.workers.answer_form import answer_form
from edge_agent.workers.work import Loaded

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from edge_agent.backends.base import Backend, Session
    from edge_agent.bundles import Contents
    from edge_agent.images import ImageLimits
    from edge_agent.types import Tensor

Tensors = dict[str, "Tensor"]

_MEASURE_MS: Final = 100.0


class Model:
    """A loaded model.

    Args:
        contents: Its files.
        engine: Which of its engines.
        backend: That engine.
        limits: The largest images that are taken.
        threads: Threads of the engine.

    Attributes:
        pipeline: What stands around the engine.
        layout: Layout of its images on the engine's side, where model.yaml says one.
        form: What its answers look like.
        batches: Whether rows of several callers may run together.

    Raises:
        AgentError: It can't be loaded.
    """

    def __init__(
        self,
        contents: Contents,
        engine: str,
        backend: Backend,
        limits: ImageLimits,
        threads: int,
    ) -> None:
        part = contents.description.engine(engine)
        if part is None:
            raise EngineUnavailableError(f"{contents.ref.name} has no file for {engine}")
        self.pipeline = Pipeline(contents.description, contents.labels(), limits)
        self.layout = part.layout
        self.form = answer_form(contents.description)
        self.batches = False
        self._contents = contents
        self._engine = engine
        # Engines' sessions can't be used by two threads at once: one runs, the other probes.
        self._lock = Lock()
        self._session: Session | None = backend.load(
            contents.model_file(part), contents.description, part, threads
        )
        self._probe_inputs: Tensors | None = loading.probe_inputs(
            contents, self.pipeline, part.layout
        )

    def run(self, inputs: Mapping[str, Tensor]) -> Tensors:
        """Runs the model once; for errors see `Session.run`.

        Raises:
            ModelNotReadyError: It was unloaded meanwhile.
        """
        with self._lock:
            if self._session is None:
                raise ModelNotReadyError("the model was unloaded meanwhile")
            return self._session.run(inputs)

    def try_out(self, engine_version: str) -> Loaded:
        """Has it answer its golden input, measures it, and looks whether rows may run together.

        Raises:
            GoldenMismatchError: The answer is wrong.
            AgentError: The engine fails over its golden input.
        """
        run_ms = self._measured(_MEASURE_MS)
        self.batches = self._keeps_rows_apart()
        return Loaded(run_ms, self.batches, engine_version)

    def prove(self) -> None:
        """Runs the golden input once, or a blank one; for errors see `try_out`."""
        self._measured(0.0)

    def close(self) -> None:
        """Frees the session, after a run that is under way."""
        with self._lock:
            self._session = None
        self._probe_inputs = None

    def _measured(self, share_ms: float) -> float:
        inputs = self._probe_inputs
        if inputs is None:
            return 0.0
        try:
            found = measure(self._engine, lambda: self._probe(inputs), share_ms)
        except AgentError:
            if self._contents.description.golden is not None:
                raise
            self._probe_inputs = None  # nobody said that it must take a blank input
            return 0.0
        return found.run_ms or 0.0

    def _probe(self, inputs: Mapping[str, Tensor]) -> Probe:
        return loading.probe(self._contents, self.pipeline, self, inputs)

    def _keeps_rows_apart(self) -> bool:
        """Runs the golden rows twice together, with blank ones between: each must be right."""
        description = self._contents.description
        given = self._probe_inputs
        if batch_axis(description) is None or description.golden is None or given is None:
            return False
        blanks = loading.blank_request(self._contents).tensors
        other = {name: np.full_like(v, blanks[name].flat[0]) for name, v in given.items()}
        count = rows(given)
        try:
            outputs = self.run(joined([given, other, given]))
            answers = [part(outputs, 0, count), part(outputs, 2 * count, 3 * count)]
            return not any(self._is_wrong(one) for one in answers)
        except (AgentError, MemoryError):
            return False

    def _is_wrong(self, outputs: Mapping[str, Tensor]) -> bool:
        labels = self.pipeline.answer(outputs, 1)
        return golden.difference(self._contents, labels, outputs) is not None


def rows(inputs: Mapping[str, Tensor]) -> int:
    """Returns how many rows the inputs of a model with a batch axis have."""
    return int(next(iter(inputs.values())).shape[0])


def joined(several: Sequence[Mapping[str, Tensor]]) -> Tensors:
    """Puts rows one after the other."""
    return {name: np.concatenate([one[name] for one in several]) for name in several[0]}


def part(tensors: Mapping[str, Tensor], start: int, end: int) -> Tensors:
    """Returns some of the rows."""
    return {name: value[start:end] for name, value in tensors.items()}
