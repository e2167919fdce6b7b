"""Tensors written as JSON: bytes stay bytes until they are known to be numbers."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final

import msgspec
import numpy as np

from edge_agent.errors import TensorError

if TYPE_CHECKING:
    from edge_agent.description import TensorSpec
    from edge_agent.types import Tensor

MAX_JSON_BYTES: Final = 32 * 1024 * 1024
# Any number, written in full on an indented line of its own, takes less.
_JSON_BYTES_AN_ELEMENT: Final = 64
_MIN_JSON_LIMIT: Final = 64 * 1024
_MAX_AXES: Final = 8
_SPACE: Final = b" \t\r\n"
_BRACKETS: Final = b"[],"
_NUMBERS: Final = _BRACKETS + _SPACE + b"+-.eE0123456789"
_TRUTHS: Final = _BRACKETS + _SPACE + b"truefals"
_NO_BRACKETS: Final = bytes.maketrans(b"[]", b"  ")
# Numbers as Python objects take eight times their text: so many bytes of it become them at once.
_PIECE: Final = 64 * 1024


def text(data: bytes, name: str, spec: TensorSpec) -> bytes:
    """Returns the text of an array of numbers, before any of them becomes an object.

    Args:
        data: JSON: the array, or an object that has it under the input's name.
        name: Where it came from, for messages.
        spec: What is wanted.

    Raises:
        TensorError: It isn't JSON, has no such member, is too large, or holds what isn't of
            the dtype.
    """
    _check_size(len(data), MAX_JSON_BYTES, name)
    try:
        found = _array(data, name, spec)
    except (ValueError, RecursionError, msgspec.MsgspecError) as error:
        raise TensorError(f"is not readable JSON: {_first_line(error)}", path=name) from error
    _check_size(len(found), _limit(spec), name)
    allowed = _TRUTHS if spec.dtype == "bool" else _NUMBERS
    if found.translate(None, allowed):
        raise TensorError(f"holds values that are not {spec.dtype}", path=name)
    return found


def _limit(spec: TensorSpec) -> int:
    """Returns how many bytes of JSON the tensor may take."""
    fixed = [axis for axis in spec.shape if isinstance(axis, int)]
    if len(fixed) < len(spec.shape):
        return MAX_JSON_BYTES
    wanted = max(_MIN_JSON_LIMIT, _JSON_BYTES_AN_ELEMENT * math.prod(fixed))
    return min(MAX_JSON_BYTES, wanted)


def _check_size(size: int, limit: int, name: str) -> None:
    if size > limit:
        raise TensorError(
            f"is {size} bytes, the limit for this tensor in JSON is {limit}",
            path=name,
            hint="save the tensor with numpy.save",
        )


def _array(data: bytes, name: str, spec: TensorSpec) -> bytes:
    """Returns the text of the document, or of its member for this input; its syntax is checked.

    Raises:
        ValueError: It isn't JSON.
        RecursionError: It is nested too deep.
        TensorError: It has no such member.
    """
    whole = msgspec.json.decode(data, type=msgspec.Raw)
    if not data.lstrip(_SPACE).startswith(b"{"):
        return bytes(whole)
    value = _member_text(data, spec.name)
    if not value:
        raise TensorError(f"has no member {spec.name!r}", path=name)
    return value


def _member_text(data: bytes, key: str) -> bytes:
    """Returns one member of a JSON object, empty where there is none; the others make no object."""
    if any(sign in '"\\' or sign < " " for sign in key):  # the parser takes no such field
        return bytes(msgspec.json.decode(data, type=dict[str, msgspec.Raw]).get(key, b""))
    field = ("value", msgspec.Raw, msgspec.Raw())
    member = msgspec.defstruct("Member", [field], rename={"value": key})
    found: Any = msgspec.json.decode(data, type=member)
    return bytes(found.value)


def shape(text: bytes, name: str) -> tuple[int, ...]:
    """Returns the shape of nested arrays, from their brackets and commas alone.

    Args:
        text: JSON of numbers.
        name: Where it came from, for messages.

    Raises:
        TensorError: Rows differ in length or in depth.
    """
    skeleton = text.translate(None, bytes(set(range(256)) - set(_BRACKETS)))
    axes = len(skeleton) - len(skeleton.lstrip(b"["))
    if axes > _MAX_AXES:
        raise TensorError(f"has {axes} axes, the most are {_MAX_AXES}", path=name)
    lengths: list[int] = []
    block = b""
    for depth in range(axes - 1, -1, -1):
        # An array ends where as many brackets close as its first element and itself have.
        end = skeleton.find(b"]" * (axes - depth), depth) + axes - depth
        count = (end - depth - 1) // (len(block) + 1)
        block = b"[" + ((block + b",") * count)[:-1] + b"]"
        lengths.insert(0, count)
    # The brackets of `[[]]` are those of `[[1]]`.
    hollow = b"[]" in text.translate(None, _SPACE)
    if hollow and not text.translate(None, _BRACKETS + _SPACE):
        lengths[-1] = 0
    elif hollow or block != skeleton:
        raise TensorError("its rows differ in length", path=name)
    return tuple(lengths)


def filled(text: bytes, dtype: np.dtype[Any], count: int, name: str) -> Tensor:
    """Returns the numbers of JSON text, flat, unless the type changes one by more than rounding.

    Args:
        text: JSON whose shape is known to be regular.
        dtype: The wanted type.
        count: How many there are.
        name: Where it came from, for messages.

    Raises:
        TensorError: One isn't of the type or doesn't fit in it, or there are fewer.
    """
    flat = text.translate(_NO_BRACKETS)
    made = np.empty(count, dtype)
    start = done = 0
    while start < len(flat):
        cut = flat.find(b",", start + _PIECE)
        end = len(flat) if cut < 0 else cut
        values = _numbers(flat[start:end], dtype, name)
        made[done : done + len(values)] = values
        start, done = end + 1, done + len(values)
    return made


def _numbers(text: bytes, dtype: np.dtype[Any], name: str) -> Tensor:
    try:
        values = msgspec.json.decode(b"[" + text + b"]")
    except (ValueError, msgspec.MsgspecError) as error:
        raise TensorError(f"is not readable JSON: {_first_line(error)}", path=name) from error
    try:
        return _typed(values, dtype, name)
    except OverflowError as error:
        raise TensorError(f"holds values beyond {dtype.name}", path=name) from error


def _typed(values: list[Any], dtype: np.dtype[Any], name: str) -> Tensor:
    kinds = {"f": (int, float), "b": (bool,)}.get(dtype.kind, (int,))
    if not set(map(type, values)).issubset(kinds):
        raise TensorError(f"holds values that are not {dtype.name}", path=name)
    if dtype.kind in "iu":
        bounds = np.iinfo(dtype)
        if not bounds.min <= min(values) <= max(values) <= bounds.max:
            raise TensorError(f"holds values beyond {dtype.name}", path=name)
    with np.errstate(over="ignore"):
        return np.asarray(np.array(values, np.float64 if dtype.kind == "f" else dtype), dtype)


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
