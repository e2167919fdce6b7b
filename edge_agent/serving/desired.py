"""Which models should be served: a document, and what it takes to get there. Nothing here waits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta, Struct

from edge_agent import yaml_subset
from edge_agent.description import BundleName, Version
from edge_agent.errors import BadInputError, DescriptionError

SCHEMA: Final = "edge-agent/desired/v1"
MAX_MODELS: Final = 256
_Alias = Annotated[str, Meta(pattern=r"^[a-z0-9]+([._-][a-z0-9]+)*(?!\n)$", max_length=128)]


class DesiredModel(Struct, frozen=True, forbid_unknown_fields=True):
    """One model that should be served.

    Attributes:
        name: Bundle name.
        version: The version that is live; None means the one that the store has as active.
        also: Other versions that are served beside it, by their number.
    """

    name: BundleName
    version: Version | None = None
    also: Annotated[tuple[Version, ...], Meta(max_length=8)] = ()


class Desired(Struct, frozen=True, forbid_unknown_fields=True):
    """The set of models that should be served.

    Attributes:
        schema: Version of this format.
        models: The models; no other is served.
        aliases: Other names for them: ``NAME`` or ``NAME@VERSION``.
    """

    schema: Literal["edge-agent/desired/v1"]
    models: Annotated[tuple[DesiredModel, ...], Meta(max_length=MAX_MODELS)]
    aliases: Annotated[dict[_Alias, str], Meta(max_length=MAX_MODELS)] = {}

    def __post_init__(self) -> None:
        names = [model.name for model in self.models]
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice:
            raise ValueError(f"{twice} is there twice")
        for alias, target in self.aliases.items():
            if target.partition("@")[0] not in names:
                raise ValueError(f"the alias {alias} means {target}, which isn't among the models")
            if alias in names:
                raise ValueError(f"the alias {alias} is the name of a model")

    def targets(self) -> dict[str, tuple[str, str | None]]:
        """Returns the aliases as name and version."""
        pairs = {alias: target.partition("@") for alias, target in self.aliases.items()}
        return {alias: (name, version or None) for alias, (name, _, version) in pairs.items()}


class Step(Struct, frozen=True):
    """One change.

    Attributes:
        action: ``load`` a version and make it live, ``add`` one beside it, ``unload`` one, or
            ``alias`` (a name is given or taken).
        model: Which model; with ``alias`` the alias.
        version: Which version; None means the store's active one; with ``alias`` what it means.
        before: What is live, or what the alias meant; None for nothing.
    """

    action: Literal["load", "add", "unload", "alias"]
    model: str
    version: str | None
    before: str | None = None


def parse(data: bytes, place: str) -> Desired:
    """Reads a desired state, as YAML (the subset that model.yaml uses) or JSON.

    Args:
        data: At most 64 KiB.
        place: What errors name.

    Raises:
        BadInputError: It isn't one; the message says where.
    """
    try:
        value, _ = yaml_subset.load(data)
    except DescriptionError as error:
        raise BadInputError(f"line {error.line}: {error.message}", path=place) from error
    return convert(value, place)


def convert(value: Any, place: str) -> Desired:
    """Checks a desired state; for errors see `parse`."""
    try:
        return msgspec.convert(value, Desired)
    except msgspec.ValidationError as error:
        raise BadInputError(
            str(error), path=place, hint="docs/SERVING.md shows what a desired state looks like"
        ) from error


class Served(Struct, frozen=True):
    """What there is of one model now.

    Attributes:
        live: Version and digest of the live one; None where it doesn't answer.
        ready: All versions that answer.
        known: All versions, those that failed included.
    """

    live: tuple[str, str] | None
    ready: frozenset[str]
    known: frozenset[str]


def plan(
    desired: Desired,
    served: Mapping[str, Served],
    active: Mapping[str, tuple[str, str]],
    aliases: Mapping[str, tuple[str, str | None]],
) -> list[Step]:
    """Returns what it takes, loads before unloads; nothing where all is so already.

    Args:
        desired: What should be.
        served: What is, by name.
        active: Version and digest that the store has as active, by name.
        aliases: The aliases that are in force.
    """
    steps = [step for model in desired.models for step in _of(model, served, active)]
    names = {model.name for model in desired.models}
    for name, have in served.items():
        if name not in names:
            live = have.live[0] if have.live else None
            steps += [Step("unload", name, v) for v in sorted(have.known, key=lambda v: v != live)]
    return steps + _alias_steps(desired.targets(), aliases)


def _of(
    model: DesiredModel, served: Mapping[str, Served], active: Mapping[str, tuple[str, str]]
) -> list[Step]:
    have = served.get(model.name, Served(None, frozenset(), frozenset()))
    live = have.live
    wanted = active.get(model.name) if model.version is None else None
    is_live = live is not None and (
        live[0] == model.version if model.version else live == wanted or wanted is None
    )
    adds = [Step("add", model.name, v) for v in model.also if v not in have.ready]
    before = live[0] if live else None
    loads = [] if is_live else [Step("load", model.name, model.version, before)]
    # What is live now stays so until the load has succeeded, and ends then.
    keep = {*model.also, model.version, before, wanted[0] if wanted else None}
    ends = [Step("unload", model.name, v) for v in sorted(have.known) if v not in keep]
    return adds + loads + ends


def _alias_steps(
    wanted: Mapping[str, tuple[str, str | None]], have: Mapping[str, tuple[str, str | None]]
) -> list[Step]:
    changed = sorted(a for a in {*wanted, *have} if wanted.get(a) != have.get(a))
    return [Step("alias", a, _joined(wanted.get(a)), _joined(have.get(a))) for a in changed]


def _joined(target: tuple[str, str | None] | None) -> str | None:
    return None if target is None else "@".join(part for part in target if part)
