"""The one verb: a request goes in, a result comes out."""

from __future__ import annotations

from collections.abc import Callable
from threading import Thread
from time import perf_counter
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from edge_agent.errors import AgentError
from edge_agent.types import Result

if TYPE_CHECKING:
    from edge_agent.backends.base import Session
    from edge_agent.bundles import Bundle
    from edge_agent.description import EngineFile
    from edge_agent.pipeline import Pipeline
    from edge_agent.types import Request

T = TypeVar("T")


class Later(Generic[T]):
    """Work that starts now in a thread and is awaited by whoever needs it first.

    Making a session leaves the interpreter free for most of its time, so an image is decoded
    meanwhile. (`concurrent.futures` does the same; its import costs a tenth of a one-shot.)
    """

    def __init__(self, work: Callable[[], T]) -> None:
        self._work = work
        self._value: list[T] = []
        self._error: BaseException | None = None
        self._thread = Thread(target=self._run, name="edge-agent-load")
        self._thread.start()

    def _run(self) -> None:
        try:
            self._value.append(self._work())
        except BaseException as error:  # noqa: BLE001 - raised again in `result`
            self._error = error

    def wait(self) -> None:
        """Waits until the work is done, whatever came of it."""
        self._thread.join()

    def result(self) -> T:
        """Waits for the work and returns its value, or raises what it raised."""
        self._thread.join()
        if self._error is not None:
            raise self._error
        return self._value[0]


class LoadedModel:
    """A trusted bundle with a session on one engine.

    Attributes:
        bundle: What it was loaded from.
        engine: ``onnx`` or ``tflite``.
    """

    def __init__(
        self, bundle: Bundle, part: EngineFile, pipeline: Pipeline, session: Later[Session]
    ) -> None:
        self.bundle = bundle
        self.engine = part.engine
        self._layout = part.layout
        self._pipeline = pipeline
        self._session = session

    def run(self, request: Request) -> Result:
        """Prepares, infers, answers.

        Raises:
            BadInputError: The request is at fault.
            UnavailableError: The engine doesn't load.
        """
        started = perf_counter()
        try:
            inputs = self._pipeline.prepare(request, self._layout)
        except AgentError:
            self._session.wait()  # so that no engine is half loaded when the caller goes on
            raise
        prepared = perf_counter()
        session = self._session.result()
        ready = perf_counter()
        outputs = session.run(inputs)
        inferred = perf_counter()
        labels = self._pipeline.answer(outputs, request.top_k)
        floor = self.bundle.description.contract.min_confidence
        return Result(
            source=request.source,
            model=self.bundle.ref,
            engine=self.engine,
            labels=labels,
            outputs={} if labels else outputs,
            confident=None if not labels else floor is None or labels[0].score >= floor,
            timings_ms={
                "prepare": (prepared - started) * 1e3,
                "infer": (inferred - ready) * 1e3,
                "answer": (perf_counter() - inferred) * 1e3,
            },
        )


class Answers(Protocol):
    """Answers that were given before. Whatever is wrong with them costs no answer."""

    def recall(self, bundle: Bundle, request: Request) -> Result | None:
        """Returns the answer to the same request."""

    def keep(self, bundle: Bundle, request: Request, result: Result) -> None:
        """Keeps an answer for later."""

    def settle(self) -> None:
        """Writes what was kept."""


class Runtime:
    """Answers requests for any model; each is opened and loaded when it is first needed.

    Args:
        open_bundle: Makes a trusted bundle of a reference.
        load: Makes a loaded model of a bundle.
        answers: Asked before a model is loaded; None where nothing is to be remembered.
    """

    def __init__(
        self,
        open_bundle: Callable[[str], Bundle],
        load: Callable[[Bundle], LoadedModel],
        answers: Answers | None = None,
    ) -> None:
        self._open = open_bundle
        self._load = load
        self._answers = answers
        self._bundles: dict[str, Bundle] = {}
        self._models: dict[str, LoadedModel] = {}

    def bundle(self, name: str) -> Bundle:
        """Returns a trusted bundle.

        Raises:
            AgentError: It can't be opened; the type says what to do.
            edge_signing.errors.SigningError: It can't be trusted.
        """
        if name not in self._bundles:
            self._bundles[name] = self._open(name)
        return self._bundles[name]

    def model(self, name: str) -> LoadedModel:
        """Returns a loaded model.

        Raises:
            AgentError: It can't be loaded; the type says what to do.
            edge_signing.errors.SigningError: It can't be trusted.
        """
        if name not in self._models:
            self._models[name] = self._load(self.bundle(name))
        return self._models[name]

    def infer(self, request: Request) -> Result:
        """Answers one request.

        Raises:
            AgentError: It can't be answered; the type says what to do.
            edge_signing.errors.SigningError: The model can't be trusted.
        """
        if self._answers is None:
            return self.model(request.model).run(request)
        bundle = self.bundle(request.model)
        known = self._answers.recall(bundle, request)
        if known is not None:
            return known
        result = self.model(request.model).run(request)
        self._answers.keep(bundle, request, result)
        return result

    def settle(self) -> None:
        """Has what was answered be remembered, once the caller has the answers."""
        if self._answers is not None:
            self._answers.settle()
