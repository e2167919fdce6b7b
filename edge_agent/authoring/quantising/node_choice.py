"""Which nodes of a model are quantised: all that can be, without those that are excluded. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from edge_agent.errors import ConfigError, ModelFileError

if TYPE_CHECKING:
    from edge_agent.authoring.quantising.quantiser import Ranges


# The quantiser merges them into the node before them, whose output then has their output's name.
_MERGED: Final = ("Relu", "Clip")


def excluded(proto: Any, given: tuple[str, ...]) -> tuple[str, ...]:
    """Returns the names of the nodes that stay float.

    Args:
        proto: The prepared model.
        given: Names of nodes, or of tensors as the drift gate shows them, which stand for the
            nodes that make them.

    Raises:
        ConfigError: There is no node or tensor of that name.
    """
    by_name = {node.name: node for node in proto.graph.node}
    makers = {output: node for node in proto.graph.node for output in node.output}
    found = []
    for name in given:
        node = by_name.get(name) or makers.get(name)
        if node is None:
            raise _unknown(name, list(by_name))
        found.append(node.name)
        before = makers.get(node.input[0]) if name in makers and node.op_type in _MERGED else None
        found += [before.name] if before else []
    return tuple(dict.fromkeys(found))


def _unknown(name: str, known: list[str]) -> ConfigError:
    close = [one for one in known if name.lower() in one.lower()] or known
    return ConfigError(
        f"--exclude: the model has no node {name!r}",
        hint=f"it has {', '.join(close[:5])}{', …' if len(close) > 5 else ''}",
    )


def finite(proto: Any, ranges: Ranges, exclude: tuple[str, ...], path: str) -> Ranges:
    """Returns the ranges without those that aren't finite, which only excluded nodes may have.

    Args:
        proto: The prepared model.
        ranges: What `Calibrater.ranges` returned.
        exclude: Names of nodes that stay float.
        path: The model's name, for messages.

    Raises:
        ModelFileError: A node that is to be quantised has infinities or NaN.
    """
    import numpy as np

    bad = {n for n, one in ranges.items() if not np.isfinite([one.lowest, one.highest]).all()}
    nodes = [one for one in proto.graph.node if bad.intersection((*one.input, *one.output))]
    names = [one.name for one in nodes if one.name not in exclude]
    if names:
        raise ModelFileError(
            f"the samples make a tensor of the node {names[0]!r} infinite or NaN",
            path=path,
            hint=f"leave it out, with --calibration minmax: --exclude {' --exclude '.join(names)}",
        )
    return {name: one for name, one in ranges.items() if name not in bad}
