"""Operations that tell of models, load and unload them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import Struct

from edge_agent.errors import BadInputError
from edge_agent.server import json_bodies, v2_documents
from edge_agent.server.errors import NotAllowedError
from edge_agent.server.replies import Reply, json_reply

if TYPE_CHECKING:
    from edge_agent.server.exchange import Exchange
    from edge_agent.server.parts import Parts
    from edge_agent.serving.service import ModelStatus

_V1_STATES: Final = {
    "READY": "AVAILABLE",
    "LOADING": "LOADING",
    "UNLOADING": "UNLOADING",
    "UNAVAILABLE": "END",
}


class _Index(Struct, frozen=True):
    ready: bool = False


class _LoadParameters(Struct, frozen=True):
    version: str | None = None


class _Load(Struct, frozen=True):
    parameters: _LoadParameters = _LoadParameters()


class _Names(Struct, frozen=True):
    parameters: dict[str, Any] = {}


_INDEX: Final = msgspec.json.Decoder(_Index)
_LOAD: Final = msgspec.json.Decoder(_Load)
_NAMES: Final = msgspec.json.Decoder(_Names)


async def metadata(parts: Parts, exchange: Exchange) -> Reply:
    """Tells what a model takes and gives."""
    status = parts.status(exchange.target)
    same = [one for one in parts.service.models() if one.ref.name == status.ref.name]
    versions = [one.ref.version for one in same if one.state == "READY"]
    if exchange.target.version is not None:
        versions = [status.ref.version]
    return json_reply(v2_documents.model(status, versions))


async def ready(parts: Parts, exchange: Exchange) -> Reply:
    """Tells whether a model answers."""
    status = parts.status(exchange.target)
    is_ready = status.state == "READY"
    document: dict[str, Any] = {"name": status.ref.name, "ready": is_ready}
    if not is_ready:
        document["error"] = parts.reason(status) or f"the model is {status.state}"
    return json_reply(document, 200 if is_ready else 503)


async def configuration(parts: Parts, exchange: Exchange) -> Reply:
    """Tells what Triton's model configuration has in common with ours."""
    return json_reply(v2_documents.configuration(parts.status(exchange.target)))


async def statistics(parts: Parts, exchange: Exchange) -> Reply:
    """Tells what a model, or each of them, has done."""
    name, version = exchange.target.name or None, exchange.target.version
    return json_reply(v2_documents.statistics(parts.service.statistics(name, version)))


async def index(parts: Parts, exchange: Exchange) -> Reply:
    """Lists the models."""
    asked = json_bodies.read(_INDEX, await parts.bodies.read(exchange) or b"{}")
    models = parts.service.models()
    return json_reply(
        [
            v2_documents.entry(one, parts.reason(one))
            for one in models
            if one.state == "READY" or not asked.ready
        ]
    )


async def models_v1(parts: Parts, exchange: Exchange) -> Reply:  # noqa: ARG001
    """Lists the names of models, for protocol v1."""
    names = {one.ref.name for one in parts.service.models()}
    return json_reply({"models": sorted(names)})


async def status_v1(parts: Parts, exchange: Exchange) -> Reply:
    """Tells of a model as KServe's v1 protocol and TensorFlow Serving do."""
    status = parts.status(exchange.target)
    same = [one for one in parts.service.models() if one.ref.name == status.ref.name]
    if exchange.target.version is not None:
        same = [status]
    is_ready = status.state == "READY"
    document = {
        "name": status.ref.name,
        "ready": is_ready,
        "model_version_status": [_version_status(one, parts.reason(one)) for one in same],
    }
    return json_reply(document, 200 if is_ready else 503)


async def load(parts: Parts, exchange: Exchange) -> Reply:
    """Loads a model."""
    version = await _version(parts, exchange)
    status = await parts.service.load(exchange.target.name, version)
    return json_reply(v2_documents.entry(status, parts.reason(status)))


async def unload(parts: Parts, exchange: Exchange) -> Reply:
    """Takes a model out of service."""
    version = await _version(parts, exchange)
    await parts.service.unload(exchange.target.name, version)
    return json_reply({})


async def refuse_change(parts: Parts, exchange: Exchange) -> Reply:  # noqa: ARG001
    """Refuses what only the admin socket does."""
    raise NotAllowedError(
        "models are loaded and unloaded through the admin socket only",
        hint=f"ask the owner of this machine to load {exchange.target.name}",
    )


async def _version(parts: Parts, exchange: Exchange) -> str | None:
    """Returns the version that a request to load or unload names."""
    body = await parts.bodies.read(exchange) or b"{}"
    for name in json_bodies.read(_NAMES, body).parameters:
        if name == "config" or name.startswith("file:"):
            raise BadInputError(
                f"parameter {name!r}: models run as they were signed",
                hint="build and sign a bundle, then install it",
            )
    asked = json_bodies.read(_LOAD, body).parameters.version
    given = exchange.target.version
    if asked is not None and given is not None and asked != given:
        raise BadInputError(f"the path says version {given}, the parameters {asked}")
    return given if asked is None else asked


def _version_status(one: ModelStatus, reason: str) -> dict[str, Any]:
    code = "UNAVAILABLE" if one.state == "UNAVAILABLE" else "OK"
    return {
        "version": one.ref.version,
        "state": _V1_STATES[one.state],
        "status": {"error_code": code, "error_message": reason},
    }
