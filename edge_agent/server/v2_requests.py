"""From the body of an inference request to a query, and to how its outputs are wanted."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from msgspec import UNSET, Struct

from edge_agent.calls import ITEM_BYTES, InputTensor, Priority, Query
from edge_agent.description import Classification
from edge_agent.errors import BadInputError, ModelNotReadyError
from edge_agent.server import json_bodies
from edge_agent.server.datatypes import BYTES, DATATYPES, DTYPES
from edge_agent.server.v2_messages import DECODER, InferRequest, Input, Output, RequestParameters

if TYPE_CHECKING:
    from edge_agent.description import ModelDescription
    from edge_agent.serving.service import ModelStatus

_PREFIX_BYTES: Final = 4
_SHORT_BYTES: Final = 1024


class Asked(Struct):
    """What a request asks, and how it wants the answer.

    Attributes:
        query: For the model.
        id: To be repeated in the reply.
        outputs: Outputs in the order in which they are wanted; empty means all.
        is_binary: Whether outputs come as bytes where they don't say otherwise.
        classified: The output that comes as classes.
        priority: None where the request doesn't say.
        timeout_s: None where the request doesn't say.
    """

    query: Query
    id: str | None = None
    outputs: tuple[Output, ...] = ()
    is_binary: bool = False
    classified: str | None = None
    priority: Priority | None = None
    timeout_s: float | None = None


def read(body: bytes | bytearray, header_length: bytes | None, status: ModelStatus) -> Asked:
    """Reads the body of an inference request.

    Args:
        body: JSON, then the bytes of the tensors that aren't in it.
        header_length: The header Inference-Header-Content-Length: how much of it is JSON.
        status: The model.

    Raises:
        BadInputError: It breaks a rule of the protocol, or asks for what this model hasn't.
        ModelNotReadyError: Nothing is known of the model yet.
    """
    if header_length is None:
        return _asked(_request(body), memoryview(b""), status)
    if not header_length.isdigit() or len(header_length) > 18:
        raise BadInputError("Inference-Header-Content-Length isn't a number")
    length = int(header_length)
    if length > len(body):
        raise BadInputError("Inference-Header-Content-Length goes beyond the body")
    view = memoryview(body)
    if length == 0:
        return _raw(view, description_of(status), status.batches)
    head = view[:length]
    request = _known_request(bytes(head)) if length <= _SHORT_BYTES else _request(head)
    return _asked(request, view[length:], status)


def description_of(status: ModelStatus) -> ModelDescription:
    """Returns what a model is.

    Raises:
        ModelNotReadyError: It was never opened.
    """
    if status.description is None:
        raise ModelNotReadyError(f"{status.ref.name} is not ready: {status.reason or 'not loaded'}")
    return status.description


def _request(text: bytes | bytearray | memoryview) -> InferRequest:
    request = json_bodies.read(DECODER, text)
    _refuse_sequences(request.parameters)
    _refuse_twice([one.name for one in request.inputs], "input")
    _refuse_twice([one.name for one in request.outputs], "output")
    return request


@lru_cache(maxsize=128)
def _known_request(text: bytes) -> InferRequest:
    """Reads what a client sends before each tensor, mostly the same every time."""
    return _request(text)


def _asked(request: InferRequest, binary: memoryview, status: ModelStatus) -> Asked:
    tensors: list[InputTensor] = []
    images: tuple[memoryview, ...] = ()
    at = 0
    for one in request.inputs:
        size = one.parameters.binary_data_size
        data = None if size is None else binary[at : at + size]
        at += size or 0
        if one.datatype == BYTES:
            images += _images(one, data, description_of(status))
        else:
            tensors.append(_tensor(one, data))
    if at != len(binary):
        raise BadInputError(
            f"{len(binary)} bytes follow the JSON, its binary_data_size add up to {at}"
        )
    classified = _classified(request.outputs, status) if request.outputs else None
    timeout = request.parameters.timeout
    priority = request.parameters.priority
    return Asked(
        _query(request.outputs, tensors, images, classified),
        request.id,
        tuple(request.outputs),
        request.parameters.binary_data_output,
        classified.name if classified else None,
        Priority(priority - 1) if priority else None,
        timeout / 1e6 if timeout else None,
    )


def _query(
    outputs: list[Output],
    tensors: list[InputTensor],
    images: tuple[memoryview, ...],
    classified: Output | None,
) -> Query:
    if classified:
        top_k = classified.parameters.classification
        return Query("labels", tuple(tensors), images, top_k)
    return Query("outputs", tuple(tensors), images, None, tuple([one.name for one in outputs]))


def _tensor(one: Input, data: memoryview | None) -> InputTensor:
    dtype = DTYPES.get(one.datatype)
    if dtype is None:
        raise BadInputError(f"input {one.name!r}: no model here takes {one.datatype}")
    if one.parameters.shared_memory_region is not None:
        raise BadInputError("shared memory isn't supported: send the data as binary")
    shape = tuple(one.shape)
    if data is None:
        if one.data is UNSET:
            raise BadInputError(f"input {one.name!r} has neither data nor binary_data_size")
        text = memoryview(one.data)
        if text[0] != ord("["):
            raise BadInputError(f"input {one.name!r}: data must be an array")
        return InputTensor(one.name, dtype, shape, text, is_json=True)
    if one.data is not UNSET:
        raise BadInputError(f"input {one.name!r} has both data and binary_data_size")
    wanted = math.prod(shape) * ITEM_BYTES[dtype]
    if len(data) != wanted:
        raise BadInputError(
            f"input {one.name!r}: {one.datatype} {list(shape)} takes {wanted} bytes,"
            f" not {len(data)}"
        )
    return InputTensor(one.name, dtype, shape, data)


def _images(
    one: Input, data: memoryview | None, description: ModelDescription
) -> tuple[memoryview, ...]:
    """Takes a BYTES input: image files for the input that model.yaml's preprocess names."""
    rule = description.preprocess
    if rule is None or one.name != rule.input:
        raise _no_image(one.name, description)
    if data is None:
        raise BadInputError(
            f"input {one.name!r}: an image file isn't text; send BYTES as binary data, or the file"
            " to /infer"
        )
    files = _elements(data, one.name)
    if one.shape not in ([len(files)], [len(files), 1]):
        raise BadInputError(
            f"input {one.name!r}: {len(files)} images have the shape [{len(files)}]"
        )
    return files


def _no_image(name: str, description: ModelDescription) -> BadInputError:
    spec = description.input(name)
    if spec is None:
        known = ", ".join(one.name for one in description.inputs)
        return BadInputError(f"the model has no input {name!r}; it takes {known}")
    return BadInputError(f"the input {name!r} takes {DATATYPES[spec.dtype]}, not BYTES")


def _elements(data: memoryview, name: str) -> tuple[memoryview, ...]:
    """Splits BYTES: each element has its length before it, 4 bytes, little-endian."""
    found: list[memoryview] = []
    at = 0
    while at < len(data):
        size = int.from_bytes(data[at : at + _PREFIX_BYTES], "little")
        begin, at = at + _PREFIX_BYTES, at + _PREFIX_BYTES + size
        if at > len(data) or len(found) >= 1024:
            raise BadInputError(f"input {name!r}: lengths of its BYTES don't add up")
        found.append(data[begin:at])
    return tuple(found)


def _classified(outputs: list[Output], status: ModelStatus) -> Output | None:
    """Returns the output that is wanted as classes, after a look at all of them."""
    description = description_of(status)
    known = [spec.name for spec in description.outputs]
    for one in outputs:
        if one.name not in known:
            raise BadInputError(f"the model has no output {one.name!r}; it has {', '.join(known)}")
        if one.parameters.shared_memory_region is not None:
            raise BadInputError("shared memory isn't supported: ask for binary_data")
    wanted = [one for one in outputs if one.parameters.classification]
    if not wanted:
        return None
    rule = description.postprocess
    if not isinstance(rule, Classification) or rule.output != wanted[0].name:
        raise BadInputError(f"output {wanted[0].name!r} holds no classes")
    if len(outputs) > 1:
        raise BadInputError("an output as classes can't be asked for together with others")
    return wanted[0]


def _raw(data: memoryview, description: ModelDescription, batches: bool) -> Asked:
    """Takes a body that is the one input's bytes and nothing else."""
    if len(description.inputs) != 1:
        raise BadInputError("without JSON a body can only be the input of a model that has one")
    spec = description.inputs[0]
    open_axes = [at for at, axis in enumerate(spec.shape) if isinstance(axis, str)]
    lengths = {0: 1} if batches and len(open_axes) > 1 else {}
    left = [at for at in open_axes if at not in lengths]
    if len(left) > 1:
        raise BadInputError("the shape doesn't follow from the size: send it in JSON")
    shape = [
        lengths.get(at, axis) if isinstance(axis, str) else axis
        for at, axis in enumerate(spec.shape)
    ]
    row = math.prod(axis for axis in shape if isinstance(axis, int)) * ITEM_BYTES[spec.dtype]
    if left:
        shape[left[0]] = len(data) // row
    exact = tuple(axis for axis in shape if isinstance(axis, int))
    if math.prod(exact) * ITEM_BYTES[spec.dtype] != len(data):
        raise BadInputError(
            f"the input {spec.name!r} takes {DATATYPES[spec.dtype]} {list(spec.shape)}, which"
            f" {len(data)} bytes don't fill"
        )
    tensor = InputTensor(spec.name, spec.dtype, exact, data)
    return Asked(Query("outputs", (tensor,)), is_binary=True)


def _refuse_sequences(parameters: RequestParameters) -> None:
    if parameters.sequence_id or parameters.sequence_start or parameters.sequence_end:
        raise BadInputError("models here keep no state: sequences aren't supported")


def _refuse_twice(names: list[str], what: str) -> None:
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise BadInputError(f"{what} {twice!r} is there twice")
