"""Input tensors from files, and the check of any tensor against its description."""

from __future__ import annotations

import io
import math
from typing import TYPE_CHECKING, Any, Final

import msgspec
import numpy as np

from edge_agent import npy
from edge_agent.description import MAX_TENSOR_BYTES
from edge_agent.errors import TensorError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from zipfile import ZipInfo

    from edge_agent.description import TensorSpec
    from edge_agent.types import Tensor

MAX_BYTES: Final = MAX_TENSOR_BYTES
_MAX_MEMBERS: Final = 1000
_SHOWN_MEMBERS: Final = 8
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


def read(data: bytes, name: str, spec: TensorSpec) -> Tensor:
    """Reads one tensor from the bytes of a ``.npy``, ``.npz`` or ``.json`` file.

    Args:
        data: At most 256 MiB, also when unpacked; JSON 32 MiB, and where all axes are fixed
            64 bytes an element or 64 KiB. Pickled objects are refused.
        name: The file's name; its ending says the format. An ``.npz`` holds the array under the
            input's name, or just one array.
        spec: What is wanted. JSON numbers become its dtype if they fit; arrays in the other two
            formats must already have it.

    Returns:
        A C-contiguous array that `check` has passed.

    Raises:
        TensorError: Unreadable, or not as described.
    """
    if len(data) > MAX_BYTES:
        raise TensorError(f"is {len(data)} bytes, the limit is {MAX_BYTES}", path=name)
    ending = name.rpartition(".")[2].lower()
    if ending == "npy":
        value = npy.parse(data, name)
    elif ending == "npz":
        value = _npz(data, name, spec)
    elif ending == "json":
        value = _json(data, name, spec)
    else:
        raise TensorError(
            "is neither .npy, .npz nor .json", path=name, hint="save the tensor with numpy.save"
        )
    return check(value, spec, name)


def check(value: Tensor, spec: TensorSpec, name: str) -> Tensor:
    """Compares a tensor with its description.

    Args:
        value: The tensor.
        spec: Shape, dtype and range that it must have.
        name: Where it came from, for messages.

    Returns:
        The same values, C-contiguous, aligned, and in the machine's byte order.

    Raises:
        TensorError: They differ; the message has both sides.
    """
    if value.dtype.name != spec.dtype:
        raise TensorError(
            f"is {value.dtype.name}, the input {spec.name!r} takes {spec.dtype}",
            path=name,
            hint=f"convert it where it is made: array.astype('{spec.dtype}')",
        )
    _check_shape(value.shape, spec, name)
    _check_range(value, spec, name)
    return np.require(value, value.dtype.newbyteorder("="), ["C_CONTIGUOUS", "ALIGNED"])


def check_axes(
    shapes: Mapping[str, tuple[int, ...]], specs: Sequence[TensorSpec], name: str
) -> None:
    """Checks that every input is there, and that axes of one name have one length.

    Args:
        shapes: Shapes by input name, axes in the described order.
        specs: All inputs of the model.
        name: Where they came from, for messages.

    Raises:
        TensorError: One is missing, or contradicts another.
    """
    lengths: dict[str, int] = {}
    for spec in specs:
        if spec.name not in shapes:
            raise TensorError(
                f"the input {spec.name!r} is missing",
                path=name,
                hint=f"give it with --input {spec.name}=FILE (.npy, .npz or .json)",
            )
        for axis, length in zip(spec.shape, shapes[spec.name], strict=True):
            if isinstance(axis, str) and lengths.setdefault(axis, length) != length:
                raise TensorError(
                    f"the axis {axis!r} is {length} in {spec.name!r} and {lengths[axis]} elsewhere",
                    path=name,
                )


def _check_shape(shape: tuple[int, ...], spec: TensorSpec, name: str) -> None:
    fits = len(shape) == len(spec.shape) and all(
        have > 0 and (isinstance(want, str) or want == have)
        for want, have in zip(spec.shape, shape, strict=True)
    )
    if not fits:
        raise TensorError(
            f"has the shape {list(shape)}, the input {spec.name!r} takes {list(spec.shape)}"
            + (f" ({spec.layout})" if spec.layout else ""),
            path=name,
        )


def _check_range(value: Tensor, spec: TensorSpec, name: str) -> None:
    if value.dtype.kind == "f" and not np.isfinite(value).all():
        raise TensorError("holds values that are not finite numbers", path=name)
    if spec.range is None or value.dtype.kind == "b":
        return
    low, high = value.min().item(), value.max().item()
    # Whole numbers are exact; an index beyond the range reads somebody else's memory.
    slack = 1e-3 * (spec.range[1] - spec.range[0]) if value.dtype.kind == "f" else 0
    if low < spec.range[0] - slack or high > spec.range[1] + slack:
        raise TensorError(
            f"holds values from {low:.6g} to {high:.6g}, the input {spec.name!r} was made for "
            f"{spec.range[0]:.6g} to {spec.range[1]:.6g}",
            path=name,
            hint="normalise the values as the model's documentation says",
        )


def _npz(data: bytes, name: str, spec: TensorSpec) -> Tensor:
    import struct
    import zipfile
    import zlib

    faults = (zipfile.BadZipFile, zlib.error, struct.error, EOFError, LookupError, OSError,
              OverflowError, RuntimeError, ValueError)  # fmt: skip
    # Each entry of the directory becomes an object, however many the archive says there are.
    if data.count(b"PK\1\2") > _MAX_MEMBERS:
        raise TensorError(f"holds more than {_MAX_MEMBERS} arrays", path=name)
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            member = _member(archive.infolist(), name, spec)
            if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                raise zipfile.BadZipFile(f"compression method {member.compress_type}")
            if member.file_size > MAX_BYTES:
                raise TensorError(f"unpacks to more than {MAX_BYTES} bytes", path=name)
            # `read()` without a size unpacks all that there is, whatever the archive promised.
            with archive.open(member) as stream:
                content = stream.read(member.file_size + 1)
    except faults as error:
        raise TensorError(
            f"is not a readable .npz file: {_first_line(error)}", path=name
        ) from error
    return npy.parse(content, name)


def _member(members: Sequence[ZipInfo], name: str, spec: TensorSpec) -> ZipInfo:
    by_name = {one.filename.removesuffix(".npy"): one for one in members}
    if spec.name in by_name:
        return by_name[spec.name]
    if len(members) == 1:
        return members[0]
    shown = ", ".join(f"{one!r:.80}" for one in sorted(by_name)[:_SHOWN_MEMBERS])
    raise TensorError(
        f"holds {shown or 'nothing'}{', …' if len(by_name) > _SHOWN_MEMBERS else ''}, "
        f"not {spec.name!r}",
        path=name,
    )


def _json(data: bytes, name: str, spec: TensorSpec) -> Tensor:
    """Reads numbers without making objects of what isn't one: bytes stay bytes until checked."""
    _check_json_size(len(data), MAX_JSON_BYTES, name)
    try:
        text = _json_array(data, name, spec)
    except (ValueError, RecursionError, msgspec.MsgspecError) as error:
        raise TensorError(f"is not readable JSON: {_first_line(error)}", path=name) from error
    _check_json_size(len(text), _json_limit(spec), name)
    allowed = _TRUTHS if spec.dtype == "bool" else _NUMBERS
    if text.translate(None, allowed):
        raise TensorError(f"holds values that are not {spec.dtype}", path=name)
    shape = _json_shape(text, name)
    _check_shape(shape, spec, name)
    return _filled(text, np.dtype(spec.dtype), math.prod(shape), name).reshape(shape)


def _json_limit(spec: TensorSpec) -> int:
    """Returns how many bytes of JSON the tensor may take."""
    fixed = [axis for axis in spec.shape if isinstance(axis, int)]
    if len(fixed) < len(spec.shape):
        return MAX_JSON_BYTES
    wanted = max(_MIN_JSON_LIMIT, _JSON_BYTES_AN_ELEMENT * math.prod(fixed))
    return min(MAX_JSON_BYTES, wanted)


def _check_json_size(size: int, limit: int, name: str) -> None:
    if size > limit:
        raise TensorError(
            f"is {size} bytes, the limit for this tensor in JSON is {limit}",
            path=name,
            hint="save the tensor with numpy.save",
        )


def _json_array(data: bytes, name: str, spec: TensorSpec) -> bytes:
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


def _json_shape(text: bytes, name: str) -> tuple[int, ...]:
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
    shape: list[int] = []
    block = b""
    for depth in range(axes - 1, -1, -1):
        # An array ends where as many brackets close as its first element and itself have.
        end = skeleton.find(b"]" * (axes - depth), depth) + axes - depth
        count = (end - depth - 1) // (len(block) + 1)
        block = b"[" + ((block + b",") * count)[:-1] + b"]"
        shape.insert(0, count)
    # The brackets of `[[]]` are those of `[[1]]`.
    hollow = b"[]" in text.translate(None, _SPACE)
    if hollow and not text.translate(None, _BRACKETS + _SPACE):
        shape[-1] = 0
    elif hollow or block != skeleton:
        raise TensorError("its rows differ in length", path=name)
    return tuple(shape)


def _filled(text: bytes, dtype: np.dtype[Any], count: int, name: str) -> Tensor:
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
    start = filled = 0
    while start < len(flat):
        cut = flat.find(b",", start + _PIECE)
        end = len(flat) if cut < 0 else cut
        values = _numbers(flat[start:end], dtype, name)
        made[filled : filled + len(values)] = values
        start, filled = end + 1, filled + len(values)
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
