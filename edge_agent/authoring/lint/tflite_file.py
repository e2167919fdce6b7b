"""Checks of a TensorFlow Lite file before LiteRT sees it; run in the child process."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import TYPE_CHECKING, Final

from edge_agent.authoring.lint.findings import Finding
from edge_agent.authoring.project import read_file
from edge_agent.bundles import MAX_MODEL_BYTES

if TYPE_CHECKING:
    from edge_agent.authoring.lint.child import Teller
    from edge_agent.authoring.lint.isolated import Job

# Source: TensorFlow Lite's schema.fbs, file_identifier; FlatBuffers, "Internals".
_IDENTIFIER: Final = b"TFL3"
_OPERATOR_CODES, _CUSTOM_CODE = 1, 1
_MAX_CODES: Final = 10_000
_BUILT_IN: Final = ("TFLite_Detection_PostProcess",)


def look(job: Job, tell: Teller) -> bool:
    """Checks the file; returns whether it is worth trying on an engine."""
    tell.stage("reading it")
    data = read_file(Path(job.folder), job.file, MAX_MODEL_BYTES)
    if data[4:8] != _IDENTIFIER:
        said = "is no TensorFlow Lite file: the identifier TFL3 is missing"
        tell.finding(Finding("file-damaged", job.file, said))
        return False
    try:
        custom = sorted(set(custom_operators(data)) - set(_BUILT_IN))
    except (struct.error, IndexError, ValueError):
        said = "the TensorFlow Lite file is damaged: an offset leads out of it"
        tell.finding(Finding("file-damaged", job.file, said, hint="convert the model again"))
        return False
    if custom:
        said = f"needs custom operators, which no engine here has: {', '.join(custom[:5])}"
        tell.finding(Finding("op-custom", job.file, said, hint="convert the model without them"))
        return False
    return True


def custom_operators(data: bytes) -> list[str]:
    """Returns the names of the custom operators in a TensorFlow Lite file.

    Raises:
        ValueError, IndexError, struct.error: The file is damaged.
    """
    codes = _field(data, _offset(data, 0), _OPERATOR_CODES)
    if codes is None:
        return []
    vector = _offset(data, codes)
    count = _u32(data, vector)
    if count > _MAX_CODES:
        raise ValueError(count)
    names = []
    for index in range(count):
        place = _field(data, _offset(data, vector + 4 + 4 * index), _CUSTOM_CODE)
        if place is not None:
            start = _offset(data, place)
            names.append(
                data[start + 4 : start + 4 + min(_u32(data, start), 256)].decode("latin-1")
            )
    return [name for name in names if name]


def _field(data: bytes, table: int, number: int) -> int | None:
    """Returns where a table has a field, None where it lacks it."""
    vtable = table - struct.unpack_from("<i", data, table)[0]
    if vtable < 0:
        raise ValueError(vtable)
    place = 4 + 2 * number
    if place + 2 > struct.unpack_from("<H", data, vtable)[0]:
        return None
    inside: int = struct.unpack_from("<H", data, vtable + place)[0]
    return table + inside if inside else None


def _offset(data: bytes, place: int) -> int:
    return place + _u32(data, place)


def _u32(data: bytes, place: int) -> int:
    value: int = struct.unpack_from("<I", data, place)[0]
    return value
