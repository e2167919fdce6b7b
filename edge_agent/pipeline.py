"""What stands around the engine: a request becomes input tensors, outputs become an answer."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from msgspec import structs

from edge_agent import tensors
from edge_agent.backends.binding import engine_layout, permutation, turned
from edge_agent.description import Classification
from edge_agent.errors import BadInputError, ImageError, TensorError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from edge_agent.description import Layout, ModelDescription, Preprocess, TensorSpec
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
        self._inputs = {spec.name: spec for spec in description.inputs}
        self._labels = labels
        self._limits = limits

    def decoding_whole(self) -> Pipeline:
        """Returns one that decodes every image in full, whatever model.yaml says of JPEG."""
        rule = self.description.preprocess
        if rule is None or not rule.jpeg_scaled_decoding:
            return self
        plain = structs.replace(rule, jpeg_scaled_decoding=False)
        description = structs.replace(self.description, preprocess=plain)
        return Pipeline(description, self._labels, self._limits)

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
        images = () if request.image is None else (request.image,)
        return self.prepare_rows(images, request.tensors, request.top_k, layout, request.source)

    def prepare_rows(
        self,
        images: Sequence[bytes],
        values: Mapping[str, Tensor],
        top_k: int | None,
        layout: Layout | None,
        source: str,
    ) -> dict[str, Tensor]:
        """As `prepare`, of any number of images: each becomes a row of the input that they feed.

        Args:
            images: Image files.
            values: Tensors by the names of model.yaml.
            top_k: How many classes are asked for.
            layout: See `prepare`.
            source: Where they came from, for messages.
        """
        if top_k is not None and top_k < 1:
            raise BadInputError(f"top_k is {top_k}, it starts at 1", path=source)
        ready: dict[str, Tensor] = {}
        for name, value in values.items():
            spec = self.input(name, source)
            checked = tensors.check(value, spec, source)
            ready[name] = turned(checked, spec.layout, engine_layout(spec, layout))
        if images:
            self._add_images(images, source, layout, ready)
        shapes = {
            name: self._described_shape(value, self.input(name, source), layout)
            for name, value in ready.items()
        }
        tensors.check_axes(shapes, self.description.inputs, source)
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

    def answers(
        self, outputs: Mapping[str, Tensor], top_k: int | None
    ) -> tuple[tuple[ScoredLabel, ...], ...]:
        """As `answer`, of outputs with any number of rows: the classes of each."""
        rule = self.description.postprocess
        if not isinstance(rule, Classification):
            return ()
        scores = outputs[rule.output]
        rows = scores if scores.ndim > 1 else (scores,)
        return tuple(self.answer({rule.output: row}, top_k) for row in rows)

    def input(self, name: str, source: str) -> TensorSpec:
        """Returns the input of that name.

        Raises:
            TensorError: There is none.
        """
        spec = self._inputs.get(name)
        if spec is None:
            known = ", ".join(one.name for one in self.description.inputs)
            raise TensorError(f"the model has no input {name!r}; it takes {known}", path=source)
        return spec

    def _add_images(
        self,
        images: Sequence[bytes],
        source: str,
        layout: Layout | None,
        ready: dict[str, Tensor],
    ) -> None:
        rule = self.description.preprocess
        if rule is None:
            raise BadInputError(
                f"the model {self.description.name} takes no image",
                path=source,
                hint="give its tensors; at the command line with --input NAME=FILE",
            )
        if rule.input in ready:
            raise BadInputError(f"both the image and a tensor feed {rule.input!r}", path=source)
        spec = self.input(rule.input, source)
        if len(images) > 1 and not isinstance(spec.shape[0], str):
            raise BadInputError(
                f"the model {self.description.name} takes one image at a time",
                path=source,
                hint="send a request for each",
            )
        target = engine_layout(spec, layout)
        assert target is not None  # noqa: S101 - model.yaml is refused without a layout here
        ready[rule.input] = self._pixels(images, rule, spec, target, source)

    def _pixels(
        self,
        images: Sequence[bytes],
        rule: Preprocess,
        spec: TensorSpec,
        layout: Layout,
        source: str,
    ) -> Tensor:
        import numpy as np

        from edge_agent.images import decode_at_least
        from edge_agent.preprocess import scaled_size, to_tensor

        limits, enough = self._limits, None
        if rule.jpeg_scaled_decoding and rule.resize is not None:
            enough = partial(scaled_size, resize=rule.resize)
        rows = []
        for place, image in enumerate(images, 1):
            name = source if len(images) == 1 else f"{source}, image {place}"
            picture, whole = decode_at_least(image, name, limits, rule.background, enough)
            rows.append(to_tensor(picture, rule, spec, layout, name, limits, whole))
        if any(row.shape != rows[0].shape for row in rows):
            raise ImageError(
                "the images make tensors of different sizes",
                path=source,
                hint="send a request for each",
            )
        return rows[0] if len(rows) == 1 else np.concatenate(rows)

    @staticmethod
    def _described_shape(value: Tensor, spec: TensorSpec, layout: Layout | None) -> tuple[int, ...]:
        back = permutation(engine_layout(spec, layout), spec.layout)
        return tuple(value.shape[axis] for axis in back) if back else value.shape
