"""One sample input, made ready for every engine."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from typing import TYPE_CHECKING

from edge_agent import samples
from edge_agent.errors import AgentError

if TYPE_CHECKING:
    from pathlib import Path

    from edge_agent.bundles import Contents
    from edge_agent.description import Layout
    from edge_agent.loading import ModelLoader
    from edge_agent.pipeline import Pipeline
    from edge_agent.types import Request, Tensor


class SampleInputs:
    """The input tensors of one request, in the layouts that engines ask for.

    Args:
        pipeline: The model's.
        request: The request.
    """

    def __init__(self, pipeline: Pipeline, request: Request) -> None:
        self._pipeline = pipeline
        self._request = request
        self._ready: dict[Layout | None, dict[str, Tensor]] = {}

    def of(self, layout: Layout | None) -> dict[str, Tensor]:
        """Returns the tensors as `Pipeline.prepare` makes them for that layout."""
        if layout not in self._ready:
            self._ready[layout] = self._pipeline.prepare(self._request, layout)
        return self._ready[layout]

    def digest(self) -> bytes:
        """Returns the SHA-256 of what was asked."""
        total = sha256(self._request.image or b"")
        for name, value in sorted(self._request.tensors.items()):
            total.update(f"{name} {value.dtype} {value.shape} ".encode() + value.tobytes())
        return total.digest()


class SampleReader:
    """Reads the sample inputs of a model.

    Args:
        loader: Knows the limits of images.
        contents: The model.
    """

    def __init__(self, loader: ModelLoader, contents: Contents) -> None:
        self._limits = loader.limits
        self._contents = contents
        self._pipeline = loader.pipeline(contents)

    def read(self, file: Path) -> SampleInputs:
        """Reads one.

        Raises:
            BadInputError: It can't be read, or isn't as the model describes its inputs.
        """
        return SampleInputs(self._pipeline, samples.request(self._contents, file, self._limits))


@contextmanager
def named(file: Path) -> Iterator[None]:
    """Says of an error in the block which input it was, if it doesn't say so itself."""
    try:
        yield
    except AgentError as error:
        if error.path is None:
            error.path = str(file)
        raise
