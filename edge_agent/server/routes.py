"""The table of operations: what is served, and what the OpenAPI document says of it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from msgspec import Struct

from edge_agent.server import about, inference, models

if TYPE_CHECKING:
    from edge_agent.server.exchange import Exchange
    from edge_agent.server.parts import Parts
    from edge_agent.server.replies import Reply

Handler: TypeAlias = "Callable[[Parts, Exchange], Awaitable[Reply]]"
Body = Literal["", "InferRequest", "PredictRequest", "IndexRequest", "LoadRequest", "image"]

RELOAD: Final = "/reload"
_MODEL: Final = "/v2/models/{name}"


class Route(Struct, frozen=True):
    """One operation.

    Attributes:
        method: HTTP method; HEAD comes with GET.
        path: With ``{name}`` for a model, as `paths.Target` has it.
        handler: What does it.
        summary: One line.
        response: Name of the schema of its document; ``metrics`` for text.
        body: Name of the schema of what it takes.
        is_versioned: Whether ``/versions/{version}`` may follow the name.
        runs: Whether it runs a model, with all that may go wrong then.
        unready: Whether it answers 503 with the same document.
        is_hidden: Whether it only refuses, and stands in no document.
    """

    method: Literal["GET", "POST"]
    path: str
    handler: Handler
    summary: str
    response: str
    body: Body = ""
    is_versioned: bool = False
    runs: bool = False
    unready: bool = False
    is_hidden: bool = False


_ABOUT: Final = (
    Route("GET", "/", about.alive, "Liveness, KServe v1", "Alive"),
    Route("GET", "/v2", about.metadata, "Server metadata", "Server"),
    Route("GET", "/v2/health/live", about.live, "Liveness", "Live"),
    Route("GET", "/v2/health/ready", about.ready, "Readiness", "Ready", unready=True),
    Route("GET", "/metrics", about.metrics, "Metrics for Prometheus", "metrics"),
    Route("GET", "/openapi.json", about.openapi, "This document", "OpenApi"),
)
_MODELS: Final = (
    Route("GET", _MODEL, models.metadata, "Model metadata", "Model", is_versioned=True),
    Route(
        "GET",
        f"{_MODEL}/ready",
        models.ready,
        "Model readiness",
        "ModelReady",
        is_versioned=True,
        unready=True,
    ),
    Route(
        "GET",
        f"{_MODEL}/config",
        models.configuration,
        "Model configuration",
        "Config",
        is_versioned=True,
    ),
    Route(
        "GET",
        f"{_MODEL}/stats",
        models.statistics,
        "Statistics of a model",
        "Statistics",
        is_versioned=True,
    ),
    Route("GET", "/v2/models/stats", models.statistics, "Statistics", "Statistics"),
    Route(
        "POST", "/v2/repository/index", models.index, "Repository index", "Index", "IndexRequest"
    ),
    Route("GET", "/v1/models", models.models_v1, "Models, KServe v1", "ModelsV1"),
    Route(
        "GET",
        "/v1/models/{name}",
        models.status_v1,
        "Model status, KServe v1",
        "StatusV1",
        is_versioned=True,
        unready=True,
    ),
)
_INFERENCE: Final = (
    Route(
        "POST",
        f"{_MODEL}/infer",
        inference.infer,
        "Inference",
        "InferResponse",
        "InferRequest",
        is_versioned=True,
        runs=True,
    ),
    Route(
        "POST",
        "/infer/{name}",
        inference.infer_image,
        "Inference for an image file",
        "Answer",
        "image",
        is_versioned=True,
        runs=True,
    ),
    Route(
        "POST",
        "/v1/models/{name}:predict",
        inference.predict,
        "Prediction, KServe v1",
        "PredictResponse",
        "PredictRequest",
        is_versioned=True,
        runs=True,
    ),
)
_LOAD: Final = "/v2/repository/models/{name}/load"
_UNLOAD: Final = "/v2/repository/models/{name}/unload"
_REFUSED: Final = (
    Route("POST", _LOAD, models.refuse_change, "Load a model", "Entry", is_hidden=True),
    Route("POST", _UNLOAD, models.refuse_change, "Unload a model", "Empty", is_hidden=True),
)
_CHANGES: Final = (
    Route("POST", _LOAD, models.load, "Load a model", "Entry", "LoadRequest", runs=True),
    Route("POST", _UNLOAD, models.unload, "Unload a model", "Empty", "LoadRequest"),
)

DATA: Final[tuple[Route, ...]] = _ABOUT + _MODELS + _INFERENCE + _REFUSED
ADMIN: Final[tuple[Route, ...]] = _ABOUT + _MODELS + _INFERENCE + _CHANGES
