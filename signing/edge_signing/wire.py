"""Protobuf's wire format, walked in constant memory."""

from __future__ import annotations

from typing import BinaryIO

_WINDOW = 64 * 1024
_VARINT, _BYTES = 0, 2
_FIXED = {1: 8, 5: 4}  # wire type: bytes
_MAX_VARINT = 10
_MAX_FIELD_NUMBER = (1 << 29) - 1


class DamagedError(ValueError):
    """The bytes are not protobuf, or a kind of it that parsers may read differently."""


class Reader:
    """Reads tags and lengths; skips content by seeking.

    Attributes:
        position: The bytes consumed so far.
    """

    def __init__(self, stream: BinaryIO, max_fields: int) -> None:
        """Takes the stream.

        Args:
            stream: Seekable.
            max_fields: Refuse more fields than this.
        """
        self.position = 0
        self._stream = stream
        self._fields_left = max_fields
        self._window = b""
        self._start = 0

    def field(self, end: int) -> tuple[int, int | None]:
        """Reads a tag, and the whole field if it is a number.

        Args:
            end: Where the message ends that this field lies in.

        Returns:
            The field's number; and the length of its content, which comes next, or None if the
            field was a number and has been consumed.

        Raises:
            DamagedError: The field passes the end; a group, an unknown wire type, a field number
                out of range, a tag or a length with superfluous bytes, too many fields.

        Source:
            Protocol Buffers, "Encoding". Groups are obsolete, and ONNX has none.
        """
        self._fields_left -= 1
        if self._fields_left < 0:
            raise DamagedError("it has too many fields")
        tag = self._varint(end, minimal=True)
        number, kind = tag >> 3, tag & 7
        if not 1 <= number <= _MAX_FIELD_NUMBER:
            raise DamagedError("a field number is out of range")
        if kind == _VARINT:
            self._varint(end, minimal=False)
            return number, None
        if kind == _BYTES:
            length = self._varint(end, minimal=True)
        elif kind in _FIXED:
            length = _FIXED[kind]
        else:
            raise DamagedError(f"a field has the wire type {kind}")
        if length > end - self.position:
            raise DamagedError("a field passes the end of its message")
        if kind == _BYTES:
            return number, length
        self.position += length
        return number, None

    def skip(self, length: int) -> None:
        """Passes over content whose length `field` returned."""
        self.position += length

    def take(self, length: int) -> bytes:
        """Returns content whose length `field` returned.

        Args:
            length: Its bytes, less than 64 KiB.

        Returns:
            The bytes.

        Raises:
            DamagedError: The stream ends before.
        """
        data = self.peek(length)
        self.position += length
        return data

    def peek(self, length: int) -> bytes:
        """Returns what `take` would, and stays where it is."""
        start = self._ahead(length)
        return self._window[start : start + length]

    def _varint(self, end: int, minimal: bool) -> int:
        left = end - self.position
        if left <= 0:
            raise DamagedError("a number passes the end of its message")
        start = self._ahead(min(left, _MAX_VARINT))
        window = self._window
        byte = window[start]
        if byte < 0x80:  # nearly all of them; this is what the walk's time goes into
            self.position += 1
            return byte
        value = byte & 0x7F
        for index in range(1, min(left, _MAX_VARINT)):
            byte = window[start + index]
            value |= (byte & 0x7F) << (7 * index)
            if byte < 0x80:
                if value >> 64 or (minimal and byte == 0):
                    raise DamagedError("a number is not in its shortest form")
                self.position += index + 1
                return value
        if left < _MAX_VARINT:
            raise DamagedError("a number passes the end of its message")
        raise DamagedError("a number has more than ten bytes")

    def _ahead(self, count: int) -> int:
        """Makes sure that so many bytes are in the window; returns where they begin in it."""
        start = self.position - self._start
        if start < 0 or start + count > len(self._window):
            self._stream.seek(self.position)
            self._window = self._stream.read(_WINDOW)
            self._start = self.position
            start = 0
            if len(self._window) < count:
                raise DamagedError("it is truncated")
        return start
