"""An image file in the body of a request: by itself, or as the one file of a form."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Final

from python_multipart.exceptions import MultipartParseError
from python_multipart.multipart import MultipartParser, parse_options_header

from edge_agent.errors import BadInputError
from edge_agent.server.errors import BodyFormatError

if TYPE_CHECKING:
    from python_multipart.multipart import MultipartCallbacks

_MAX_PARTS: Final = 16
_MAX_HEAD_BYTES: Final = 16 * 1024
_AT_ONCE_BYTES: Final = 1024 * 1024  # so much is read sooner than a thread has begun


async def image(body: bytes | bytearray, content_type: bytes | None) -> bytes | bytearray:
    """Returns the image file in a body; a large form is read in a thread.

    Args:
        body: All of it.
        content_type: ``image/*``, ``application/octet-stream``, ``multipart/form-data`` with one
            file; none counts as an image.

    Raises:
        BodyFormatError: It is of another type.
        BadInputError: There is no file in it, or more than one.
    """
    kind, parameters = parse_options_header(content_type or b"application/octet-stream")
    if kind == b"multipart/form-data":
        work = partial(_file, body, parameters.get(b"boundary", b""))
        is_short = len(body) <= _AT_ONCE_BYTES
        found: bytes | bytearray = work() if is_short else await asyncio.to_thread(work)
    elif kind == b"application/octet-stream" or kind.startswith(b"image/"):
        found = body
    else:
        raise BodyFormatError(
            "the body must be an image file: image/*, application/octet-stream, or"
            " multipart/form-data with one file"
        )
    if not found:
        raise BadInputError("the image is empty")
    return found


def _file(body: bytes | bytearray, boundary: bytes) -> bytes:
    if not 1 <= len(boundary) <= 70:  # RFC 2046, section 5.1.1
        raise BadInputError("multipart/form-data needs a boundary of 1 to 70 characters")
    form = _Form()
    parser = MultipartParser(boundary, form.callbacks())
    try:
        parser.write(bytes(body))
        parser.finalize()
    except MultipartParseError as error:
        raise BadInputError("the multipart/form-data can't be read") from error
    if not form.is_complete or len(form.files) != 1:
        raise BadInputError(f"multipart/form-data must hold one file, not {len(form.files)}")
    return b"".join(form.files[0])


class _Form:
    """Keeps the files of a form; its other fields are passed over."""

    def __init__(self) -> None:
        self.files: list[list[bytes]] = []
        self.is_complete = False
        self._parts = 0
        self._head_bytes = 0
        self._name = b""
        self._value = b""
        self._is_file = False

    def callbacks(self) -> MultipartCallbacks:
        return {
            "on_part_begin": self._begin,
            "on_header_field": self._field,
            "on_header_value": self._more_value,
            "on_header_end": self._end_header,
            "on_headers_finished": self._end_head,
            "on_part_data": self._data,
            "on_end": self._end,
        }

    def _begin(self) -> None:
        self._parts += 1
        self._is_file = False
        self._name = self._value = b""
        if self._parts > _MAX_PARTS:
            raise BadInputError(f"multipart/form-data has more than {_MAX_PARTS} parts")

    def _field(self, data: bytes, start: int, end: int) -> None:
        self._name += self._head(data, start, end)

    def _more_value(self, data: bytes, start: int, end: int) -> None:
        self._value += self._head(data, start, end)

    def _head(self, data: bytes, start: int, end: int) -> bytes:
        self._head_bytes += end - start
        if self._head_bytes > _MAX_HEAD_BYTES:
            raise BadInputError("multipart/form-data has too long headers")
        return data[start:end]

    def _end_header(self) -> None:
        if self._name.lower() == b"content-disposition":
            _, options = parse_options_header(self._value)
            self._is_file = b"filename" in options
        self._name = self._value = b""

    def _end_head(self) -> None:
        if self._is_file:
            self.files.append([])

    def _data(self, data: bytes, start: int, end: int) -> None:
        if self._is_file:
            self.files[-1].append(data[start:end])

    def _end(self) -> None:
        self.is_complete = True
