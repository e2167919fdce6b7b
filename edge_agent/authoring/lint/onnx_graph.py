"""Checks of how an ONNX graph hangs together: what a node takes was made before it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from edge_agent.authoring.lint.findings import Finding

if TYPE_CHECKING:
    from collections.abc import Iterator


def check(proto: Any, file: str) -> Iterator[Finding]:
    """Checks the graph and its subgraphs; one finding a graph."""
    todo: list[tuple[Any, frozenset[str]]] = [(proto.graph, frozenset())]
    while todo:
        graph, outer = todo.pop()
        known = set(outer) | {one.name for one in (*graph.input, *graph.initializer)}
        known |= {one.values.name for one in graph.sparse_initializer}
        made = {name for node in graph.node for name in node.output if name}
        problem = _order(graph, known, made) or _outputs(graph, known | made)
        if problem:
            yield Finding(problem[0], file, problem[1])
        inner = frozenset(known | made)
        for node in graph.node:
            for attribute in node.attribute:
                todo += [(attribute.g, inner)] if attribute.HasField("g") else []
                todo += [(one, inner) for one in attribute.graphs]


def _order(graph: Any, known: set[str], made: set[str]) -> tuple[str, str] | None:
    ready = set(known)
    for node in graph.node:
        for name in node.input:
            if name and name not in ready:
                if name not in made:
                    said = f"the node {_shown(node)} takes {name!r}, which nothing makes"
                    return "graph-unconnected", said
                return _cycle(graph, known) or (
                    "graph-unsorted",
                    f"the node {_shown(node)} stands before the one that makes {name!r}",
                )
        ready.update(one for one in node.output if one)
    return None


def _cycle(graph: Any, known: set[str]) -> tuple[str, str] | None:
    """Finds nodes that wait for each other: those that are left when all that can run have run."""
    waiting = {index: {i for i in node.input if i} - known for index, node in enumerate(graph.node)}
    takers: dict[str, list[int]] = {}
    for index, names in waiting.items():
        for name in names:
            takers.setdefault(name, []).append(index)
    ready = [index for index, names in waiting.items() if not names]
    done = 0
    while ready:
        done += 1
        for name in graph.node[ready.pop()].output:
            for taker in takers.get(name, ()):
                if name in waiting[taker]:
                    waiting[taker].discard(name)
                    ready += [] if waiting[taker] else [taker]
    if done == len(graph.node):
        return None
    stuck = next(index for index, names in waiting.items() if names)
    return "graph-cycle", f"the graph has a cycle through the node {_shown(graph.node[stuck])}"


def _outputs(graph: Any, known: set[str]) -> tuple[str, str] | None:
    for one in graph.output:
        if one.name not in known:
            return "graph-unconnected", f"nothing makes the output {one.name!r}"
    return None


def _shown(node: Any) -> str:
    return f"{node.name!r} ({node.op_type})" if node.name else f"of {node.op_type}"
