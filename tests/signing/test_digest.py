from __future__ import annotations

import hashlib
import io

import pytest

from edge_signing.digest import BUFFER_BYTES, hash_stream, is_sha256_hex, sha256_hex

SIZES = [0, 1, BUFFER_BYTES - 1, BUFFER_BYTES, BUFFER_BYTES + 1, 3 * BUFFER_BYTES + 17]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("bounded", [False, True])
def test_agrees_with_hashlib_and_tells_its_progress(size: int, bounded: bool) -> None:
    data = bytes(i % 251 for i in range(size))
    counts: list[int] = []
    copy = bytearray()
    digest = hash_stream(
        io.BytesIO(data), counts.append, size if bounded else None, lambda piece: copy.extend(piece)
    )
    assert digest == hashlib.sha256(data).hexdigest() == sha256_hex(data)
    assert sum(counts) == size
    assert copy == data


@pytest.mark.parametrize("size", [0, 5, BUFFER_BYTES])
def test_a_stream_that_grew_is_cut_and_differs(size: int) -> None:
    class Endless(io.RawIOBase):
        taken = 0

        def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
            buffer[:] = bytes(len(buffer))
            self.taken += len(buffer)
            return len(buffer)

    stream = Endless()
    digest = hash_stream(stream, at_most=size)  # type: ignore[arg-type]
    assert stream.taken == size + 1
    assert digest != sha256_hex(bytes(size))


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("a" * 64, True),
        ("A" * 64, False),
        ("a" * 63, False),
        ("g" * 64, False),
        (" " + "a" * 63, False),
        ("a" * 63 + "\n", False),
        ("٣" * 64, False),
        (None, False),
        (7, False),
    ],
)
def test_hexadecimal_digests(text: object, answer: bool) -> None:
    assert is_sha256_hex(text) is answer
