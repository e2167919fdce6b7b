"""Schemas of the OpenAPI document: JSON Schema (draft 2020-12) of what is sent and returned."""

from __future__ import annotations

from typing import Any, Final

from edge_agent.answers import SCHEMA
from edge_agent.server.datatypes import BYTES, DATATYPES
from edge_agent.server.v1_requests import MAX_CALLS
from edge_agent.server.v2_messages import MAX_TENSORS

_Schema = dict[str, Any]

_TEXT: Final[_Schema] = {"type": "string"}
_FLAG: Final[_Schema] = {"type": "boolean"}
_COUNT: Final[_Schema] = {"type": "integer", "minimum": 0}
_SIZE: Final[_Schema] = {"type": "integer", "minimum": 0, "maximum": 2**63 - 1}
_NAME: Final[_Schema] = {"type": "string", "minLength": 1, "maxLength": 256}
_STATE: Final[_Schema] = {"enum": ["READY", "LOADING", "UNLOADING", "UNAVAILABLE"]}


def _list(items: _Schema, **more: Any) -> _Schema:
    return {"type": "array", "items": items, **more}


def _object(required: _Schema, optional: _Schema | None = None) -> _Schema:
    return {
        "type": "object",
        "properties": required | (optional or {}),
        "required": list(required),
    }


def _nullable(schema: _Schema) -> _Schema:
    return {"anyOf": [schema, {"type": "null"}]}


def _ref(name: str) -> _Schema:
    return {"$ref": f"#/components/schemas/{name}"}


# Numbers nested as deep as the shape, or flat.
_VALUES: Final = _list({"type": ["number", "boolean", "array"]})
_INPUT: Final = _object(
    {
        "name": _NAME,
        "shape": _list(_SIZE, maxItems=8),
        "datatype": {"enum": [*DATATYPES.values(), BYTES]},
    },
    {"data": _VALUES, "parameters": _object({}, {"binary_data_size": _nullable(_SIZE)})},
)
_OUTPUT_PARAMETERS: Final = _object(
    {},
    {
        "binary_data": _nullable(_FLAG),
        "classification": {"type": "integer", "minimum": 0, "maximum": 1000},
    },
)
_REQUEST_PARAMETERS: Final = _object(
    {},
    {
        "binary_data_output": _FLAG,
        "priority": {"type": "integer", "minimum": 0, "maximum": 4},
        "timeout": {**_SIZE, "description": "Microseconds; 0 means none."},
    },
)
_REQUESTS: Final[dict[str, _Schema]] = {
    "InferRequest": _object(
        {"inputs": _list(_INPUT, minItems=1, maxItems=MAX_TENSORS)},
        {
            "id": _nullable(_TEXT),
            "outputs": _list(
                _object({"name": _NAME}, {"parameters": _OUTPUT_PARAMETERS}),
                maxItems=MAX_TENSORS,
            ),
            "parameters": _REQUEST_PARAMETERS,
        },
    ),
    "PredictRequest": {
        "type": "object",
        "properties": {
            "instances": _list({}, minItems=1, maxItems=MAX_CALLS),
            "inputs": {"type": ["object", "array"]},
        },
        "oneOf": [{"required": ["instances"]}, {"required": ["inputs"]}],
    },
    "IndexRequest": _object({}, {"ready": _FLAG}),
    "LoadRequest": _object({}, {"parameters": _object({}, {"version": _nullable(_TEXT)})}),
}
_TENSOR: Final = _object(
    {"name": _TEXT, "datatype": _TEXT, "shape": _list({"type": "integer", "minimum": -1})}
)
_CONFIG_TENSOR: Final = _object(
    {"name": _TEXT, "data_type": _TEXT, "dims": _list({"type": "integer", "minimum": -1})}
)
_REPLY_OUTPUT: Final = _object(
    {"name": _TEXT, "datatype": _TEXT, "shape": _list(_COUNT)},
    {
        "data": _list({"type": ["number", "boolean", "string", "null"]}),
        "parameters": _object({"binary_data_size": _COUNT}),
    },
)
_ENTRY: Final = _object(
    {
        "name": _TEXT,
        "version": _TEXT,
        "state": _STATE,
        "reason": _TEXT,
        "digest": _TEXT,
        "engine": _TEXT,
        "live": _FLAG,
        "aliases": _list(_TEXT),
    }
)
_DURATION: Final = _object({"count": _COUNT, "ns": _COUNT})
_STATISTICS: Final = _object(
    {
        "name": _TEXT,
        "version": _TEXT,
        "last_inference": _COUNT,
        "inference_count": _COUNT,
        "execution_count": _COUNT,
        "inference_stats": {"type": "object", "additionalProperties": _DURATION},
        "batch_stats": _list({"type": "object"}),
    }
)
_ANSWER: Final = _object(
    {
        "schema": {"const": SCHEMA},
        "input": {"type": ["string", "null"]},
        "model": _object({"name": _TEXT, "version": _TEXT, "digest": _TEXT}),
        "engine": _TEXT,
        "labels": _list(
            _object({"index": _COUNT, "label": _TEXT, "score": {"type": ["number", "null"]}})
        ),
        "outputs": _list(
            _object(
                {
                    "name": _TEXT,
                    "dtype": _TEXT,
                    "shape": _list(_COUNT),
                    "data": _list({"type": ["number", "boolean", "null"]}),
                }
            )
        ),
        "confident": {"type": ["boolean", "null"]},
        "timings_ms": {"type": "object", "additionalProperties": {"type": "number"}},
        "cached": _FLAG,
    }
)
_V1_VERSION: Final = _object(
    {
        "version": _TEXT,
        "state": {"enum": ["AVAILABLE", "LOADING", "UNLOADING", "END"]},
        "status": _object({"error_code": _TEXT, "error_message": _TEXT}),
    }
)
_REPLIES: Final[dict[str, _Schema]] = {
    "Error": _object({"error": _TEXT, "kind": _TEXT}, {"hint": _TEXT}),
    "Alive": _object({"status": {"const": "alive"}}),
    "Server": _object({"name": _TEXT, "version": _TEXT, "extensions": _list(_TEXT)}),
    "Live": _object({"live": _FLAG}),
    "Ready": _object({"live": _FLAG, "ready": _FLAG}),
    "OpenApi": {"type": "object"},
    "Model": _object(
        {
            "name": _TEXT,
            "versions": _list(_TEXT),
            "platform": _TEXT,
            "inputs": _list(_TENSOR),
            "outputs": _list(_TENSOR),
        }
    ),
    "ModelReady": _object({"name": _TEXT, "ready": _FLAG}, {"error": _TEXT}),
    "Config": _object(
        {
            "name": _TEXT,
            "platform": _TEXT,
            "backend": _TEXT,
            "max_batch_size": {"const": 0},
            "input": _list(_CONFIG_TENSOR),
            "output": _list(_CONFIG_TENSOR),
        }
    ),
    "Statistics": _object({"model_stats": _list(_STATISTICS)}),
    "Entry": _ENTRY,
    "Index": _list(_ref("Entry")),
    "Empty": {"type": "object", "maxProperties": 0},
    "Reloaded": _object({"needs_a_restart": _list(_TEXT)}),
    "ModelsV1": _object({"models": _list(_TEXT)}),
    "StatusV1": _object(
        {"name": _TEXT, "ready": _FLAG, "model_version_status": _list(_V1_VERSION)}
    ),
    "InferResponse": _object(
        {"model_name": _TEXT, "model_version": _TEXT, "outputs": _list(_REPLY_OUTPUT)},
        {"id": _TEXT},
    ),
    "Answer": _ANSWER,
    "PredictResponse": _object({"predictions": _list({})}),
}

SCHEMAS: Final[dict[str, _Schema]] = _REQUESTS | _REPLIES
