"""One sample input, made ready for every engine."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from typing import TYPE_CHECKING

from edge_agent import samples
from edge_agent.backends.binding import engine_layout, turned
from edge_agent.errors import AgentError

if TYPE_CHECKING:
    from pathlib import Path

    from edge_agent.bundles import Contents
    from edge_agent.description import EngineFile, Layout
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

    def decoded_whole(self) -> SampleInputs:
        """Returns them for the FP32 reference: JPEG decoded in full, whatever the model asks for.

        So what a faster decoding does to the answers counts as drift.
        """
        whole = self._pipeline.decoding_whole()
        return self if whole is self._pipeline else SampleInputs(whole, self._request)

    def of(self, layout: Layout | None) -> dict[str, Tensor]:
        """Returns the tensors, to the bit as `Pipeline.prepare` makes them for that layout."""
        if not self._ready:
            self._ready[None] = self._pipeline.prepare(self._request, None)
        if layout not in self._ready:
            # An image is decoded and scaled once: half of the gate's time with two layouts.
            self._ready[layout] = {
                name: self._turned(name, value, layout) for name, value in self._ready[None].items()
            }
        return self._ready[layout]

    def _turned(self, name: str, value: Tensor, layout: Layout | None) -> Tensor:
        spec = self._pipeline.description.input(name)
        assert spec is not None  # noqa: S101 - `Pipeline.prepare` makes no other
        return turned(value, spec.layout, engine_layout(spec, layout))

    def feed(self, part: EngineFile) -> dict[str, Tensor]:
        """Returns the tensors by their names in an engine's file."""
        ready = self.of(part.layout)
        return {part.inputs.get(name, name): value for name, value in ready.items()}

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
