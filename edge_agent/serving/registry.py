"""Which version answers a call: names, aliases and versions to entries. Nothing here waits."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from edge_agent.errors import ModelNotFoundError

if TYPE_CHECKING:
    from edge_agent.serving.entry import Entry
    from edge_agent.serving.service import ModelStatus


class Registry:
    """The routing table. A change is one assignment: a call sees the old version or the new.

    Attributes:
        aliases: Other names, each with what it means: a name, and where it is pinned a version.
    """

    def __init__(self) -> None:
        self._versions: dict[str, dict[str, Entry]] = {}
        self._live: dict[str, Entry] = {}
        self.aliases: Mapping[str, tuple[str, str | None]] = {}

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
        """Returns one version, the live one (or else the only one) where none is named.

        Raises:
            ModelNotFoundError: There is none.
        """
        name, version = self.name_of(name, version)
        versions = self._versions.get(name, {})
        entry = versions.get(version) if version else self._live.get(name)
        if entry is None and version is None and versions:
            entry = versions[max(versions)]
        if entry is None:
            raise _not_found(name, version, versions)
        return entry

    def loaded(self, digest: str) -> Entry | None:
        """Returns the entry of a bundle."""
        return next((one for one in self if one.ref.digest == digest), None)

    def versions(self, name: str) -> Mapping[str, Entry]:
        """Returns the versions of a model; none where it is unknown."""
        return self._versions.get(name, {})

    def live(self, name: str) -> Entry | None:
        """Returns the version that a call without one goes to."""
        return self._live.get(name)

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
        if not self.aliases:
            return entry.status(is_live, ())
        named = (entry.ref.version, None) if is_live else (entry.ref.version,)
        aliases = (a for a, (n, v) in self.aliases.items() if n == entry.ref.name and v in named)
        return entry.status(is_live, tuple(sorted(aliases)))


def _not_found(name: str, version: str | None, there: Mapping[str, Entry]) -> ModelNotFoundError:
    if there:
        known = ", ".join(sorted(there))
        return ModelNotFoundError(f"no version {version!r} of {name!r} is loaded; {known} is")
    return ModelNotFoundError(
        f"no model {name!r} is loaded", hint="edge-agent models list shows what is installed"
    )
