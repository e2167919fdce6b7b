"""The text of a drafted model.yaml: one key a line, with a comment above what isn't plain."""

from __future__ import annotations

from textwrap import indent
from typing import TYPE_CHECKING, Any, Final

from edge_agent.authoring import sections
from edge_agent.model_yaml import HOLE
from edge_signing.errors import printable

if TYPE_CHECKING:
    from edge_agent.authoring.drafting.parts import Draft

_HEAD: Final = (
    "What this bundle is. docs/BUNDLES.md tells of every key, `edge-agent bundle schema` too.",
)
_HOLES: Final = f"{HOLE} is a hole: write what belongs there. `edge-agent bundle lint` lists them."


def text(draft: Draft) -> bytes:
    """Returns the bytes of the model.yaml."""
    blocks = [_section(key, value, draft.comments, "") for key, value in draft.value.items()]
    head = [*_HEAD, *([_HOLES] if HOLE in "".join(blocks) else [])]
    return ("".join(f"# {line}\n" for line in head) + "".join(blocks)).encode()


def _section(key: str, value: Any, comments: dict[str, list[str]], above: str) -> str:
    path = f"{above}{key}"
    told = "".join(f"# {printable(line)}\n" for line in comments.get(path, ()))
    inner = any(one.startswith(f"{path}.") for one in comments)
    if inner and isinstance(value, dict):
        parts = [_section(k, v, comments, f"{path}.") for k, v in value.items()]
        return f"{told}{key}:\n" + indent("".join(parts), "  ")
    if value == HOLE:
        return f"{told}{key}: {HOLE}\n"
    return told + sections.to_yaml({key: value}).decode()
