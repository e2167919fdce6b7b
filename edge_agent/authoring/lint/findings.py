"""One finding of `bundle lint`, and the table of all kinds."""

from __future__ import annotations

from typing import Final, Literal

from msgspec import Struct

Level = Literal["error", "warning"]

# Stable: hooks and suppressions name them. docs/BUNDLES.md explains each.
CODES: Final[dict[str, Level]] = {
    "contract-missing": "warning",
    "description-invalid": "error",
    "engine-crashes": "error",
    "engine-hangs": "error",
    "engine-precision": "warning",
    "engine-refuses": "error",
    "external-data": "error",
    "file-damaged": "error",
    "file-empty": "error",
    "file-link": "error",
    "file-missing": "error",
    "file-name": "error",
    "file-too-large": "error",
    "file-unlisted": "warning",
    "file-unreadable": "error",
    "golden-fails": "error",
    "golden-missing": "warning",
    "golden-wrong": "error",
    "graph-cycle": "error",
    "graph-invalid": "error",
    "graph-shapes": "error",
    "graph-unconnected": "error",
    "graph-unsorted": "error",
    "hole": "error",
    "ir-unsupported": "error",
    "labels-count": "error",
    "labels-invalid": "error",
    "license-missing": "warning",
    "license-syntax": "warning",
    "memory-contract": "warning",
    "op-custom": "error",
    "op-unknown": "error",
    "opset-unsupported": "error",
    "quantisation-range": "warning",
    "recipe-invalid": "error",
    "recipe-missing": "warning",
    "tensor-dtype": "error",
    "tensor-extra": "error",
    "tensor-missing": "error",
    "tensor-shape": "error",
    "weights-not-finite": "error",
    "weights-per-tensor": "warning",
}  # fmt: skip


class Finding(Struct, frozen=True):
    """Something that is wrong, or that its author should know.

    Attributes:
        code: Its kind, one of `CODES`.
        path: The file in the project that it is about.
        message: What is wrong, one sentence without a trailing full stop.
        line: 1-based line in that file, where there is one.
        hint: What to do next, where that is known.
    """

    code: str
    path: str
    message: str
    line: int | None = None
    hint: str | None = None

    @property
    def level(self) -> Level:
        """Whether a bundle with it must not be built, or had better not."""
        return CODES[self.code]

    @property
    def place(self) -> str:
        """The file, with the line where there is one."""
        return self.path if self.line is None else f"{self.path}:{self.line}"

    def __str__(self) -> str:
        return f"{self.place}: {self.level} {self.code} {self.message}"


def one_line(text: str, at_most: int = 300) -> str:
    """Returns what a native library says as one line of bearable length."""
    plain = " ".join(text.split())
    return plain if len(plain) <= at_most else plain[: at_most - 1] + "…"
