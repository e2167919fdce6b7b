"""`edge-agent model quantize`: a float ONNX model becomes an INT8 one."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from edge_agent import config as configuration
from edge_agent.app import Agent
from edge_agent.cli import bars, options, output, watchdog
from edge_agent.errors import ConfigError

if TYPE_CHECKING:
    from edge_agent.authoring.quantising.quantisation import Quantised, QuantiseRequest

_PERCENTILE = 99.99


class Types(StrEnum):
    """Choices of --types: activations, then weights."""

    u8s8 = "u8s8"
    s8s8 = "s8s8"


class Method(StrEnum):
    """Choices of --calibration."""

    minmax = "minmax"
    percentile = "percentile"
    entropy = "entropy"


def quantize(
    project: Annotated[
        Path, typer.Argument(metavar="PROJECT", help="The bundle's project, with its model.yaml.")
    ],
    inputs: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Sample inputs, a hundred or more.",
            show_default="inputs of build.toml",
        ),
    ] = None,
    reference: Annotated[
        Path | None,
        typer.Option(
            metavar="FP32.onnx",
            help="The float32 model.",
            show_default="reference of build.toml, or the project's own ONNX file",
        ),
    ] = None,
    types: Annotated[
        Types, typer.Option(help="Types of activations and weights: unsigned or signed.")
    ] = Types.u8s8,
    per_tensor: Annotated[
        bool, typer.Option("--per-tensor", help="One scale a weight instead of one a channel.")
    ] = False,
    calibration: Annotated[
        Method, typer.Option(help="How the range of a tensor is found.")
    ] = Method.minmax,
    percentile: Annotated[
        float | None,
        typer.Option(
            min=50,
            max=100,
            help="Share of the values inside the range, for --calibration percentile.",
            show_default=str(_PERCENTILE),
        ),
    ] = None,
    reduce_range: Annotated[
        bool,
        typer.Option("--reduce-range", help="Weights of 7 bits, for x86 processors without VNNI."),
    ] = False,
    exclude: Annotated[
        list[str] | None,
        typer.Option(metavar="NODE", help="A node, or its output, that stays float; repeatable."),
    ] = None,
    at_most: Annotated[
        int, typer.Option(min=1, metavar="N", help="How many of the inputs are used.")
    ] = 100,
    output_file: Annotated[
        str | None,
        typer.Option(
            "--output",
            metavar="FILE",
            help="Path of the new file inside the project.",
            show_default="weights/NAME-TYPES.onnx",
        ),
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Write it even if its answers lie too far off.")
    ] = False,
    json: options.JsonOption = False,
) -> None:
    """Make an INT8 model of a float32 one, calibrated through the bundle's own pipeline.

    The model.yaml names the new file only where the answers stay as close to the float model's as
    its contract asks; a model with one scale for a whole weight often fails there.
    """
    from edge_agent.authoring.quantising.calibration import Calibration
    from edge_agent.authoring.quantising.quantisation import QuantiseRequest, quantise, require
    from edge_agent.authoring.quantising.quantiser import Scheme

    if percentile is not None and calibration is not Method.percentile:
        raise ConfigError("--percentile goes with --calibration percentile")
    scheme = Scheme(types.value, not per_tensor, reduce_range, tuple(exclude or ()))
    how = Calibration(calibration.value, _PERCENTILE if percentile is None else percentile)
    request = QuantiseRequest(
        project, scheme, how, at_most, inputs, reference, output_file, force=force
    )
    with bars.tidy_interrupt():  # temporary copies of the model are removed
        made = quantise(Agent(configuration.load(), output.notice), request, watchdog.watched)
    if json:
        output.document(_document(request, made))
    else:
        _print(request, made)
    require(made, request)
    _tell(request, made)


def _document(request: QuantiseRequest, made: Quantised) -> dict[str, Any]:
    scheme, how = request.scheme, request.calibration
    return {
        "schema": "edge-agent/model-quantize/v1",
        "project": str(request.folder),
        "written": made.written,
        "file": made.file,
        "reference": str(made.reference),
        "types": scheme.types,
        "reduce_range": scheme.reduce_range,
        "excluded": list(scheme.exclude),
        "calibration": {
            "method": how.method,
            "percentile": how.percentile if how.method == "percentile" else None,
            "samples": made.samples,
        },
        "size_bytes": {"float": made.float_bytes, "int8": made.int8_bytes},
        "operators": [
            {"type": one.type, "quantised": one.quantised, "total": one.total}
            for one in made.operators
        ],
        "weights": {
            "per_channel": made.weights.per_channel,
            "per_tensor": made.weights.per_tensor,
        },
        "latency_ms": {
            "float": round(made.latency.float_ms, 3),
            "int8": round(made.latency.int8_ms, 3),
            "runs": made.latency.runs,
            "threads": made.latency.threads,
        },
        "golden_problem": made.wrong_golden,
        "forced": made.written and bool(made.drift.breaches),
        "drift": made.drift.as_json(),
    }


def _print(request: QuantiseRequest, made: Quantised) -> None:
    times = made.float_bytes / made.int8_bytes
    speed = made.latency.float_ms / made.latency.int8_ms
    rows = [
        [
            "size",
            _size(made.float_bytes),
            _size(made.int8_bytes),
            _times(times, "smaller", "larger"),
        ],
        [
            f"latency, {made.latency.threads} thread{'s' if made.latency.threads > 1 else ''}",
            f"{made.latency.float_ms:.2f} ms",
            f"{made.latency.int8_ms:.2f} ms",
            _times(speed, "as fast", "as slow"),
        ],
    ]
    title = made.file if made.written else f"{made.file}, not written"
    output.table(title, ["", "float32", request.scheme.types, ""], rows)
    output.line(f"quantised: {_operators(made)}")
    weights = made.weights
    output.line(f"weights: {weights.per_channel} per channel, {weights.per_tensor} per tensor")
    output.line(f"calibration: {_calibration(request)} over {made.samples} inputs")
    for engine in made.drift.engines:
        for name, one in engine.outputs.items():
            top1 = "" if one.top1 is None else f", same best class {one.top1:.1%}"
            output.line(
                f"drift of {name}: relative L2 {one.relative_l2:.3f}, cosine {one.cosine:.4f}{top1}"
            )
    if made.written:
        output.line(f"model.yaml names {made.file} now; build.toml names its reference")
    if made.earlier:
        output.line(f"{made.earlier}, which it named before, is still there")


def _operators(made: Quantised) -> str:
    return ", ".join(f"{one.quantised} of {one.total} {one.type}" for one in made.operators)


def _calibration(request: QuantiseRequest) -> str:
    how = request.calibration
    return f"percentile {how.percentile:g}" if how.method == "percentile" else how.method


def _size(size: int) -> str:
    return f"{size / 2**20:.2f} MiB" if size >= 2**20 else f"{size / 2**10:.1f} KiB"


def _times(ratio: float, more: str, less: str) -> str:
    return f"{ratio:.1f} times {more}" if ratio >= 1 else f"{1 / ratio:.1f} times {less}"


def _tell(request: QuantiseRequest, made: Quantised) -> None:
    """Tells what its author should do something about."""
    if made.drift.breaches:
        broken = "; ".join(map(str, made.drift.breaches))
        output.notice(f"written because of --force, although {broken}")
    if made.wrong_golden:
        output.notice(f"the golden input is answered differently now: {made.wrong_golden}")
        output.hint(f"if that is right: edge-agent bundle golden {request.folder}")
    if made.latency.is_slower:
        output.notice("INT8 is slower than float32 on this machine; the device is what counts")
        output.hint("measure there: edge-agent bench")
    if made.may_saturate:
        output.notice("this processor has no VNNI: sums of 8-bit products may saturate on it")
        output.hint("compare with --reduce-range, which gives weights of 7 bits")
