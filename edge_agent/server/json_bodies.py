"""JSON bodies, read into what they must be; and how much JSON an answer may become."""

from __future__ import annotations

from typing import Final, TypeVar

import msgspec

from edge_agent.errors import BadInputError

T = TypeVar("T")

# Each value may become an object before anything is checked: this bounds their memory.
MAX_VALUES: Final = 2 * 1024 * 1024
_SURELY_FEW_BYTES: Final = 64 * 1024


def read(decoder: msgspec.json.Decoder[T], data: bytes | bytearray | memoryview) -> T:
    """Reads a document.

    Raises:
        BadInputError: It isn't JSON, not what is wanted here, or holds too many values.
    """
    if len(data) > _SURELY_FEW_BYTES and bytes(data).count(b",") >= MAX_VALUES:
        raise BadInputError(
            f"JSON of more than {MAX_VALUES} values isn't read",
            hint="send tensors as binary data: /v2/models/NAME/infer",
        )
    try:
        return decoder.decode(data)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        first = (str(error).splitlines() or [type(error).__name__])[0]
        raise BadInputError(f"the JSON can't be used: {first}") from error


def check_answer(values: int) -> None:
    """Refuses to write an answer in JSON that would keep everybody else waiting.

    Raises:
        BadInputError: It has too many values.
    """
    if values > MAX_VALUES:
        raise BadInputError(
            f"the answer has {values} values: in JSON, {MAX_VALUES} at most are given",
            hint="ask /v2/models/NAME/infer for it, with binary_data_output",
        )
