"""`edge-agent bundle inspect`: what a bundle says of itself, without trusting it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from edge_agent import clock
from edge_agent.cli import output
from edge_agent.description import digest_of_pipeline
from edge_agent.errors import DescriptionError
from edge_agent.model_yaml import parse
from edge_agent.yaml_subset import MAX_BYTES
from edge_signing.bundle import verify
from edge_signing.errors import SigningError
from edge_signing.sources import open_source, split_names
from edge_signing.trust import Purpose

if TYPE_CHECKING:
    from edge_agent.app import Agent
    from edge_agent.description import ModelDescription, TensorSpec
    from edge_signing.sources import BundleSource

SCHEMA: Final = "edge-agent/bundle-inspect/v1"


def inspect(agent: Agent, reference: str, as_json: bool) -> None:
    """Prints a bundle's description, files, and the verdict about it."""
    path = agent.locate(reference)
    with open_source(path) as source:
        described = describe(source)
        files, signatures = split_names(source.names())
        sizes = {name: source.size(name) for name in files}
        verdict = _verdict(agent, source)
    if as_json:
        output.document(
            {
                "schema": SCHEMA,
                "path": str(path),
                **verdict,
                "signatures": signatures,
                "files": [{"name": name, "size_bytes": size} for name, size in sizes.items()],
                "pipeline_digest": digest_of_pipeline(described),
                "model": msgspec.to_builtins(described),
            }
        )
        return
    _print(described, sizes, signatures, verdict)


def describe(source: BundleSource) -> ModelDescription:
    """Parses the model.yaml of a bundle that nobody has verified.

    Raises:
        DescriptionError: It is missing, or breaks a rule.
    """
    if "model.yaml" not in source.names():
        raise DescriptionError("is missing", path=f"{source.location}/model.yaml")
    with source.open("model.yaml") as stream:
        return parse(stream.read(MAX_BYTES + 1))


def _verdict(agent: Agent, source: BundleSource) -> dict[str, Any]:
    """Asks for the verdict as if it were to be loaded."""
    try:
        verified = verify(source, agent.keyring, clock.now(), Purpose.LOAD)
    except SigningError as error:
        return {"trusted": False, "reason": str(error), "digest": None}
    return {"trusted": True, "reason": verified.verdict.reason, "digest": verified.digest}


def _print(
    described: ModelDescription,
    sizes: dict[str, int],
    signatures: list[str],
    verdict: dict[str, Any],
) -> None:
    output.line(f"{described.name} {described.version}  ({described.task})")
    if described.summary:
        output.line(f"  {described.summary}")
    output.line(f"  {'trusted' if verdict['trusted'] else 'NOT trusted'}: {verdict['reason']}")
    contract = msgspec.to_builtins(described.contract)
    facts = [
        ("digest", verdict["digest"] or "unknown until it is trusted"),
        ("pipeline", digest_of_pipeline(described)),
        ("license", described.license or "not stated"),
        ("contract", ", ".join(f"{k} {v}" for k, v in contract.items() if v is not None)),
        ("signatures", str(len(signatures))),
    ]
    for label, value in facts:
        output.line(f"  {label:<10}  {value}")
    rows = [["input", *_tensor_row(spec)] for spec in described.inputs]
    rows += [["output", *_tensor_row(spec)] for spec in described.outputs]
    output.table("Tensors", ["", "name", "dtype", "shape", "layout", "range"], rows)
    engines = {part.file: part.engine for part in described.engines}
    output.table(
        "Files",
        ["file", "size", "engine"],
        [[name, f"{size:,} B", engines.get(name, "")] for name, size in sizes.items()],
    )


def _tensor_row(spec: TensorSpec) -> list[str]:
    return [
        spec.name,
        spec.dtype,
        " x ".join(str(axis) for axis in spec.shape),
        spec.layout or "",
        f"{spec.range[0]:g} to {spec.range[1]:g}" if spec.range else "",
    ]
