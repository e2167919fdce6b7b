"""Which models should be served: a document, and what it takes to get there. Nothing here waits."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Annotated, Any, Final, Literal, TypeAlias

import msgspec
from msgspec import Meta, Struct

from edge_agent import yaml_subset
from edge_agent.description import PATTERN_WORDS, BundleName, Version
from edge_agent.errors import BadInputError, DescriptionError

SCHEMA: Final = "edge-agent/desired/v1"
MAX_MODELS: Final = 256
_ALIAS: Final = r"^[a-z0-9]+([._-][a-z0-9]+)*(?!\n)$"
_Alias = Annotated[str, Meta(pattern=_ALIAS, max_length=128)]
_ALIAS_WORDS: Final = "an alias: lower-case letters and digits, with single '.', '_' or '-' between"
PATTERNS_IN_WORDS: Final = {**PATTERN_WORDS, _ALIAS: _ALIAS_WORDS}


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
        versions = {(one.name, v) for one in self.models for v in (one.version, *one.also) if v}
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice:
            raise ValueError(f"{twice} is there twice")
        for alias, target in self.aliases.items():
            if target.partition("@")[0] not in names:
                raise ValueError(f"the alias {alias} means {target}, which isn't among the models")
            name, _, version = target.partition("@")
            if version and (name, version) not in versions:
                raise ValueError(f"the alias {alias} means {target}, which no version or also says")
            if alias in names:
                raise ValueError(f"the alias {alias} is the name of a model")

    def asks_for(self, name: str, version: str) -> bool:
        """Whether it names this version of a model, or the store's active one of that name."""
        models = [one for one in self.models if one.name == name]
        return any(version in one.also or one.version in (None, version) for one in models)

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
        raise _refused(error, value, place) from error


def _refused(error: msgspec.ValidationError, value: Any, place: str) -> BadInputError:
    from edge_agent.formats import complaint

    found = complaint(str(error), Desired, value, PATTERNS_IN_WORDS)
    prefix = f"{found.place}: " if found.place else ""
    hint = "docs/SERVING.md shows what a desired state looks like"
    if found.needs_quotes:
        hint = "quote it, so that YAML doesn't take it for a number"
    return BadInputError(prefix + found.message, path=place, hint=hint)


class Stored(Struct, frozen=True):
    """What the store has of one model.

    Attributes:
        active: Version and digest of the active bundle.
        bundles: Version and digest of each bundle, oldest first.
    """

    active: tuple[str, str]
    bundles: tuple[tuple[str, str], ...]

    def digest(self, version: str) -> str | None:
        """Returns which bytes a version means; None where it isn't installed."""
        return dict(self.bundles).get(version)  # the latest of several

    def has(self, digest: str) -> bool:
        """Whether these bytes are installed."""
        return any(digest == one for _, one in self.bundles)


class Served(Struct, frozen=True):
    """What there is of one model now.

    Attributes:
        live: Version and digest of the live one; None where it doesn't answer, or is gone.
        ready: All versions that answer with the bytes that the store has for them.
        known: All versions, those that failed included.
        gone: Versions whose bytes have left the store.
    """

    live: tuple[str, str] | None
    ready: frozenset[str]
    known: frozenset[str]
    gone: frozenset[str] = frozenset()


_NOTHING: Final = Served(None, frozenset(), frozenset())
_Target: TypeAlias = tuple[str, str | None]


def plan(
    desired: Desired,
    served: Mapping[str, Served],
    active: Mapping[str, tuple[str, str]],
    aliases: Mapping[str, tuple[str, str | None]],
) -> list[Step]:
    """Returns what it takes, unloads last; nothing where all is so already.

    What an alias that is in force pins is there until the alias has moved.

    Args:
        desired: What should be.
        served: What is, by name.
        active: Version and digest that the store has as active, by name.
        aliases: The aliases that are in force.
    """
    targets, steps, ends = desired.targets(), [], []
    for model in desired.models:
        have = served.get(model.name, _NOTHING)
        loads = _loads(model, have, active.get(model.name))
        mine = {alias: target for alias, target in targets.items() if target[0] == model.name}
        steps += loads + _alias_steps(mine, {alias: aliases.get(alias) for alias in mine})
        pinned = {version for name, version in aliases.values() if name == model.name}
        ends += _ends(model, have, loads, active.get(model.name), pinned)
    steps += _alias_steps({}, {a: target for a, target in aliases.items() if a not in targets})
    names = {model.name for model in desired.models}
    for name, have in served.items():
        if name not in names:
            live = have.live[0] if have.live else None
            ends += [Step("unload", name, v) for v in sorted(have.known, key=lambda v: v != live)]
    return steps + ends


def _loads(model: DesiredModel, have: Served, wanted: tuple[str, str] | None) -> list[Step]:
    live = have.live
    is_live = live is not None and (
        live[0] == model.version and live[0] in have.ready
        if model.version
        else live == wanted or wanted is None
    )
    adds = [Step("add", model.name, v) for v in model.also if v not in have.ready]
    before = live[0] if live else None
    return adds + ([] if is_live else [Step("load", model.name, model.version, before)])


def _ends(
    model: DesiredModel,
    have: Served,
    loads: Sequence[Step],
    wanted: tuple[str, str] | None,
    pinned: Collection[str | None],
) -> list[Step]:
    before = have.live[0] if have.live else None
    keep = {*model.also, model.version}
    if model.version is None and wanted is not None:
        keep.add(wanted[0])
    # What is live stays so until a load has succeeded, and ends with that where nothing pins it.
    if before not in pinned or not any(step.action == "load" for step in loads):
        keep.add(before)
    return [
        Step("unload", model.name, v) for v in sorted(have.known) if v not in keep or v in have.gone
    ]


def _alias_steps(wanted: Mapping[str, _Target], have: Mapping[str, _Target | None]) -> list[Step]:
    changed = sorted(a for a in {*wanted, *have} if wanted.get(a) != have.get(a))
    return [Step("alias", a, _joined(wanted.get(a)), _joined(have.get(a))) for a in changed]


def _joined(target: _Target | None) -> str | None:
    return None if target is None else "@".join(part for part in target if part)
