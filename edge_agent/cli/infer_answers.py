"""What `infer` prints of an answer, whoever gave it: lines, or the JSON document itself."""

from __future__ import annotations

from edge_agent.answers import SCHEMA
from edge_agent.cli import output

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

SHOWN_VALUES = 8


def show(document: dict[str, Any], source: str | None, as_json: bool) -> None:
    """Prints one answer.

    Args:
        document: Of `SCHEMA`.
        source: The image that it answers; None where there were only tensors.
        as_json: Print the document itself.
    """
    if as_json:
        output.document(document)
        return
    _show_title(document, source or "--input")
    labels = document["labels"]
    width = max((len(one["label"]) for one in labels), default=0)
    for one in labels:
        output.line(f"  {one['label']:<{width}}  {one['score']:.3f}")
    if document["confident"] is False:
        output.line("  (below the model's min_confidence)")
    for one in document["outputs"]:
        _show_output(one)


def refuse(error: Exception, source: str | None, as_json: bool) -> int:
    """Tells of an input that got no answer, and returns the exit code; others may fare better.

    Raises:
        Exception: The error itself, where it isn't about this input alone.
    """
    from edge_agent import errors
    from edge_agent.cli import failures

    of_the_model = isinstance(error, (errors.DescriptionError, errors.ModelFileError))
    of_the_input = isinstance(
        error,
        (
            errors.BadInputError,
            errors.DeadlineExceededError,
            errors.EngineFailedError,
            errors.WorkerFailedError,
        ),
    )
    if of_the_model or not of_the_input:
        raise error
    if as_json:
        failure = failures.as_json(error)
        output.document({"schema": SCHEMA, "input": source, "error": failure})
    return failures.report(error, as_json_document=False)


def _show_title(document: dict[str, Any], name: str) -> None:
    model = document["model"]
    took = f"{sum(document['timings_ms'].values()):.1f} ms"
    how = "cached" if document.get("cached") else took
    by = ", by the daemon" if document["answered_by"] == "daemon" else ""
    output.line(f"{name}  ({model['name']} {model['version']}, {document['engine']}, {how}{by})")


def _show_output(one: dict[str, Any]) -> None:
    size = 1
    for length in one["shape"]:
        size *= length
    numbers = one["data"][:SHOWN_VALUES]
    shown = " ".join("null" if number is None else f"{number:.6g}" for number in numbers)
    more = " …" if size > SHOWN_VALUES else ""
    output.line(f"  {one['name']}  {one['dtype']} {one['shape']}: {shown}{more}")
