"""Checks of versions and operators: what ONNX Runtime can run."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, Final

from edge_agent.authoring import onnx_graphs
from edge_agent.authoring.lint.findings import Finding

if TYPE_CHECKING:
    from collections.abc import Iterator

_ONNX_DOMAINS: Final = ("", "ai.onnx", "ai.onnx.ml")
# Source: ONNX Runtime, onnxruntime/core/graph/constants.h.
_RUNTIME_DOMAINS: Final = (
    "com.microsoft",
    "com.microsoft.nchwc",
    "com.microsoft.experimental",
    "com.ms.internal.nhwc",
    "ai.onnx.training",
    "ai.onnx.preview.training",
    "org.pytorch.aten",
)
# Source: ONNX Runtime, docs/Versioning.md: "supports all opsets from ONNX 1.2.1 (opset 7)".
MIN_OPSET: Final = 7
_SHOWN: Final = 5


def check(proto: Any, file: str) -> Iterator[Finding]:
    """Checks IR version, opsets, and that each operator is one that is known there."""
    onnx = onnx_graphs.package()
    if not 3 <= proto.ir_version <= onnx.IR_VERSION:
        said = f"has the IR version {proto.ir_version}, supported are 3 to {onnx.IR_VERSION}"
        yield Finding("ir-unsupported", file, said)
    opsets = {one.domain: one.version for one in proto.opset_import}
    latest = onnx.defs.onnx_opset_version()
    version = opsets.get("", opsets.get("ai.onnx", 0))
    if not MIN_OPSET <= version <= latest:
        said = f"has the opset {version}" if version else "names no opset"
        known = f"the package onnx {onnx.__version__} knows them up to {latest}"
        yield Finding(
            "opset-unsupported",
            file,
            f"{said}; ONNX Runtime begins with {MIN_OPSET}, {known}",
            hint="export the model again with another opset_version",
        )
        return
    yield from _unknown(proto, file, opsets | {"": version, "ai.onnx": version})


def _unknown(proto: Any, file: str, opsets: dict[str, int]) -> Iterator[Finding]:
    own = {(one.domain, one.name) for one in proto.functions}
    used = Counter((node.domain, node.op_type) for node in onnx_graphs.nodes(proto))
    strange = []
    for domain, name in sorted(used):
        if (domain, name) in own or domain in _RUNTIME_DOMAINS:
            continue
        if domain not in _ONNX_DOMAINS:
            strange.append(f"{domain}.{name}")
        elif not _has_schema(name, domain, opsets.get(domain, 0)):
            said = f"the operator {name} is not in opset {opsets.get(domain, 0)}"
            yield Finding("op-unknown", file, said + (f" of {domain}" if domain else ""))
    if strange:
        names = ", ".join(strange[:_SHOWN])
        more = f" and {len(strange) - _SHOWN} more" if len(strange) > _SHOWN else ""
        yield Finding(
            "op-custom",
            file,
            f"needs custom operators, which no engine here has: {names}{more}",
            hint="export the model without them",
        )


def _has_schema(name: str, domain: str, version: int) -> bool:
    defs = onnx_graphs.package().defs
    try:
        schema = defs.get_schema(name, version, "" if domain == "ai.onnx" else domain)
    except defs.SchemaError:
        return False
    return not schema.deprecated
