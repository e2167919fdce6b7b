"""The section `golden` of a model.yaml, and the files that it names."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any, Final

from edge_agent.authoring import naming
from edge_agent.errors import BadInputError, ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from edge_agent.bundles import Contents
    from edge_agent.types import Request, ScoredLabel, Tensor

SCORE_TOLERANCE: Final = 0.05
# Of the largest value in an output: enough for what another processor does to INT8's digits.
RELATIVE_TOLERANCE: Final = 0.01
FOLDER: Final = "golden"
_SCORE: Final = "score"


class GoldenSection:
    """An input and its answer, as they are kept.

    Attributes:
        value: The section.
        files: Its files by path inside the project.
        tolerances: The largest difference that counts as right, by output; of a classifier
            ``score``.
    """

    def __init__(self) -> None:
        self.value: dict[str, Any] = {}
        self.files: dict[str, bytes] = {}
        self.tolerances: dict[str, float] = {}

    def keep_input(self, request: Request, image_name: str) -> None:
        """Adds the input; an image gets the name of the file that it came from."""
        if request.image:
            stem, _, ending = image_name.rpartition(".")
            self.value["image"] = f"{FOLDER}/{naming.slug(stem)}.{ending.lower()}"
            self.files[self.value["image"]] = request.image
        for name, value in request.tensors.items():
            file = self._add(f"input-{naming.slug(name)}", value)
            self.value.setdefault("tensors", {})[name] = file

    def keep_labels(self, labels: tuple[ScoredLabel, ...], given: Mapping[str, float]) -> None:
        """Adds the answer of a classifier."""
        _require_known(given, [_SCORE])
        allowed = self.tolerances[_SCORE] = given.get(_SCORE, given.get("", SCORE_TOLERANCE))
        score = float(f"{labels[0].score:.6g}")
        self.value["top"] = {"index": labels[0].index, "score": score, "tolerance": allowed}

    def keep_outputs(
        self, contents: Contents, outputs: Mapping[str, Tensor], given: Mapping[str, float]
    ) -> None:
        """Adds the answer of a raw model.

        Raises:
            BadInputError: It isn't finite numbers.
            ConfigError: A tolerance is for no output.
        """
        names = [spec.name for spec in contents.description.outputs]
        _require_known(given, names)
        for name in names:
            usual = usual_tolerance(name, outputs[name])
            allowed = self.tolerances[name] = given.get(name, given.get("", usual))
            file = self._add(f"output-{naming.slug(name)}", outputs[name])
            entry = {"name": name, "file": file, "tolerance": allowed}
            self.value.setdefault("outputs", []).append(entry)

    def _add(self, stem: str, value: Tensor) -> str:
        """Adds a tensor; two may have names that differ by a dot alone."""
        name, count = f"{FOLDER}/{stem}.npy", 1
        while name in self.files:
            count += 1
            name = f"{FOLDER}/{stem}-{count}.npy"
        self.files[name] = _npy(value)
        return name


def usual_tolerance(name: str, value: Tensor) -> float:
    """Returns the tolerance of an output that nobody gave one: whole numbers must be met.

    Raises:
        BadInputError: It isn't finite numbers.
    """
    import numpy as np

    if value.dtype.kind in "iub":
        return 0.0
    if not np.isfinite(value).all():
        raise BadInputError(
            f"the answer isn't finite numbers: the output {name!r}",
            hint="is the input what the model was made for?",
        )
    largest = float(np.abs(value.astype(np.float64)).max(initial=0.0))
    return float(f"{max(RELATIVE_TOLERANCE * largest, 1e-5):.3g}")


def _require_known(given: Mapping[str, float], names: list[str]) -> None:
    for name in given:
        if name and name not in names:
            raise ConfigError(
                f"--tolerance is for {name!r}, which this model doesn't answer",
                hint=f"it answers {', '.join(names)}",
            )


def _npy(value: Tensor) -> bytes:
    import numpy as np

    stream = io.BytesIO()
    np.save(stream, value, allow_pickle=False)
    return stream.getvalue()
