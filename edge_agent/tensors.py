"""Input tensors from files, and the check of any tensor against its description."""

from __future__ import annotations

import io
import math
from typing import TYPE_CHECKING, Final

import numpy as np

from edge_agent import json_tensors, npy
from edge_agent.description import MAX_TENSOR_BYTES
from edge_agent.errors import TensorError
from edge_agent.types import dtype_name

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from zipfile import ZipInfo

    from edge_agent.description import TensorSpec
    from edge_agent.types import Tensor

MAX_BYTES: Final = MAX_TENSOR_BYTES
MAX_JSON_BYTES: Final = json_tensors.MAX_JSON_BYTES
_MAX_MEMBERS: Final = 1000
_SHOWN_MEMBERS: Final = 8


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


def from_bytes(
    data: bytes | memoryview, shape: tuple[int, ...], spec: TensorSpec, name: str
) -> Tensor:
    """Makes a tensor of its values, without a copy.

    Args:
        data: Little-endian values in row-major order, bool as one byte.
        shape: Its shape.
        spec: What is wanted.
        name: Where it came from, for messages.

    Raises:
        TensorError: Not so many bytes, or a truth value that is neither 0 nor 1.
    """
    dtype = np.dtype(spec.dtype).newbyteorder("<")
    wanted = math.prod(shape) * dtype.itemsize
    if len(data) != wanted:
        raise TensorError(
            f"the input {spec.name!r} has {len(data)} bytes, {list(shape)} of {spec.dtype} takes"
            f" {wanted}",
            path=name,
        )
    if spec.dtype == "bool" and np.frombuffer(data, np.uint8).max(initial=0) > 1:
        raise TensorError(
            f"the input {spec.name!r} holds bytes that are neither 0 nor 1", path=name
        )
    return np.frombuffer(data, dtype).reshape(shape)


def from_json(data: bytes, shape: tuple[int, ...], spec: TensorSpec, name: str) -> Tensor:
    """Reads an array whose shape is stated beside it: it may be flat, or nested as that is.

    Args:
        data: A JSON array of numbers or truth values.
        shape: The shape.
        spec: What is wanted.
        name: Where it came from, for messages.

    Raises:
        TensorError: Unreadable, of another shape, or a value that the dtype can't hold.
    """
    count = math.prod(shape)
    try:
        text = json_tensors.text(data, name, spec)
        found = json_tensors.shape(text, name)
        if found not in (shape, (count,)):
            raise TensorError(f"its values have the shape {list(found)}, not {list(shape)}")
        return json_tensors.filled(text, np.dtype(spec.dtype), count, name).reshape(shape)
    except TensorError as error:  # of a file: here the array is one of several in a request
        raise TensorError(f"input {spec.name!r}: {error.message}", path=name) from error


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
    check_form(dtype_name(value.dtype), value.shape, spec, name)
    _check_range(value, spec, name)
    if value.flags.c_contiguous and value.flags.aligned and value.dtype.isnative:
        return value
    return np.require(value, value.dtype.newbyteorder("="), ["C_CONTIGUOUS", "ALIGNED"])


def check_form(dtype: str, shape: tuple[int, ...], spec: TensorSpec, name: str) -> None:
    """Compares what is said of a tensor with its description.

    Raises:
        TensorError: Dtype or shape differ.
    """
    if dtype != spec.dtype:
        raise TensorError(
            f"the input {spec.name!r} takes {spec.dtype}, not {dtype}",
            path=name,
            hint=f"convert it where it is made: array.astype('{spec.dtype}')",
        )
    _check_shape(shape, spec, name)


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
                hint=f"at the command line: --input {spec.name}=FILE (.npy, .npz or .json)",
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
        layout = f" ({spec.layout})" if spec.layout else ""
        raise TensorError(
            f"the input {spec.name!r} takes the shape {list(spec.shape)}{layout},"
            f" not {list(shape)}",
            path=name,
        )


def _check_range(value: Tensor, spec: TensorSpec, name: str) -> None:
    is_float = value.dtype.kind == "f"
    if spec.range is None or value.dtype.kind == "b":
        if is_float and not _is_finite(value):
            raise _not_finite(spec, name)
        return
    if value.dtype == np.float16:
        value = value.astype(np.float32)  # comparing halves takes four times as long
    with np.errstate(invalid="ignore"):
        low, high = value.min().item(), value.max().item()
    if not math.isfinite(low) or not math.isfinite(high):  # NaN is both
        raise _not_finite(spec, name)
    # Whole numbers are exact; an index beyond the range reads somebody else's memory.
    slack = 1e-3 * (spec.range[1] - spec.range[0]) if is_float else 0
    if low < spec.range[0] - slack or high > spec.range[1] + slack:
        raise TensorError(
            f"the input {spec.name!r} was made for {spec.range[0]:.6g} to {spec.range[1]:.6g}, "
            f"its values go from {low:.6g} to {high:.6g}",
            path=name,
            hint="normalise the values as the model's documentation says",
        )


def _is_finite(value: Tensor) -> bool:
    if value.dtype == np.float32 and value.flags.c_contiguous:
        flat = value.reshape(-1)
        with np.errstate(over="ignore", invalid="ignore"):
            # One pass without an array of truth values; large numbers are looked at again.
            if math.isfinite(np.dot(flat, flat)):
                return True
    return bool(np.isfinite(value).all())


def _not_finite(spec: TensorSpec, name: str) -> TensorError:
    return TensorError(
        f"the input {spec.name!r} holds values that are not finite numbers", path=name
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
    text = json_tensors.text(data, name, spec)
    shape = json_tensors.shape(text, name)
    _check_shape(shape, spec, name)
    return json_tensors.filled(text, np.dtype(spec.dtype), math.prod(shape), name).reshape(shape)


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
