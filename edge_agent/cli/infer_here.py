"""`infer` in this process: opens and loads the model itself."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from msgspec import structs

from edge_agent import answers
from edge_agent import config as configuration
from edge_agent.app import Agent
from edge_agent.cli import bars, infer_answers, output
from edge_agent.cli.infer_images import read_whole
from edge_agent.cli.socket_infer import kept_here
from edge_agent.errors import ConfigError, ModelNotFoundError, TensorError
from edge_agent.types import Request

if TYPE_CHECKING:
    from collections.abc import Iterator

    from edge_agent.cli.infer_options import InferOptions
    from edge_agent.runtime import Runtime
    from edge_agent.types import Result, Tensor


class Here:
    """Answers with a model of its own.

    Args:
        options: What was asked.

    Raises:
        AgentError: A tensor of ``--input`` can't be used, or the model that it is for.
    """

    def __init__(self, options: InferOptions) -> None:
        config = configuration.load()
        if options.engine:
            config = structs.replace(config, engine=options.engine)
        self.max_bytes = config.max_image_mib * 1024 * 1024
        self._options = options
        self._bar = bars.progress(f"verifying {options.model}")
        agent = Agent(config, output.notice)
        self._runtime = agent.runtime(self._bar.__enter__(), cached=not options.no_cache)
        try:
            with _hinted(options):
                self._tensors = _tensors(self._runtime, options.model, options.inputs)
        except BaseException:
            self.close()
            raise

    def answer(self, source: str | None, image: bytes | None) -> dict[str, Any]:
        """Returns the answer to one image, as a JSON document.

        Raises:
            AgentError: There is none.
        """
        model, top_k = self._options.model, self._options.top_k
        request = Request(model, source or "--input", image, self._tensors, top_k)
        # Lines show the first few values only.
        most = None if self._options.json else infer_answers.SHOWN_VALUES
        with _hinted(self._options):
            return _document(self._runtime.infer(request), source, most)

    def close(self) -> None:
        """Takes the progress bar away, and keeps what was answered for the next time."""
        self._bar.__exit__(None, None, None)
        self._runtime.settle()


@contextmanager
def _hinted(options: InferOptions) -> Iterator[None]:
    """Says of a name that isn't installed what may keep the daemon from being asked."""
    try:
        yield
    except ModelNotFoundError as error:
        what = kept_here(options)
        if what:
            error.hint = f"an alias is known to the daemon only: leave out {what}; {error.hint}"
        raise


def _tensors(runtime: Runtime, model: str, inputs: tuple[str, ...]) -> dict[str, Tensor]:
    """Reads the ``--input`` files, which must be as the model describes them."""
    if not inputs:
        return {}
    from edge_agent import tensors

    pairs = [given.partition("=") for given in inputs]
    for name, _, file in pairs:
        if not name or not file:
            raise ConfigError(f"--input takes NAME=FILE, not {name!r}")
    described = runtime.bundle(model).description
    read: dict[str, Tensor] = {}
    for name, _, file in pairs:
        spec = described.input(name)
        if spec is None:
            known = ", ".join(one.name for one in described.inputs)
            raise TensorError(f"the model has no input {name!r}; it takes {known}")
        if name in read:
            raise ConfigError(f"--input gives {name!r} twice")
        read[name] = tensors.read(read_whole(file, tensors.MAX_BYTES), file, spec)
    return read


def _document(result: Result, source: str | None, max_values: int | None) -> dict[str, Any]:
    outputs = [
        answers.output(name, str(value.dtype), value.shape, _json_numbers(value, max_values))
        for name, value in result.outputs.items()
    ]
    document = answers.document(
        source,
        result.model,
        result.engine,
        result.labels,
        outputs,
        result.confident,
        result.timings_ms,
        cached=result.is_cached,
    )
    return {**document, "answered_by": "here"}


def _json_numbers(value: Tensor, most: int | None) -> list[Any]:
    """Flat, row-major; JSON has no NaN or infinity, they become null."""
    numbers = value.reshape(-1)[:most].tolist()
    return [None if number - number != 0 else number for number in numbers]
