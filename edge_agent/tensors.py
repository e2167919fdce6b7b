"""Input tensors from files, and the check of any tensor against its description."""

from __future__ import annotations

import io
import json
from typing import TYPE_CHECKING, Any, Final

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
# As Python objects, numbers take about eight times the bytes of their text.
MAX_JSON_BYTES: Final = 32 * 1024 * 1024


def read(data: bytes, name: str, spec: TensorSpec) -> Tensor:
    """Reads one tensor from the bytes of a ``.npy``, ``.npz`` or ``.json`` file.

    Args:
        data: At most 256 MiB, also when unpacked; JSON 32 MiB. Pickled objects are refused.
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
    fits = len(value.shape) == len(spec.shape) and all(
        have > 0 and (isinstance(want, str) or want == have)
        for want, have in zip(spec.shape, value.shape, strict=True)
    )
    if not fits:
        raise TensorError(
            f"has the shape {list(value.shape)}, the input {spec.name!r} takes {list(spec.shape)}"
            + (f" ({spec.layout})" if spec.layout else ""),
            path=name,
        )
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
    raise TensorError(
        f"holds {', '.join(map(repr, sorted(by_name))) or 'nothing'}, not {spec.name!r}", path=name
    )


def _json(data: bytes, name: str, spec: TensorSpec) -> Tensor:
    if len(data) > MAX_JSON_BYTES:
        raise TensorError(
            f"is {len(data)} bytes, the limit for JSON is {MAX_JSON_BYTES}",
            path=name,
            hint="save the tensor with numpy.save",
        )
    try:
        value = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise TensorError(f"is not readable JSON: {_first_line(error)}", path=name) from error
    if isinstance(value, dict):
        if spec.name not in value:
            raise TensorError(f"has no member {spec.name!r}", path=name)
        value = value[spec.name]
    try:
        array = np.array(value)
    except (ValueError, RecursionError) as error:
        raise TensorError(f"its rows differ in length: {_first_line(error)}", path=name) from error
    return _as_dtype(array, spec, name)


def _as_dtype(array: Tensor, spec: TensorSpec, name: str) -> Tensor:
    """Gives JSON's numbers the wanted type, unless that would change them by more than rounding."""
    wanted = np.dtype(spec.dtype)
    allowed = {"f": "iuf", "i": "iu", "u": "iu", "b": "b"}[wanted.kind]
    if array.dtype.kind not in allowed:
        raise TensorError(f"holds values that are not {spec.dtype}", path=name)
    if wanted.kind in "iu":
        bounds = np.iinfo(wanted)
        if array.size and not (bounds.min <= array.min() and array.max() <= bounds.max):
            raise TensorError(f"holds values beyond {spec.dtype}", path=name)
    with np.errstate(over="ignore"):
        converted: Any = array.astype(wanted)
    return np.asarray(converted)


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
