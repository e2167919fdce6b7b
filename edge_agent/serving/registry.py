"""Which version answers a call: names, aliases and versions to entries. Nothing here waits."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import TYPE_CHECKING

from msgspec import Struct, structs

from edge_agent.errors import ModelNotFoundError, ModelNotReadyError
from edge_agent.serving.service import ModelStatus, State
from edge_agent.types import ModelRef

if TYPE_CHECKING:
    from edge_agent.serving.entry import Entry


class Unmet(Struct, frozen=True):
    """What is to be served, though it was never opened: there is no entry of it.

    Attributes:
        state: LOADING, or UNAVAILABLE.
        reason: Why it isn't ready.
        is_live: Whether calls without a version are meant for it.
    """

    state: State
    reason: str
    is_live: bool


class Registry:
    """The routing table. A change is one assignment: a call sees the old version or the new.

    Attributes:
        aliases: Other names, each with what it means: a name, and where it is pinned a version.
        unmet: What there should be an entry of, by name and version (empty where nobody knows it).
    """

    def __init__(self) -> None:
        self._versions: dict[str, dict[str, Entry]] = {}
        self._live: dict[str, Entry] = {}
        self.aliases: Mapping[str, tuple[str, str | None]] = {}
        self.unmet: dict[tuple[str, str], Unmet] = {}

    def __iter__(self) -> Iterator[Entry]:
        """Yields every version, sorted by name and version."""
        for name in sorted(self._versions):
            for version in sorted(self._versions[name]):
                yield self._versions[name][version]

    def __contains__(self, entry: Entry) -> bool:
        """Whether a version is known, with just these bytes."""
        return self.versions(entry.ref.name).get(entry.ref.version) is entry

    def name_of(self, name: str, version: str | None) -> tuple[str, str | None]:
        """Returns what an alias stands for; another name stands for itself."""
        if name in self._versions or name not in self.aliases:
            return name, version
        target, pinned = self.aliases[name]
        return target, version or pinned

    def find(self, name: str, version: str | None) -> Entry:
        """Returns one version, the live one where none is named.

        Raises:
            ModelNotFoundError: There is none.
            ModelNotReadyError: There should be one, or no version of it is live.
        """
        name, version = self.name_of(name, version)
        entry = self._entry(name, version)
        if entry is None:
            missing = self._missing(name, version)
            told = " ".join(part for part in (name, missing.ref.version) if part)
            raise ModelNotReadyError(f"{told} is not ready: {missing.reason}")
        return entry

    def model(self, name: str, version: str | None) -> ModelStatus:
        """Returns what the server says of one version, the live one where none is named.

        Raises:
            ModelNotFoundError: There is none, and there should be none.
        """
        name, version = self.name_of(name, version)
        entry = self._entry(name, version)
        return self._missing(name, version) if entry is None else self.status(entry)

    def models(self) -> list[ModelStatus]:
        """Returns what the server says of each version that is, or should be."""
        found = [self.status(entry) for entry in self]
        found += [self._unmet(*key) for key in self.unmet if self._entry(*key) is None]
        return sorted(found, key=lambda one: (one.ref.name, one.ref.version))

    def forget_unmet(self, names: Collection[str] | None) -> None:
        """Forgets what should be there of some models, or of all."""
        for key in [one for one in self.unmet if names is None or one[0] in names]:
            del self.unmet[key]

    def _entry(self, name: str, version: str | None) -> Entry | None:
        return self._versions.get(name, {}).get(version) if version else self._live.get(name)

    def _missing(self, name: str, version: str | None) -> ModelStatus:
        """Returns the status of what has no entry."""
        for key, one in self.unmet.items():
            if key[0] == name and (key[1] == version if version else one.is_live):
                return self._unmet(*key)
        there = self._versions.get(name, {})
        if version is not None or not there:
            raise _not_found(name, version, there)
        reason = f"no version of it is live; by number there is {', '.join(sorted(there))}"
        return _absent(ModelRef(name, "", ""), Unmet("UNAVAILABLE", reason, is_live=False))

    def _unmet(self, name: str, version: str) -> ModelStatus:
        one = self.unmet[name, version]
        is_live = one.is_live and name not in self._live
        status = _absent(ModelRef(name, version, ""), structs.replace(one, is_live=is_live))
        return structs.replace(status, aliases=self._aliases(name, version, is_live))

    def loaded(self, digest: str) -> Entry | None:
        """Returns the entry of a bundle."""
        return next((one for one in self if one.ref.digest == digest), None)

    def versions(self, name: str) -> Mapping[str, Entry]:
        """Returns the versions of a model; none where it is unknown."""
        return self._versions.get(name, {})

    def live(self, name: str) -> Entry | None:
        """Returns the version that a call without one goes to."""
        return self._live.get(name)

    def announce(self, entry: Entry, is_live: bool) -> None:
        """Makes a version known before it answers; it takes no place of one that does."""
        live, same = self.live(entry.ref.name), self._entry(entry.ref.name, entry.ref.version)
        if is_live and (live is None or live.loaded is None or live.state == "UNLOADING"):
            self.make_live(entry)
        elif same is None or same.loaded is None:
            self.put(entry)

    def put(self, entry: Entry) -> tuple[Entry, ...]:
        """Makes a version known. Calls without a version go on to where they went.

        Returns:
            Other bytes of the same version, if there are any: nobody asks for them any more.
        """
        versions = self._versions.setdefault(entry.ref.name, {})
        before = versions.get(entry.ref.version)
        versions[entry.ref.version] = entry
        if before is None or before is entry:
            return ()
        if self._live.get(entry.ref.name) is before:
            self._live[entry.ref.name] = entry
        return (before,)

    def make_live(self, entry: Entry) -> tuple[Entry, ...]:
        """Sends calls without a version to this one from now on.

        Returns:
            Whom nobody asks any more: what was live, and other bytes of the same version.
        """
        live = self._live.get(entry.ref.name)
        replaced = self.put(entry)
        self._live[entry.ref.name] = entry
        if live is None or live is entry or live in replaced:
            return replaced
        return (*replaced, live)

    def remove(self, entry: Entry) -> None:
        """Forgets a version, if it is still this one that is known."""
        versions = self._versions.get(entry.ref.name, {})
        if versions.get(entry.ref.version) is entry:
            del versions[entry.ref.version]
        if not versions:
            self._versions.pop(entry.ref.name, None)
        if self._live.get(entry.ref.name) is entry:
            del self._live[entry.ref.name]

    def status(self, entry: Entry) -> ModelStatus:
        """Returns what the server says of a version."""
        is_live = self._live.get(entry.ref.name) is entry
        if not self.aliases:  # each call asks
            return entry.status(is_live, ())
        return entry.status(is_live, self._aliases(entry.ref.name, entry.ref.version, is_live))

    def _aliases(self, name: str, version: str, is_live: bool) -> tuple[str, ...]:
        named = (version, None) if is_live else (version,)
        return tuple(sorted(a for a, (n, v) in self.aliases.items() if n == name and v in named))


def _absent(ref: ModelRef, one: Unmet) -> ModelStatus:
    return ModelStatus(ref, one.state, one.reason, one.is_live, "", None, batches=False)


def _not_found(name: str, version: str | None, there: Mapping[str, Entry]) -> ModelNotFoundError:
    if there:
        known = ", ".join(sorted(there))
        return ModelNotFoundError(f"no version {version!r} of {name!r} is loaded; {known} is")
    return ModelNotFoundError(
        f"no model {name!r} is loaded",
        hint="POST /v2/repository/index lists what is served; where edge-agent apply has said "
        "what should be, another model takes an apply that names it",
    )
