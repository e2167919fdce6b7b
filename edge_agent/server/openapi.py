"""The OpenAPI document, made from the table of operations.

Source: OpenAPI Specification 3.1.0.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec

from edge_agent import __version__
from edge_agent.server.exchange import (
    KEY_PATTERN,
    MAX_TIMEOUT_MS,
    PRIORITIES,
    REQUEST_ID_PATTERN,
)
from edge_agent.server.inference import MAX_TOP_K
from edge_agent.server.openapi_schemas import SCHEMAS

if TYPE_CHECKING:
    from edge_agent.server.routes import Route

_Part = dict[str, Any]
_JSON: Final = "application/json"
_BINARY: Final = "application/octet-stream"
_FILE: Final[_Part] = {"schema": {"type": "string", "format": "binary", "minLength": 1}}
_ERRORS: Final = {
    400: "The request is at fault",
    401: "Nobody knows who asks",
    403: "This isn't for who asks",
    404: "There is no such model",
    405: "Another method is needed",
    408: "The body didn't arrive in time",
    409: "The configuration can't be used",
    413: "The body is too large",
    415: "The body is of a type that isn't read",
    421: "The Host header names another server",
    429: "The caller's share is used up",
    500: "The model, its worker or the agent failed",
    503: "It can't be answered now",
    504: "It couldn't be answered in time",
}
_ALWAYS: Final = (400, 401, 403, 405, 421, 500, 503)
_OF_BODIES: Final = (408, 413, 415)
_OF_RUNS: Final = (429, 504)


def _header(name: str, schema: _Part, description: str) -> _Part:
    return {"name": name, "in": "header", "schema": schema, "description": description}


_REQUEST_ID: Final = _header(
    "X-Request-ID",
    {"type": "string", "pattern": REQUEST_ID_PATTERN},
    "For logs; it comes back in the reply.",
)
_OF_CALLS: Final = (
    _header(
        "Edge-Agent-Timeout-Ms",
        {"type": "integer", "minimum": 1, "maximum": MAX_TIMEOUT_MS},
        "The answer is of no use later, in milliseconds.",
    ),
    _header("Edge-Agent-Priority", {"enum": list(PRIORITIES)}, "The class of the call."),
    _header(
        "Idempotency-Key",
        {"type": "string", "pattern": KEY_PATTERN},
        "A call with the same key isn't run again.",
    ),
)
_HEADER_LENGTH: Final = _header(
    "Inference-Header-Content-Length",
    {"type": "integer", "minimum": 0},
    "How many bytes of the body are JSON; tensors follow as bytes.",
)
_TOP_K: Final[_Part] = {
    "name": "top_k",
    "in": "query",
    "schema": {"type": "integer", "minimum": 1, "maximum": MAX_TOP_K},
    "description": "How many classes; as the bundle says without it.",
}


def document(table: Sequence[Route], more: Mapping[str, _Part] | None = None) -> bytes:
    """Returns the document of a table of operations, as JSON.

    Args:
        table: The operations.
        more: What is served at other paths.
    """
    paths = dict(more or {})
    for route in table:
        if route.is_hidden:
            continue
        forms = [route.path]
        if route.is_versioned:
            forms.append(route.path.replace("{name}", "{name}/versions/{version}"))
        for form in forms:
            operation = _operation(route, form)
            paths.setdefault(form, {})[route.method.lower()] = operation
    return msgspec.json.encode(
        {
            "openapi": "3.1.0",
            "info": {
                "title": "edge-agent",
                "version": __version__,
                "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
                "description": "Open Inference Protocol v2, KServe v1, and image files.",
            },
            "servers": [{"url": "/"}],
            "security": [{"bearer": []}],
            "paths": paths,
            "components": {
                "schemas": SCHEMAS,
                "securitySchemes": {"bearer": {"type": "http", "scheme": "bearer"}},
            },
        }
    )


def _operation(route: Route, form: str) -> _Part:
    has_version = "{version}" in form
    last = route.path.rsplit("/", 1)[-1].replace("{name}", "").strip(":") or route.response
    made: _Part = {
        "operationId": f"{route.handler.__module__.rsplit('.', 1)[-1]}.{route.handler.__name__}"
        + (f".{last}" if route.path == "/v2/models/stats" else "")
        + (".version" if has_version else ""),
        "summary": route.summary,
        "parameters": _parameters(route, form),
        "responses": _responses(route),
    }
    if route.body:
        made["requestBody"] = {
            "required": route.body not in ("IndexRequest", "LoadRequest"),
            "content": _content(route),
        }
    return made


def _parameters(route: Route, form: str) -> list[_Part]:
    found = [
        {
            "name": name,
            "in": "path",
            "required": True,
            "schema": {"type": "string", "minLength": 1, "maxLength": 128},
        }
        for name in ("name", "version")
        if f"{{{name}}}" in form
    ]
    found.append(_REQUEST_ID)
    if route.body == "InferRequest":
        found.append(_HEADER_LENGTH)
    if route.body == "image":
        found.append(_TOP_K)
    if route.runs and route.body != "LoadRequest":
        found.extend(_OF_CALLS)
    return found


def reload() -> _Part:
    """Returns the path of the admin socket at which the configuration is read again."""
    reply = {"schema": {"$ref": "#/components/schemas/Reloaded"}}
    found = {str(code): _error(code) for code in sorted({*_ALWAYS, 409})}
    found["200"] = {"description": "Done", "content": {_JSON: reply}}
    made = {
        "operationId": "admin_routes.reload",
        "summary": "Configuration, tokens and keyring, read again",
        "parameters": [_REQUEST_ID],
        "responses": dict(sorted(found.items())),
    }
    return {"post": made}


def _content(route: Route) -> _Part:
    if route.body == "image":
        form = {
            "type": "object",
            "properties": {"file": {"type": "string", "contentMediaType": "image/*"}},
            "required": ["file"],
        }
        return {"image/*": _FILE, _BINARY: _FILE, "multipart/form-data": {"schema": form}}
    schema = {"schema": {"$ref": f"#/components/schemas/{route.body}"}}
    return {_JSON: schema, _BINARY: _FILE} if route.body == "InferRequest" else {_JSON: schema}


def _responses(route: Route) -> _Part:
    statuses = {*_ALWAYS, *(_OF_BODIES if route.body else ()), *(_OF_RUNS if route.runs else ())}
    if "{name}" in route.path:
        statuses.add(404)
    found = {str(code): _error(code) for code in sorted(statuses)}
    found["200"] = _success(route)
    if route.unready:
        schema = {"$ref": f"#/components/schemas/{route.response}"}
        error = {"$ref": "#/components/schemas/Error"}
        found["503"]["content"][_JSON]["schema"] = {"anyOf": [schema, error]}
    return dict(sorted(found.items()))


def _success(route: Route) -> _Part:
    headers: _Part = {"X-Request-ID": {"schema": {"type": "string"}, "required": True}}
    if route.runs and route.body != "LoadRequest":
        headers["Edge-Agent-Engine"] = {"schema": {"type": "string"}, "required": True}
        headers["Edge-Agent-Cache"] = {"schema": {"enum": ["hit", "miss"]}, "required": True}
        headers["Server-Timing"] = {"schema": {"type": "string"}, "required": True}
    if route.response == "metrics":
        content: _Part = {"text/plain": {"schema": {"type": "string"}}}
    else:
        content = {_JSON: {"schema": {"$ref": f"#/components/schemas/{route.response}"}}}
    if route.body == "InferRequest":
        headers["Inference-Header-Content-Length"] = {"schema": {"type": "integer"}}
        content[_BINARY] = {"schema": {"type": "string", "format": "binary"}}
    return {"description": "Done", "headers": headers, "content": content}


def _error(code: int) -> _Part:
    headers: _Part = {"X-Request-ID": {"schema": {"type": "string"}, "required": True}}
    if code == 405:
        headers["Allow"] = {"schema": {"type": "string"}, "required": True}
    if code == 401:
        headers["WWW-Authenticate"] = {"schema": {"type": "string"}, "required": True}
    if code in (429, 503):
        headers["Retry-After"] = {"schema": {"type": "integer", "minimum": 1}}
    schema = {"$ref": "#/components/schemas/Error"}
    return {
        "description": _ERRORS[code],
        "headers": headers,
        "content": {_JSON: {"schema": schema}},
    }
