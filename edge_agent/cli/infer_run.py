"""The work of `edge-agent infer`."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from msgspec import structs

from edge_agent import config as configuration
from edge_agent.app import DEMO_NAME, Agent
from edge_agent.cli import failures, output
from edge_agent.errors import (
    AgentError,
    BadInputError,
    ConfigError,
    DescriptionError,
    EngineFailedError,
    ImageError,
    ModelFileError,
    TensorError,
)
from edge_agent.image_files import IMAGE_ENDINGS
from edge_agent.types import Request

if TYPE_CHECKING:
    from edge_agent.cli.infer_options import InferOptions
    from edge_agent.runtime import Runtime
    from edge_agent.types import Result, Tensor

SCHEMA: Final = "edge-agent/infer/v1"
_SHOWN_VALUES: Final = 8


def run(options: InferOptions) -> int:
    """Answers every input in turn; a bad one doesn't stop the others.

    Returns:
        0, or the exit code of the last input that failed.
    """
    config = configuration.load()
    if options.engine:
        config = structs.replace(config, engine=options.engine)
    model = DEMO_NAME if options.model is None else options.model
    with output.progress(f"verifying {model}") as progress:
        runtime = Agent(config, output.notice).runtime(progress)
        return _answer_all(runtime, model, options, config.max_image_mib * 1024 * 1024)


def _answer_all(runtime: Runtime, model: str, options: InferOptions, max_bytes: int) -> int:
    code = failures.OK
    tensors = _tensors(runtime, model, options.inputs)
    for source in _sources(options.images) if options.images else (None,):
        try:
            image = _read(source, max_bytes) if source is not None else None
            request = Request(model, source or "--input", image, tensors, options.top_k)
            _print(runtime.infer(request), source, options.json)
        except (DescriptionError, ModelFileError):
            raise  # the model is at fault: no other input will fare better
        except (BadInputError, EngineFailedError) as error:
            code = _refuse(error, source, options.json)
    return code


def _tensors(runtime: Runtime, model: str, inputs: tuple[str, ...]) -> dict[str, Tensor]:
    """Reads the ``--input`` files, which must be as the model describes them."""
    if not inputs:
        return {}
    from edge_agent import tensors

    pairs = [given.partition("=") for given in inputs]
    for name, _, file in pairs:
        if not name or not file:
            raise ConfigError(f"--input takes NAME=FILE, not {name!r}")
    described = runtime.model(model).bundle.description
    read: dict[str, Tensor] = {}
    for name, _, file in pairs:
        spec = described.input(name)
        if spec is None:
            known = ", ".join(one.name for one in described.inputs)
            raise TensorError(f"the model has no input {name!r}; it takes {known}")
        if name in read:
            raise ConfigError(f"--input gives {name!r} twice")
        read[name] = tensors.read(_read(file, tensors.MAX_BYTES), file, spec)
    return read


def _sources(arguments: tuple[str, ...]) -> Iterator[str]:
    """Yields files: folders give the images in them, patterns what they match, sorted."""
    for argument in arguments:
        if argument == "-" or os.path.isfile(argument):
            yield argument
        elif os.path.isdir(argument):
            yield from _images_in(argument) or [argument]
        elif _is_pattern(argument):
            from glob import glob

            yield from sorted(glob(argument, recursive=True)) or [argument]  # noqa: PTH207
        else:
            yield argument


def _images_in(folder: str) -> list[str]:
    try:
        found = sorted(Path(folder).iterdir())
    except OSError:
        return []  # reading it will say why
    return [str(p) for p in found if p.suffix.lower() in IMAGE_ENDINGS and os.path.isfile(p)]


def _is_pattern(argument: str) -> bool:
    return any(mark in argument for mark in "*?[")


def _read(source: str, max_bytes: int) -> bytes:
    """Reads a whole file or standard input, up to a limit."""
    try:
        if source == "-":
            data = sys.stdin.buffer.read(max_bytes + 1)
        else:
            with open(source, "rb") as stream:
                data = stream.read(max_bytes + 1)
    except IsADirectoryError as error:
        readable = os.access(source, os.R_OK)
        reason = "is a folder without images" if readable else "can't be read: Permission denied"
        raise ImageError(reason, path=source) from error
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        if isinstance(error, FileNotFoundError) and _is_pattern(source):
            raise BadInputError("no file matches", path=source) from error
        raise BadInputError(f"can't be read: {reason}", path=source) from error
    if len(data) > max_bytes:
        raise BadInputError(
            f"is larger than {max_bytes >> 20} MiB",
            path=source,
            hint="max_image_mib in config.toml sets this limit for images",
        )
    return data


def _refuse(error: AgentError, source: str | None, as_json: bool) -> int:
    if as_json:
        failure = failures.as_json(error)
        output.document({"schema": SCHEMA, "input": source, "error": failure})
    return failures.report(error, as_json_document=False)


def _print(result: Result, source: str | None, as_json: bool) -> None:
    if as_json:
        output.document(_as_json(result, source))
        return
    took = sum(result.timings_ms.values())
    output.line(
        f"{result.source}  ({result.model.name} {result.model.version}, {result.engine}, "
        f"{took:.1f} ms)"
    )
    width = max((len(one.label) for one in result.labels), default=0)
    for one in result.labels:
        output.line(f"  {one.label:<{width}}  {one.score:.3f}")
    if result.confident is False:
        output.line("  (below the model's min_confidence)")
    for name, value in result.outputs.items():
        shown = " ".join(f"{number:.6g}" for number in value.reshape(-1)[:_SHOWN_VALUES].tolist())
        more = " …" if value.size > _SHOWN_VALUES else ""
        output.line(f"  {name}  {value.dtype} {list(value.shape)}: {shown}{more}")


def _as_json(result: Result, source: str | None) -> dict[str, Any]:
    return {
        "schema": SCHEMA,
        "input": source,
        "model": {
            "name": result.model.name,
            "version": result.model.version,
            "digest": result.model.digest,
        },
        "engine": result.engine,
        "labels": [
            {"index": one.index, "label": one.label, "score": one.score} for one in result.labels
        ],
        "outputs": [
            {
                "name": name,
                "dtype": str(value.dtype),
                "shape": list(value.shape),
                "data": _json_numbers(value),
            }
            for name, value in result.outputs.items()
        ],
        "confident": result.confident,
        "timings_ms": {stage: round(ms, 3) for stage, ms in result.timings_ms.items()},
    }


def _json_numbers(value: Tensor) -> list[Any]:
    """Flat, row-major; JSON has no NaN or infinity, they become null."""
    return [None if number - number != 0 else number for number in value.reshape(-1).tolist()]
