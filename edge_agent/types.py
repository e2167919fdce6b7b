"""What goes into the one verb, `runtime.infer`, and what comes out."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeAlias

from msgspec import Struct

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Tensor: TypeAlias = npt.NDArray[Any]
    Scores: TypeAlias = npt.NDArray[np.float64]


class ModelRef(Struct, frozen=True):
    """Which model answered.

    Attributes:
        name: Bundle name.
        version: Semantic version.
        digest: ``sha256:…`` of the signed statement: exactly these bytes.
    """

    name: str
    version: str
    digest: str


class Request(Struct, frozen=True):
    """One question to one model.

    Attributes:
        model: Path of a bundle, or ``NAME[@VERSION]`` of an installed one.
        source: Where the input came from, for messages: a file's name or ``-``.
        image: An image file's bytes, for a model that takes one.
        tensors: Other inputs by name, in the shape, dtype and layout of model.yaml.
        top_k: How many classes to answer; None means as the bundle says.
    """

    model: str
    source: str
    image: bytes | None = None
    tensors: Mapping[str, Tensor] = {}
    top_k: int | None = None


class ScoredLabel(Struct, frozen=True):
    """One class of an answer.

    Attributes:
        index: Position in the model's output.
        label: Its name in the bundle's labels.
        score: Probability in 0..1 where the bundle declares an activation.
    """

    index: int
    label: str
    score: float


class Result(Struct, frozen=True):
    """One answer.

    Attributes:
        source: As in the request.
        model: What answered.
        engine: Which engine ran: ``onnx`` or ``tflite``.
        labels: The best classes, best first; empty for raw models.
        outputs: Raw outputs by name; empty for classifiers.
        confident: False where the best score is below the contract's min_confidence; None for
            raw models.
        timings_ms: Wall-clock milliseconds by stage: ``prepare``, ``infer``, ``answer``; empty
            where it was answered from the cache.
        is_cached: Whether it was answered from the cache.
    """

    source: str
    model: ModelRef
    engine: str
    labels: tuple[ScoredLabel, ...]
    outputs: Mapping[str, Tensor]
    confident: bool | None
    timings_ms: Mapping[str, float]
    is_cached: bool = False


@lru_cache(maxsize=64)
def dtype_name(dtype: np.dtype[Any]) -> str:
    """Returns NumPy's name of an element type, which NumPy spells anew each time (2 µs)."""
    return dtype.name
