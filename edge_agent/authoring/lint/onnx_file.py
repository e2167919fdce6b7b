"""Checks of an ONNX file, from its bytes to its shapes; run in the child process."""

from __future__ import annotations

from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edge_agent.authoring import onnx_graphs
from edge_agent.authoring.lint import onnx_data, onnx_graph, onnx_operators, onnx_weights
from edge_agent.authoring.lint.findings import Finding, one_line
from edge_agent.authoring.project import read_file
from edge_agent.backends.base import ModelFile
from edge_agent.bundles import MAX_MODEL_BYTES
from edge_agent.errors import ModelFileError

if TYPE_CHECKING:
    from edge_agent.authoring.lint.child import Teller
    from edge_agent.authoring.lint.isolated import Job

_MAX_CHECKED_BYTES = 2**31 - 1  # protobuf's own limit: the checker serialises the whole model


def look(job: Job, tell: Teller) -> bool:
    """Checks the file.

    Returns:
        Whether it is worth trying on an engine.
    """
    from edge_signing.errors import BundleInvalid
    from edge_signing.external_data import external_files

    tell.stage("reading it")
    data = read_file(Path(job.folder), job.file, MAX_MODEL_BYTES)
    try:
        locations = external_files(BytesIO(data), len(data))
        proto = onnx_graphs.parse(ModelFile(data), job.file)
    except (BundleInvalid, ModelFileError) as error:
        tell.finding(Finding("file-damaged", job.file, one_line(error.message), hint=error.hint))
        return False
    tell.facts(quantised=onnx_graphs.is_quantised(proto))
    external = _all(tell, onnx_data.check(Path(job.folder), job.file, proto, locations))
    sound = _all(tell, onnx_operators.check(proto, job.file))
    sound = _all(tell, onnx_graph.check(proto, job.file)) and sound
    if sound and external:
        sound = _checker(job, proto, data, tell)
    tell.stage("reading its weights")
    _all(tell, onnx_weights.check(Path(job.folder), job.file, proto, with_external=external))
    return sound and external


def _all(tell: Teller, findings: Any) -> bool:
    """Tells findings; False where one is an error."""
    before = tell.errors
    for one in findings:
        tell.finding(one)
    return tell.errors == before


def _checker(job: Job, proto: Any, data: bytes, tell: Teller) -> bool:
    onnx = onnx_graphs.package()
    if len(data) > _MAX_CHECKED_BYTES:
        tell.note(f"{job.file} is too large for the ONNX checker")
        return True
    tell.stage("the ONNX checker")
    subject = str(Path(job.folder, job.file)) if onnx_data.has_external(proto) else data
    try:
        onnx.checker.check_model(subject)
    except (onnx.checker.ValidationError, ValueError, RuntimeError) as error:
        tell.finding(Finding("graph-invalid", job.file, one_line(str(error))))
        return False
    tell.stage("ONNX shape inference")
    try:
        onnx.shape_inference.infer_shapes(data, check_type=True, strict_mode=True, data_prop=True)
    except (onnx.shape_inference.InferenceError, ValueError, RuntimeError) as error:
        # ONNX Runtime can't either, where it is handed bytes instead of a path.
        inside = "save shapes inside the model: onnx.save(…, size_threshold=1024)"
        hint = inside if "external tensors" in str(error) else None
        tell.finding(Finding("graph-shapes", job.file, one_line(str(error)), hint=hint))
        return False
    return True
