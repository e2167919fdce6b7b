"""BMP: a header in front of plain pixels."""

from __future__ import annotations

from typing import Final

from edge_agent.errors import ImageError
from edge_agent.image_files.contents import Contents

_RUN_LENGTHS: Final = frozenset({1, 2})


def read(data: bytes, max_pixels: int) -> Contents:  # noqa: ARG001  the decoder's header check has it
    """Hands a BMP on; nothing in it tells damaged pixels from intact ones but its length.

    Raises:
        ImageError: It is run-length coded. Pillow decodes that in Python: up to a minute for a
            file within the limits.
    """
    header, compression = data[14:18], int.from_bytes(data[30:34], "little")
    if int.from_bytes(header, "little") >= 40 and compression in _RUN_LENGTHS:
        raise ImageError("run-length coded BMP isn't taken", hint="save it as PNG")
    return Contents(data)
