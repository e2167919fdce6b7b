"""Which operation a path means, on which model.

Names of models contain slashes, and clients send them bare or as ``%2F``. The raw path decides: the
word behind the last bare slash (``infer``, ``ready``, …) is always the operation, and ``versions``
before the last but one always begins a version. A model with such a word in its own name is reached
by writing its slash as ``%2F``. ``NAME@VERSION`` is the same as ``NAME/versions/VERSION``.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final, NamedTuple
from urllib.parse import unquote_to_bytes

from edge_agent.errors import BadInputError

# By prefix: the words that may follow a model's name, and whether it can stand alone.
_MODEL_PATHS: Final[dict[str, tuple[frozenset[str], bool]]] = {
    "/v2/models/": (frozenset(("infer", "ready", "stats", "config")), True),
    "/v2/repository/models/": (frozenset(("load", "unload")), False),
    "/infer/": (frozenset(), True),
    "/v1/models/": (frozenset(), True),
}
_FIXED: Final = frozenset(("/v2/models/stats",))
_V1: Final = "/v1/models/"
_VERBS_V1: Final = ("predict", "explain", "classify", "regress")


class Target(NamedTuple):
    """What a path means.

    Attributes:
        template: The path with ``{name}`` for the model, as in the table of operations.
        name: The model; empty where the path has none.
        version: Its version, where the path has one.
    """

    template: str
    name: str = ""
    version: str | None = None


@lru_cache(maxsize=256)
def target(raw_path: bytes) -> Target:
    """Returns what a path means, whether or not there is such an operation.

    Args:
        raw_path: As it was sent, without the query.

    Raises:
        BadInputError: Its percent-encoding, or what that stands for, isn't text.
    """
    path = raw_path.decode("latin-1")
    if path not in _FIXED:
        for prefix, (verbs, stands_alone) in _MODEL_PATHS.items():
            if path.startswith(prefix) and len(path) > len(prefix):
                return _model_target(prefix, path[len(prefix) :], verbs, stands_alone)
    return Target(path.rstrip("/") or "/")


def _model_target(prefix: str, rest: str, verbs: frozenset[str], stands_alone: bool) -> Target:
    parts = rest.split("/")
    verb = ""
    if prefix == _V1:
        parts[-1], verb = _v1_verb(parts[-1])
    elif len(parts) > 1 and parts[-1] in verbs:
        verb = "/" + parts.pop()
    if not verb and not stands_alone:
        return Target(prefix + rest)
    version = None
    if len(parts) > 2 and parts[-2] == "versions" and prefix != "/v2/repository/models/":
        version = _decoded(parts[-1])
        del parts[-2:]
    name = _decoded("/".join(parts))
    if version is None and "@" in name:
        name, _, version = name.partition("@")
    if not name:
        return Target(prefix + rest)
    return Target(prefix + "{name}" + verb, name, version)


def _v1_verb(part: str) -> tuple[str, str]:
    """Splits ``name:predict``; the colon may be encoded."""
    name, colon, verb = part.replace("%3A", ":").replace("%3a", ":").rpartition(":")
    return (name, ":" + verb) if colon and verb in _VERBS_V1 else (part, "")


def _decoded(text: str) -> str:
    try:
        return unquote_to_bytes(text).decode("utf-8")
    except UnicodeDecodeError as error:
        raise BadInputError("the path isn't UTF-8") from error
