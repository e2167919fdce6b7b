"""Rows of KServe's v1 protocol (TensorFlow Serving's) as queries.

Source: KServe, "V1 Protocol"; TensorFlow Serving, "RESTful API", Predict.
"""

from __future__ import annotations

import asyncio
import binascii
from base64 import b64decode
from typing import TYPE_CHECKING, Annotated, Final

import msgspec
from msgspec import UNSET, Meta, Raw, Struct, UnsetType

from edge_agent.calls import InputTensor, Query
from edge_agent.errors import BadInputError
from edge_agent.server import json_bodies
from edge_agent.server.v2_messages import MAX_TENSORS

if TYPE_CHECKING:
    from edge_agent.description import ModelDescription, TensorSpec

MAX_CALLS: Final = 128
MAX_ROWS: Final = 4096


class _Predict(Struct, frozen=True):
    instances: Raw | UnsetType = UNSET
    inputs: Raw | UnsetType = UNSET


class _Base64(Struct, forbid_unknown_fields=True):
    b64: str


_PREDICT: Final = msgspec.json.Decoder(_Predict)
_MEMBERS: Final = msgspec.json.Decoder(Annotated[dict[str, Raw], Meta(max_length=MAX_TENSORS)])
_BASE64: Final = msgspec.json.Decoder(_Base64)

# What JSON of a number, a truth value, a list or an object begins with.
_VALUES: Final = b"-0123456789tf[{"
# So much is read sooner than a thread has begun.
_AT_ONCE_BYTES: Final = 1024 * 1024
# A multiple of four; so much of a text becomes bytes at a time, and others get on meanwhile.
_BASE64_PIECE: Final = 1024 * 1024

_Row = dict[str, bytes]


async def read(
    body: bytes | bytearray, description: ModelDescription, batches: bool
) -> tuple[list[Query], int]:
    """Reads the body of a prediction, a large one in a thread.

    Args:
        body: ``{"instances": [...]}``, or ``{"inputs": ...}`` with the same by columns.
        description: The model.
        batches: Whether rows run together.

    Returns:
        One query with all rows where the model batches, else one a row; and how many rows.

    Raises:
        BadInputError: It can't be used for this model.
    """
    if len(body) <= _AT_ONCE_BYTES:
        return _read(body, description, batches)
    return await asyncio.to_thread(_read, body, description, batches)


def _read(
    body: bytes | bytearray, description: ModelDescription, batches: bool
) -> tuple[list[Query], int]:
    asked = json_bodies.read(_PREDICT, body)
    if (asked.instances is UNSET) == (asked.inputs is UNSET):
        raise BadInputError("either instances or inputs is needed")
    if not isinstance(asked.inputs, UnsetType):
        text = bytes(asked.inputs)
        if text[:1] not in (b"{", b"["):
            raise BadInputError("inputs must be a list, or columns by name")
        rows = _columns(text, description)
    else:
        assert not isinstance(asked.instances, UnsetType)  # noqa: S101 - one of them is there
        instances = json_bodies.rows(bytes(asked.instances), MAX_ROWS)
        rows = [_row(one, description) for one in instances]
    most = MAX_ROWS if batches else MAX_CALLS
    if not 1 <= len(rows) <= most:
        raise BadInputError(f"1 to {most} instances are taken at a time, not {len(rows)}")
    if batches:
        return [_query(rows, description)], len(rows)
    return [_query([one], description) for one in rows], len(rows)


def _row(text: bytes, description: ModelDescription) -> _Row:
    """Returns an instance by input: it may name them, or be the value of the only one."""
    if text[:1] == b"{" and not _is_base64(text):
        return {name: bytes(raw) for name, raw in json_bodies.read(_MEMBERS, text).items()}
    return {_only(description).name: text}


def _columns(text: bytes, description: ModelDescription) -> list[_Row]:
    """Returns rows of what came by columns."""
    if text[:1] != b"{" or _is_base64(text):
        columns = {_only(description).name: text}
    else:
        columns = {name: bytes(raw) for name, raw in json_bodies.read(_MEMBERS, text).items()}
    by_name: dict[str, list[bytes]] = {}
    for name, column in columns.items():
        spec = description.input(name)
        is_whole = column[:1] != b"[" or (spec is not None and not _has_rows(spec))
        rows = [column] if is_whole else json_bodies.rows(column, MAX_ROWS)
        by_name[name] = rows
    if len({len(rows) for rows in by_name.values()}) != 1:
        raise BadInputError("the columns of inputs differ in length")
    return [dict(zip(by_name, row, strict=True)) for row in zip(*by_name.values(), strict=True)]


def _only(description: ModelDescription) -> TensorSpec:
    if len(description.inputs) != 1:
        names = ", ".join(spec.name for spec in description.inputs)
        raise BadInputError(f"the model has several inputs: name them: {names}")
    return description.inputs[0]


def _query(rows: list[_Row], description: ModelDescription) -> Query:
    if not rows[0]:
        raise BadInputError("an instance names no input")
    tensors = []
    images: list[bytes] = []
    for name in rows[0]:
        spec = description.input(name)
        if spec is None:
            known = ", ".join(one.name for one in description.inputs)
            raise BadInputError(f"the model has no input {name!r}; it takes {known}")
        values = [row[name] for row in rows if name in row]
        if len(values) < len(rows) or any(len(row) != len(rows[0]) for row in rows):
            raise BadInputError("the instances name different inputs")
        if any(one[0] not in _VALUES for one in values):
            raise BadInputError(f"input {name!r} takes numbers, lists of them, or base64")
        if values[0][:1] == b"{":
            images.extend(_image(one, spec, description) for one in values)
        else:
            tensors.append(_tensor(values, spec))
    return Query("outputs", tuple(tensors), tuple(images))


def _is_base64(text: bytes) -> bool:
    return text[1:].lstrip().startswith(b'"b64"')


def _image(text: bytes, spec: TensorSpec, description: ModelDescription) -> bytes:
    if description.preprocess is None or description.preprocess.input != spec.name:
        raise BadInputError(f"input {spec.name!r} takes numbers: it isn't fed by images")
    try:
        return _unpacked(json_bodies.read(_BASE64, text).b64)
    except (binascii.Error, ValueError) as error:
        raise BadInputError("b64 isn't base64") from error


def _unpacked(text: str) -> bytes:
    pieces = [text[at : at + _BASE64_PIECE] for at in range(0, len(text), _BASE64_PIECE)]
    if any(one.endswith("=") for one in pieces[:-1]):
        raise ValueError("more follows its end")
    return b"".join([b64decode(one, validate=True) for one in pieces])


def _has_rows(spec: TensorSpec) -> bool:
    """Whether the first axis counts rows: it is open, or 1."""
    return bool(spec.shape) and (spec.shape[0] == 1 or isinstance(spec.shape[0], str))


def _tensor(values: list[bytes], spec: TensorSpec) -> InputTensor:
    if _has_rows(spec):
        shape = (len(values), *_lengths(spec.shape[1:], values[0]))
        text = b"[" + b",".join(values) + b"]"
    else:
        shape = _lengths(spec.shape, values[0])
        text = values[0] if values[0][:1] == b"[" else b"[" + values[0] + b"]"
    return InputTensor(spec.name, spec.dtype, shape, text, is_json=True)


def _lengths(axes: tuple[int | str, ...], text: bytes) -> tuple[int, ...]:
    """Returns lengths of axes; open ones are as long as the first list of that depth.

    Counted in the text: a list of millions of lists isn't made only to be measured. Where it isn't
    rectangular, the lengths don't fit its values, which the worker finds.
    """
    if all(isinstance(axis, int) for axis in axes):
        return tuple(axis for axis in axes if isinstance(axis, int))
    plain = text.translate(None, b" \t\r\n")
    if not plain.startswith(b"[" * len(axes)):
        raise BadInputError(f"an instance must be a list {len(axes)} deep")
    is_empty = plain[len(axes) :].startswith(b"]")
    found: list[int] = []
    inner = 1
    for depth, axis in enumerate(reversed(axes), 1):
        values = plain.count(b",", 0, plain.find(b"]" * depth)) + 1
        length = 0 if is_empty and depth == 1 else values // inner
        found.insert(0, axis if isinstance(axis, int) else length)
        inner = values
    return tuple(found)
