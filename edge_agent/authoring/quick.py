"""From a bare ONNX classifier of images to a signed local bundle, in one step."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from edge_agent.authoring import classifier, naming, sections
from edge_agent.authoring.development_key import DEV_NAMES, development_key
from edge_agent.authoring.drafting.parts import Wishes
from edge_agent.authoring.drafting.postprocess import LABELS_FILE
from edge_agent.authoring.golden_section import SCORE_TOLERANCE
from edge_agent.authoring.source_files import ENGINES, read, read_labels, read_model
from edge_agent.authoring.staging import require_free, written
from edge_agent.bundles import DESCRIPTION_FILE
from edge_agent.description import digest_of_pipeline
from edge_agent.errors import BadInputError
from edge_agent.pipeline import Pipeline
from edge_agent.types import Request
from edge_signing.bundle import sign_directory

if TYPE_CHECKING:
    from edge_agent.app import Agent
    from edge_agent.backends.base import ModelFile, Session
    from edge_agent.types import ScoredLabel
    from edge_signing.ed25519 import PrivateKey


@dataclass(frozen=True, slots=True)
class QuickRequest:
    """What is to be made.

    Attributes:
        model: The ONNX file.
        labels: Class names: a JSON array, or one a line.
        name: Bundle name; None takes the file's name, below ``local/``.
        version: Semantic version.
        preset: One of `presets.PRESETS`, for models that take floats.
        layout: Where the file leaves it open.
        size: Image side in pixels, where the file leaves it open.
        golden: An image to keep with its answer, as the health probe.
        output: Name of the output with the scores, where several could be.
        out: The bundle's folder; None takes the model's name.
        key: The key that signs; None takes the development key, for names below ``local/``.
    """

    model: Path
    labels: Path
    name: str | None
    version: str
    preset: str
    layout: str | None
    size: int | None
    golden: Path | None
    output: str | None
    out: Path | None
    key: PrivateKey | None = None


@dataclass(frozen=True, slots=True)
class QuickBundle:
    """What was made.

    Attributes:
        path: The bundle's folder.
        name: Its name.
        version: Its version.
        digest: ``sha256:…``.
        keyid: The key that signed it.
        assumptions: What the model file doesn't say.
        golden_answer: Best class of the golden image with its score, None without one.
    """

    path: Path
    name: str
    version: str
    digest: str
    keyid: str
    assumptions: tuple[str, ...]
    golden_answer: str | None


def make(agent: Agent, request: QuickRequest) -> QuickBundle:
    """Makes the bundle.

    Raises:
        BadInputError: A file can't be used, or the model leaves open what must be known.
        ModelFileError: ONNX Runtime refuses the model, or it is no classifier of images.
        DescriptionError: The name or the version can't be used.
        OSError: The bundle can't be written; nothing is left behind.
    """
    if ENGINES.get(request.model.suffix.lower()) == "tflite":
        raise BadInputError(
            "is no ONNX file",
            path=str(request.model),
            hint="make a project of it: edge-agent bundle init MODEL",
        )
    out = request.out or Path(f"{request.model.stem}.bundle")
    require_free(out)
    model = read_model(request.model)
    labels = read_labels(request.labels)
    value, files, told, golden = _contents(agent, request, model, labels)
    with written(out, files) as staging:
        key = request.key or development_key(agent)
        digest = sign_directory(staging, value["name"], key).digest
    keyid = key.public.keyid
    return QuickBundle(out, value["name"], request.version, digest, keyid, told, golden)


def _contents(
    agent: Agent, request: QuickRequest, model: ModelFile, labels: tuple[str, ...]
) -> tuple[dict[str, Any], dict[str, bytes], tuple[str, ...], str | None]:
    """Returns model.yaml, all files by name, what was assumed, and the golden answer."""
    wishes = Wishes(
        _name(request),
        request.version,
        task="image-classification",
        labels=labels,
        preset=request.preset,
        layout=request.layout,
        size=request.size,
        resize="shortest-side",
        output=request.output,
    )
    weights = f"weights/{naming.slug(request.model.stem)}.onnx"
    value = classifier.describe(model, str(request.model), wishes, weights)
    described = classifier.parse(value)
    session = agent.loader.load_session(model, described, described.engines[0])
    value["postprocess"]["activation"] = classifier.activation(value, session)
    told = _assumptions(value, request.preset)
    files = {weights: model.data} | {f"weights/{at}": data for at, data in model.external.items()}
    answer = None
    if request.golden:
        best, image = _golden(agent, request.golden, value, labels, session)
        name = f"golden/{naming.slug(request.golden.stem)}{request.golden.suffix.lower()}"
        top = {"index": best.index, "score": best.score, "tolerance": SCORE_TOLERANCE}
        value["golden"] = {"image": name, "top": top}
        files[name] = image
        answer = f"{best.label} {best.score:.3f}"
    value["pipeline_digest"] = digest_of_pipeline(classifier.parse(value))
    files[DESCRIPTION_FILE] = sections.to_yaml(value)
    files[LABELS_FILE] = msgspec.json.encode(labels)
    return value, files, told, answer


def _assumptions(value: Mapping[str, Any], preset: str) -> tuple[str, ...]:
    (image,) = value["inputs"]
    rules, scores = value["preprocess"], value["postprocess"]
    height, width = rules["crop"]["size"]
    softmax = scores["activation"] == "softmax"
    return (
        f"{image['layout']} images of {height}x{width}, {rules['color']}, "
        "short side resized, centre cropped",
        "pixel values 0 to 255" if image["dtype"] == "uint8" else f"pixel values: {preset}",
        f"the output {scores['output']!r} holds "
        + ("logits, so softmax follows" if softmax else "probabilities"),
    )


def _name(request: QuickRequest) -> str:
    from edge_signing.patterns import matches

    name = naming.bundle_name(request.name, request.model.stem)
    naming.check_version(request.version)
    if request.key is None and not matches(DEV_NAMES, name):
        raise BadInputError(
            f"the development key is trusted for {DEV_NAMES} only, not for {name!r}",
            hint="sign bundles of other names with your own key: --key",
        )
    return name


def _golden(
    agent: Agent,
    path: Path,
    value: dict[str, Any],
    labels: tuple[str, ...],
    session: Session,
) -> tuple[ScoredLabel, bytes]:
    """Returns the model's answer to the golden image, and the image."""
    described = classifier.parse(value)
    image = read(path, agent.limits.max_bytes)
    pipeline = Pipeline(described, labels, agent.limits)
    inputs = pipeline.prepare(Request(described.name, str(path), image), None)
    return pipeline.answer(session.run(inputs), 1)[0], image
