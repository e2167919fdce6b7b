"""From a bare ONNX classifier of images to a signed local bundle, in one step."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from edge_agent.authoring import classifier, sections
from edge_agent.authoring.development_key import DEV_NAMES, development_key
from edge_agent.backends.base import ModelFile
from edge_agent.bundles import MAX_MODEL_BYTES
from edge_agent.description import BundleName, Version, digest_of_pipeline
from edge_agent.errors import BadInputError, ConfigError, ModelFileError
from edge_agent.files import read_regular
from edge_agent.labels import MAX_LABELS_BYTES, parse_labels
from edge_agent.pipeline import Pipeline
from edge_agent.types import Request
from edge_signing.bundle import sign_directory
from edge_signing.durable import fsync_directory, write_durably

if TYPE_CHECKING:
    from edge_agent.app import Agent
    from edge_agent.authoring.classifier import Classifier
    from edge_agent.backends.base import Session
    from edge_agent.types import ScoredLabel
    from edge_signing.ed25519 import PrivateKey

_GOLDEN_TOLERANCE: Final = 0.05


@dataclass(frozen=True, slots=True)
class QuickRequest:
    """What is to be made.

    Attributes:
        model: The ONNX file.
        labels: Class names: a JSON array, or one a line.
        name: Bundle name; None takes the file's name, below ``local/``.
        version: Semantic version.
        preset: One of `classifier.PRESETS`, for models that take floats.
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
    out = request.out or Path(f"{request.model.stem}.bundle")
    if os.path.lexists(out):
        raise BadInputError("exists already", path=str(out), hint="choose another with --out")
    model = _read_model(request.model)
    labels = _read_labels(request.labels)
    value, files, told, golden = _contents(agent, request, model, labels)
    with _written(out, files) as staging:
        key = request.key or development_key(agent)
        digest = sign_directory(staging, value["name"], key).digest
    keyid = key.public.keyid
    return QuickBundle(out, value["name"], request.version, digest, keyid, told, golden)


def _contents(
    agent: Agent, request: QuickRequest, model: ModelFile, labels: tuple[str, ...]
) -> tuple[dict[str, Any], dict[str, bytes], tuple[str, ...], str | None]:
    """Returns model.yaml, all files by name, what was assumed, and the golden answer."""
    found = classifier.look(
        model, str(request.model), len(labels), request.layout, request.size, request.output
    )
    weights = f"weights/{classifier.slug(request.model.stem)}.onnx"
    value = classifier.describe(found, _name(request), request.version, weights, request.preset)
    described = classifier.parse(value)
    session = agent.loader.load_session(model, described, described.engines[0])
    value["postprocess"]["activation"] = classifier.activation(found, session)
    told = _assumptions(found, value, request.preset)
    files = {weights: model.data} | {f"weights/{at}": data for at, data in model.external.items()}
    answer = None
    if request.golden:
        best, image = _golden(agent, request.golden, value, labels, session)
        name = f"golden/{classifier.slug(request.golden.stem)}{request.golden.suffix.lower()}"
        top = {"index": best.index, "score": best.score, "tolerance": _GOLDEN_TOLERANCE}
        value["golden"] = {"image": name, "top": top}
        files[name] = image
        answer = f"{best.label} {best.score:.3f}"
    value["pipeline_digest"] = digest_of_pipeline(classifier.parse(value))
    files["model.yaml"] = sections.to_yaml(value)
    files["labels.json"] = msgspec.json.encode(labels)
    return value, files, told, answer


def _assumptions(found: Classifier, value: Mapping[str, Any], preset: str) -> tuple[str, ...]:
    height, width = found.size
    softmax = value["postprocess"]["activation"] == "softmax"
    return (
        f"{found.layout} images of {height}x{width}, {value['preprocess']['color']}, "
        "short side resized, centre cropped",
        "pixel values 0 to 255" if found.image.dtype == "uint8" else f"pixel values: {preset}",
        f"the output {found.scores.name!r} holds "
        + ("logits, so softmax follows" if softmax else "probabilities"),
    )


def _read_model(path: Path) -> ModelFile:
    from edge_signing.errors import BundleInvalid
    from edge_signing.external_data import external_files, resolve

    data = _read(path, MAX_MODEL_BYTES)
    try:
        locations = sorted(external_files(BytesIO(data), len(data)))
    except BundleInvalid as error:
        raise ModelFileError(error.message, path=str(path), hint=error.hint) from error
    external = {}
    for at in locations:
        # A link beside a stranger's model could lead to any file, which would then be published.
        place = path.parent / resolve(path.name, at)
        external[at] = _read(place, MAX_MODEL_BYTES, follow_links=False)
    return ModelFile(data, external)


def _read(path: Path, max_bytes: int, *, follow_links: bool = True) -> bytes:
    try:
        data = read_regular(path, max_bytes, follow_links=follow_links)
    except OSError as error:
        raise BadInputError(f"can't be read: {error.strerror}", path=str(path)) from error
    if not data or len(data) > max_bytes:
        raise BadInputError(
            "is empty" if not data else f"is larger than {max_bytes} bytes", path=str(path)
        )
    return data


def _read_labels(path: Path) -> tuple[str, ...]:
    data = _read(path, MAX_LABELS_BYTES)
    if data.lstrip().startswith(b"["):
        return parse_labels(data, str(path))
    try:
        lines = data.decode("utf-8-sig").splitlines()
    except UnicodeDecodeError as error:
        raise BadInputError("is neither UTF-8 text nor JSON", path=str(path)) from error
    return tuple(line.strip() for line in lines if line.strip())


def _name(request: QuickRequest) -> str:
    from edge_signing.patterns import matches

    name = request.name or classifier.slug(request.model.stem)
    if "/" not in name:
        name = "local/" + name
    _check(
        name, BundleName, "--name", "lower-case letters, digits, '.', '_', '-', parts joined by /"
    )
    _check(request.version, Version, "--version", "three numbers, such as 1.0.0")
    if request.key is None and not matches(DEV_NAMES, name):
        raise BadInputError(
            f"the development key is trusted for {DEV_NAMES} only, not for {name!r}",
            hint="sign bundles of other names with your own key: --key",
        )
    return name


def _check(value: str, kind: Any, option: str, hint: str) -> None:
    try:
        msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        raise ConfigError(f"{option} can't be {value!r}", hint=f"it is made of {hint}") from error


def _golden(
    agent: Agent,
    path: Path,
    value: dict[str, Any],
    labels: tuple[str, ...],
    session: Session,
) -> tuple[ScoredLabel, bytes]:
    """Returns the model's answer to the golden image, and the image."""
    described = classifier.parse(value)
    image = _read(path, agent.limits.max_bytes)
    pipeline = Pipeline(described, labels, agent.limits)
    inputs = pipeline.prepare(Request(described.name, str(path), image), None)
    return pipeline.answer(session.run(inputs), 1)[0], image


def _sweep(out: Path) -> None:
    """Removes what an earlier run for this place has left, if its process is gone."""
    if not out.parent.is_dir():
        return
    for one in out.parent.iterdir():
        start, _, rest = one.name.rpartition(f".{out.name}.")
        pid = rest.removesuffix(".staging")
        if not start and rest.endswith(".staging") and pid.isdigit() and not _is_running(pid):
            shutil.rmtree(one, ignore_errors=True)


def _is_running(pid: str) -> bool:
    return os.path.exists(f"/proc/{pid}")


@contextmanager
def _written(out: Path, files: Mapping[str, bytes]) -> Iterator[Path]:
    """Writes files beside their place, and renames them there when the block ends well."""
    _sweep(out)
    staging = out.with_name(f".{out.name}.{os.getpid()}.staging")
    try:
        for file, data in files.items():
            (staging / file).parent.mkdir(parents=True, exist_ok=True)
            write_durably(staging / file, data)
        yield staging
        staging.rename(out)
        fsync_directory(out.parent)
    except OSError as error:
        raise OSError(error.errno, f"can't be written: {error.strerror}", str(out)) from error
    finally:
        shutil.rmtree(staging, ignore_errors=True)
