"""What `edge-agent infer` was asked to do, and the quick way to read it.

Typer takes about 50 ms to import, a quarter of a whole one-shot inference and several times what it
takes to ask the daemon. So plain command lines are read here; whatever this reader doesn't know
(help, completion, mistakes) is left to Typer, which says it well. A test holds the two to the same
result.
"""

from __future__ import annotations

from edge_agent.references import DEMO_NAME

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

MAX_TOP_K = 1000


class InferOptions:
    """The options of one `infer` command.

    Attributes:
        images: Files, globs, folders, or ``-``.
        model: Bundle path or installed name.
        engine: ``auto``, ``onnx``, ``tflite``; None means as configured.
        top_k: Classes an answer; None means as the bundle says.
        inputs: ``NAME=FILE`` tensors.
        json: Whether to answer in JSON lines.
        no_cache: Whether to compute the answer even where it was given before.
    """

    def __init__(
        self,
        images: tuple[str, ...],
        model: str | None = None,
        engine: str | None = None,
        top_k: int | None = None,
        inputs: tuple[str, ...] = (),
        json: bool = False,
        no_cache: bool = False,
    ) -> None:
        self.images = images
        self.model = DEMO_NAME if model is None else model
        self.engine = engine
        self.top_k = top_k
        self.inputs = inputs
        self.json = json
        self.no_cache = no_cache


def read_plainly(arguments: Sequence[str]) -> InferOptions | None:
    """Reads the arguments after ``infer``.

    Returns:
        None where anything is not plain; then Typer reads them.
    """
    images: list[str] = []
    inputs: list[str] = []
    single: dict[str, str] = {}
    flags: set[str] = set()
    rest = iter(arguments)
    for argument in rest:
        if argument == "-" or not argument.startswith("-"):
            images.append(argument)
            continue
        if argument in ("--json", "--no-cache"):
            flags.add(argument)
            continue
        option, equals, value = argument.partition("=")
        value = value if equals else next(rest, "")
        if option == "--input" and value:
            inputs.append(value)
        elif option in ("--model", "--engine", "--top-k") and value and value[0] != "-":
            single[option] = value
        else:
            return None
    return _checked(images, inputs, single, flags)


def _checked(
    images: list[str], inputs: list[str], single: dict[str, str], flags: set[str]
) -> InferOptions | None:
    top_k = single.get("--top-k", "1")
    short = top_k.isascii() and top_k.isdigit() and len(top_k) <= len(str(MAX_TOP_K))
    numeric = short and 1 <= int(top_k) <= MAX_TOP_K
    if not (images or inputs) or not numeric or not _is_engine(single.get("--engine")):
        return None
    return InferOptions(
        tuple(images),
        single.get("--model"),
        single.get("--engine"),
        int(top_k) if "--top-k" in single else None,
        tuple(inputs),
        "--json" in flags,
        "--no-cache" in flags,
    )


def _is_engine(name: str | None) -> bool:
    if name is None:
        return True
    from edge_agent.config import ENGINES

    return name in ENGINES
