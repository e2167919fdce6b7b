"""What `edge-agent infer` was asked to do, and the quick way to read it.

Typer takes about 50 ms to import, a quarter of a whole one-shot inference. So plain command lines
are read here; whatever this reader doesn't know (help, completion, mistakes) is left to Typer,
which says it well. A test holds the two to the same result.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from edge_agent.config import ENGINES

MAX_TOP_K: Final = 1000


class InferOptions(NamedTuple):
    """The options of one `infer` command.

    Attributes:
        images: Files, globs, folders, or ``-``.
        model: Bundle path or installed name; None means the demo bundle.
        engine: ``auto``, ``onnx``, ``tflite``; None means as configured.
        top_k: Classes an answer; None means as the bundle says.
        inputs: ``NAME=FILE`` tensors.
        json: Whether to answer in JSON lines.
    """

    images: tuple[str, ...]
    model: str | None = None
    engine: str | None = None
    top_k: int | None = None
    inputs: tuple[str, ...] = ()
    json: bool = False


def read_plainly(arguments: Sequence[str]) -> InferOptions | None:
    """Reads the arguments after ``infer``.

    Returns:
        None where anything is not plain; then Typer reads them.
    """
    images: list[str] = []
    inputs: list[str] = []
    single: dict[str, str] = {}
    json = False
    rest = iter(arguments)
    for argument in rest:
        if argument == "-" or not argument.startswith("-"):
            images.append(argument)
            continue
        if argument == "--json":
            json = True
            continue
        option, equals, value = argument.partition("=")
        value = value if equals else next(rest, "")
        if option == "--input" and value:
            inputs.append(value)
        elif option in ("--model", "--engine", "--top-k") and value and value[0] != "-":
            single[option] = value
        else:
            return None
    return _checked(images, inputs, single, json)


def _checked(
    images: list[str], inputs: list[str], single: dict[str, str], json: bool
) -> InferOptions | None:
    top_k = single.get("--top-k", "1")
    short = top_k.isascii() and top_k.isdigit() and len(top_k) <= len(str(MAX_TOP_K))
    numeric = short and 1 <= int(top_k) <= MAX_TOP_K
    known_engine = single.get("--engine", "auto") in ENGINES
    if not (images or inputs) or not numeric or not known_engine:
        return None
    return InferOptions(
        tuple(images),
        single.get("--model"),
        single.get("--engine"),
        int(top_k) if "--top-k" in single else None,
        tuple(inputs),
        json,
    )
