"""The JSON part of an inference request, as the Open Inference Protocol v2 and Triton write it.

Source: Open Inference Protocol, "Inference Request JSON Object"; Triton's extensions for binary
tensor data, classification, schedule policy, sequences and shared memory.
"""

from __future__ import annotations

from typing import Annotated, Final

import msgspec
from msgspec import UNSET, Meta, Raw, Struct, UnsetType

_Natural = Annotated[int, Meta(ge=0, le=2**63 - 1)]
Name = Annotated[str, Meta(min_length=1, max_length=256)]
MAX_TENSORS: Final = 64


class InputParameters(Struct, frozen=True):
    """Parameters of an input; others are ignored."""

    binary_data_size: _Natural | None = None
    shared_memory_region: str | None = None


class Input(Struct, frozen=True):
    """One input tensor; its numbers stay text here."""

    name: Name
    shape: Annotated[list[_Natural], Meta(max_length=8)]
    datatype: str
    parameters: InputParameters = InputParameters()
    data: Raw | UnsetType = UNSET


class OutputParameters(Struct, frozen=True):
    """Parameters of an output; others are ignored."""

    binary_data: bool | None = None
    classification: Annotated[int, Meta(ge=0, le=1000)] = 0
    shared_memory_region: str | None = None


class Output(Struct, frozen=True):
    """One output that is wanted."""

    name: Name
    parameters: OutputParameters = OutputParameters()


class RequestParameters(Struct, frozen=True):
    """Parameters of a request; others are ignored."""

    binary_data_output: bool = False
    priority: Annotated[int, Meta(ge=0, le=4)] = 0
    timeout: _Natural = 0
    sequence_id: int | str = 0
    sequence_start: bool = False
    sequence_end: bool = False


class InferRequest(Struct, frozen=True):
    """A request for an inference."""

    inputs: Annotated[list[Input], Meta(min_length=1, max_length=MAX_TENSORS)]
    outputs: Annotated[list[Output], Meta(max_length=MAX_TENSORS)] = []
    parameters: RequestParameters = RequestParameters()
    id: str | None = None


DECODER: Final = msgspec.json.Decoder(InferRequest)
