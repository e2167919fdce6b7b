"""JSON bodies, read into what they must be; and how much JSON an answer may become."""

from __future__ import annotations

from functools import cache
from typing import Any, Final, TypeVar

import msgspec
from msgspec import Raw

from edge_agent.errors import BadInputError

T = TypeVar("T")

# Each value may become an object before anything is checked: this bounds their memory.
MAX_VALUES: Final = 2 * 1024 * 1024
MAX_STRINGS: Final = 64 * 1024
_SURELY_FEW_BYTES: Final = 64 * 1024
_RAWS: Final = msgspec.json.Decoder(list[Raw])


def read(decoder: msgspec.json.Decoder[T], data: bytes | bytearray | memoryview) -> T:
    """Reads a document.

    Raises:
        BadInputError: It isn't JSON, not what is wanted here, or holds too many values.
    """
    if len(data) > _SURELY_FEW_BYTES:
        _check_counts(bytes(data))
    try:
        return decoder.decode(data)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        first = (str(error).splitlines() or [type(error).__name__])[0]
        raise BadInputError(f"the JSON can't be used: {first}") from error


def rows(text: bytes, most: int) -> list[bytes]:
    """Reads a list into the texts of its elements.

    Args:
        text: JSON.
        most: Most elements that are read: what is longer ends with the first one more.

    Raises:
        BadInputError: It isn't a list, or one that is too long.
    """
    if text.count(b",") >= most and len(text) > _SURELY_FEW_BYTES:
        read(_at_most(most), text)
    return [bytes(one) for one in read(_RAWS, text)]


@cache
def _at_most(most: int) -> msgspec.json.Decoder[Any]:
    """Returns what refuses a list that is too long early: `msgspec.Meta` looks once it is made."""
    fields: list[Any] = [(f"at_{at}", Raw, Raw()) for at in range(most)]
    kind = msgspec.defstruct("List", fields, array_like=True, forbid_unknown_fields=True)
    return msgspec.json.Decoder(kind)


def _check_counts(text: bytes) -> None:
    if text.count(b",") >= MAX_VALUES:
        raise BadInputError(
            f"JSON of more than {MAX_VALUES} values isn't read",
            hint="send tensors as binary data: /v2/models/NAME/infer",
        )
    if text.count(b'"') > 2 * MAX_STRINGS:
        raise BadInputError(f"JSON of more than {MAX_STRINGS} names and texts isn't read")


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
