"""What is asked: tensors and camera frames, each time another one, or always the same.

No input comes twice unless it should, and two of them differ all over, as real ones do: a tensor is
a window into a long field of noise, each time elsewhere; a frame is one of many crops, behind a
comment of random bytes and random length.
"""

from __future__ import annotations

import base64
import io
import random
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

import numpy as np
from PIL import Image, ImageOps

from serving.http import Part, Request, head

Source: TypeAlias = Callable[[], Request]

SHAPE = (1, 3, 224, 224)
TENSOR_BYTES = 4 * 3 * 224 * 224
_LEAST, _GREATEST = -0.9921875, 1.0  # what model.yaml says
_WINDOWS = 1_333_357  # a prime: steps of any size meet each window once
_STEP = 532_099
_ALIGNED = 12  # bytes between two windows: whole floats, and whole groups of base64
_PHOTO = Path(__file__).parents[2] / "photos" / "coffee.png"


class Tensors:
    """600 KB of float32 each, in the model's range."""

    def __init__(self) -> None:
        values = (TENSOR_BYTES + _ALIGNED * _WINDOWS) // 4
        noise = np.random.default_rng(1).random(values, np.float32)
        self._field = memoryview((noise * (_GREATEST - _LEAST) + _LEAST).tobytes())
        self._base64: memoryview | None = None
        self._turn = 0

    def unique(self) -> memoryview:
        """Returns a tensor that wasn't there before."""
        start = self._next() * _ALIGNED
        return self._field[start : start + TENSOR_BYTES]

    def unique_base64(self) -> memoryview:
        """Returns one in base64."""
        if self._base64 is None:
            self._base64 = memoryview(base64.b64encode(self._field))
        start = self._next() * _ALIGNED // 3 * 4
        return self._base64[start : start + TENSOR_BYTES // 3 * 4]

    def _next(self) -> int:
        self._turn += 1
        return self._turn * _STEP % _WINDOWS


class Frames:
    """JPEG files of 1280x960 pixels."""

    def __init__(self, count: int = 32) -> None:
        """Makes them.

        Args:
            count: How many pictures; the files made of them never end.
        """
        with Image.open(_PHOTO) as photo:
            scene = photo.convert("RGB").resize((1440, 960))
        self.pictures = [_jpeg(scene, turn) for turn in range(count)]
        self._random = random.Random(1)
        self._turn = 0

    def unique(self) -> tuple[bytes, memoryview]:
        """Returns a file that wasn't there before, in two parts."""
        self._turn += 1
        picture = self.pictures[self._turn % len(self.pictures)]
        text = self._random.randbytes(self._random.randrange(16, 272))
        comment = b"\xff\xfe" + (len(text) + 2).to_bytes(2, "big") + text
        return picture[:2] + comment, memoryview(picture)[2:]


def _jpeg(scene: Image.Image, turn: int) -> bytes:
    left = turn * 160 // 32 % 160
    frame = scene.crop((left, 0, left + 1280, 960))
    buffer = io.BytesIO()
    (ImageOps.mirror(frame) if turn % 2 else frame).save(buffer, "JPEG", quality=90)
    return buffer.getvalue()


def posts(path: str, headers: Mapping[str, str], body: Callable[[], Sequence[Part]]) -> Source:
    """Returns a source of requests whose bodies come from a function."""

    def take() -> Request:
        parts = body()
        return head("POST", path, headers, sum(map(len, parts))), *parts

    return take


def repeating(source: Source) -> Source:
    """Returns a source that gives its first request for ever."""
    request = source()
    return lambda: request
