"""Which other files an ONNX model refers to, found without loading it.

ONNX lets a tensor's bytes live in another file, named by `external_data` key/value pairs. A runtime
opens that file, so it must be one of the signed files. This walks protobuf's wire format, because
the daemon that verifies must neither import onnx nor hold 2 GB.

It errs to the safe side: whatever any parser could take for a `location` counts, and an encoding
that parsers are known to disagree about is refused.
"""

from __future__ import annotations

from typing import BinaryIO

from edge_signing.errors import BundleInvalid
from edge_signing.wire import DamagedError, Reader

# onnx.proto (ONNX 1.17, IR version 10): for each message, the fields that lead to a TensorProto.
_MODEL = {7: "graph", 20: "training", 25: "function"}
_MESSAGES: dict[str, dict[int, str]] = {
    "model": _MODEL,
    "graph": {1: "node", 5: "tensor", 15: "sparse"},
    "node": {5: "attribute"},
    "attribute": {
        5: "tensor",
        6: "graph",
        10: "tensor",
        11: "graph",
        22: "sparse",
        23: "sparse",
    },
    "sparse": {1: "tensor", 2: "tensor"},
    "function": {7: "node", 11: "attribute"},
    "training": {1: "graph", 2: "graph"},
    "tensor": {13: "entry"},
}
_KEY, _VALUE = 1, 2  # StringStringEntryProto
_MAX_STRING = 4096
_SMALL_BYTES = 8 * 1024
_WORD = b"location"
# As protobuf's own default, so that no parser sees deeper than this does.
_MAX_DEPTH = 100
# Every field costs about a microsecond; real models of 2 GB have far fewer.
_MAX_FIELDS = 50_000_000


def external_files(stream: BinaryIO, size: int, thorough: bool = True) -> set[str]:
    """Lists the files that any tensor of an ONNX model refers to.

    Args:
        stream: The model, seekable, at its start.
        size: Its bytes.
        thorough: Walk every message, to find any damage. If False, small messages in which the
            bytes `location` do not occur are passed over: nothing in them can be such a key for
            any parser, because protobuf writes a string in one piece, and most nodes are small.

    Returns:
        The `location` of every `external_data` anywhere in the model, as written: relative to the
        model's own folder.

    Raises:
        BundleInvalid: The bytes are not a well-formed ModelProto, nested too deeply, or have an
            encoding that parsers may read differently.
        OSError: The stream cannot be read.

    Source:
        onnx.proto, TensorProto.external_data and data_location; ONNX "External Data";
        Protocol Buffers, "Encoding". `data_location` is not looked at: a parser keeps the last of
        several, so a location counts whatever it says.
    """
    found: set[str] = set()
    reader = Reader(stream, _MAX_FIELDS)
    # An explicit stack: the depth of the data must not become the depth of Python's.
    stack: list[tuple[str, int]] = [("model", size)]
    try:
        while stack:
            message, end = stack[-1]
            if reader.position == end:
                stack.pop()
                continue
            number, length = reader.field(end)
            child = _MESSAGES[message].get(number) if length is not None else None
            if length is None:
                continue
            if child is None or not (thorough or _may_refer(reader, length)):
                reader.skip(length)
            elif child == "entry":
                found |= _locations(reader, reader.position + length)
            elif len(stack) == _MAX_DEPTH:
                raise DamagedError("it is nested too deeply")
            else:
                stack.append((child, reader.position + length))
    except DamagedError as error:
        raise BundleInvalid(
            f"the ONNX file is damaged: {error}", hint="export the model again"
        ) from error
    return found


def resolve(model: str, location: str) -> str:
    """Finds the name in the bundle that a location means.

    Args:
        model: The ONNX file's name in the bundle.
        location: What a tensor in it says.

    Returns:
        The other file's name in the bundle.

    Raises:
        BundleInvalid: The location is absolute, has `..`, or is otherwise no name in a bundle.

    Source:
        ONNX "External Data": relative to the folder of the model.
    """
    from edge_signing.names import check_path

    try:
        check_path(location)
    except BundleInvalid as error:
        raise BundleInvalid(
            f"the external data {location[:256]!r} lies outside the bundle, or has a name that is"
            " not allowed",
            path=model,
        ) from error
    folder, slash, _ = model.rpartition("/")
    return folder + slash + location


def _may_refer(reader: Reader, length: int) -> bool:
    return length > _SMALL_BYTES or _WORD in reader.peek(length)


def _locations(reader: Reader, end: int) -> set[str]:
    """Every value counts if any key says so: parsers keep the last of repeated fields."""
    keys: set[bytes] = set()
    values: set[bytes] = set()
    while reader.position < end:
        number, length = reader.field(end)
        if length is None:
            continue
        if number not in (_KEY, _VALUE):
            reader.skip(length)
        elif length > _MAX_STRING:
            raise DamagedError("an external_data entry is too long")
        else:
            (keys if number == _KEY else values).add(reader.take(length))
    if _WORD not in keys:
        return set()
    try:
        return {value.decode("utf-8") for value in values} or {""}
    except UnicodeDecodeError as error:
        raise DamagedError("a location is not UTF-8") from error
