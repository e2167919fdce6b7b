"""Checks of the class names: readable, and as many as there are scores."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edge_agent.authoring.lint.findings import Finding
from edge_agent.authoring.project import read_file
from edge_agent.description import Classification
from edge_agent.errors import BadInputError
from edge_agent.labels import MAX_LABELS_BYTES, parse_labels

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from edge_agent.description import ModelDescription


def check(folder: Path, description: ModelDescription) -> Iterator[Finding]:
    """Checks the labels of a classifier."""
    rule = description.postprocess
    if not isinstance(rule, Classification):
        return
    try:
        labels = parse_labels(read_file(folder, rule.labels, MAX_LABELS_BYTES), rule.labels)
    except BadInputError as error:
        if (folder / rule.labels).is_file():  # that it is missing is said elsewhere
            yield Finding("labels-invalid", rule.labels, error.message)
        return
    spec = description.output(rule.output)
    classes = spec.shape[-1] if spec else None
    if isinstance(classes, int) and classes != len(labels):
        said = f"has {len(labels)} labels, the output {rule.output!r} has {classes} scores"
        yield Finding("labels-count", rule.labels, said)
    top = description.golden.top if description.golden else None
    if top and top.index >= len(labels):
        yield Finding("labels-count", rule.labels, f"has no label {top.index}, the golden class")
