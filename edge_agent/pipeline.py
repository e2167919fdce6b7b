"""What stands around the engine: a request becomes input tensors, outputs become an answer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edge_agent import tensors
from edge_agent.backends.binding import engine_layout, permutation, turned
from edge_agent.description import Classification
from edge_agent.errors import BadInputError, TensorError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from edge_agent.description import Layout, ModelDescription, TensorSpec
    from edge_agent.images import ImageLimits
    from edge_agent.types import Request, ScoredLabel, Tensor


class Pipeline:
    """Pre- and post-processing of one model, as its model.yaml describes them.

    Args:
        description: The model.
        labels: Class names of a classifier, one a score; empty for raw models.
        limits: The largest images that are taken.
    """

    def __init__(
        self, description: ModelDescription, labels: tuple[str, ...], limits: ImageLimits
    ) -> None:
        self.description = description
        self._labels = labels
        self._limits = limits

    def prepare(self, request: Request, layout: Layout | None) -> dict[str, Tensor]:
        """Makes every input tensor of the model.

        Args:
            request: An image, tensors, or both.
            layout: What the engine's entry in model.yaml says, None where it says nothing.

        Returns:
            Tensors by the names of model.yaml, each in its `binding.engine_layout`.

        Raises:
            ImageError: The image can't be used.
            TensorError: A tensor is missing or not as described.
            BadInputError: An image was given to a model that takes none, or no class asked for.
        """
        if request.top_k is not None and request.top_k < 1:
            raise BadInputError(f"top_k is {request.top_k}, it starts at 1", path=request.source)
        ready: dict[str, Tensor] = {}
        for name, value in request.tensors.items():
            spec = self._input(name, request.source)
            checked = tensors.check(value, spec, request.source)
            ready[name] = turned(checked, spec.layout, engine_layout(spec, layout))
        if request.image is not None:
            self._add_image(request.image, request.source, layout, ready)
        shapes = {
            name: self._described_shape(value, self._input(name, request.source), layout)
            for name, value in ready.items()
        }
        tensors.check_axes(shapes, self.description.inputs, request.source)
        return ready

    def answer(self, outputs: Mapping[str, Tensor], top_k: int | None) -> tuple[ScoredLabel, ...]:
        """Ranks the classes; a raw model has none.

        Args:
            outputs: What the engine returned, by the names of model.yaml.
            top_k: How many classes; None means as the bundle says.

        Raises:
            ModelFileError: The scores don't fit the labels.
            TensorError: The scores aren't finite numbers.
        """
        from edge_agent.labels import rank

        rule = self.description.postprocess
        if not isinstance(rule, Classification):
            return ()
        count = rule.top_k if top_k is None else top_k
        return rank(outputs[rule.output], rule, self._labels, count)

    def _input(self, name: str, source: str) -> TensorSpec:
        spec = self.description.input(name)
        if spec is None:
            known = ", ".join(one.name for one in self.description.inputs)
            raise TensorError(f"the model has no input {name!r}; it takes {known}", path=source)
        return spec

    def _add_image(
        self, image: bytes, source: str, layout: Layout | None, ready: dict[str, Tensor]
    ) -> None:
        from edge_agent.images import decode
        from edge_agent.preprocess import to_tensor

        rule = self.description.preprocess
        if rule is None:
            raise BadInputError(
                f"the model {self.description.name} takes no image",
                path=source,
                hint="give its tensors with --input NAME=FILE",
            )
        if rule.input in ready:
            raise BadInputError(f"both the image and a tensor feed {rule.input!r}", path=source)
        spec = self._input(rule.input, source)
        target = engine_layout(spec, layout)
        assert target is not None  # noqa: S101 - model.yaml is refused without a layout here
        picture = decode(image, source, self._limits, rule.background)
        ready[rule.input] = to_tensor(picture, rule, spec, target, source, self._limits)

    @staticmethod
    def _described_shape(value: Tensor, spec: TensorSpec, layout: Layout | None) -> tuple[int, ...]:
        back = permutation(engine_layout(spec, layout), spec.layout)
        return tuple(value.shape[axis] for axis in back) if back else value.shape
