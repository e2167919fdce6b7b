"""Installed bundles: immutable, named by their digest, one of each name active.

Layout below the state folder (0700)::

    bundles/<hex digest>/…    the bundle's files, 0600
    models.json               which digests of which names are installed, which one is active
    incoming/                 installs under way; swept by the next install
    lock                      held by whoever changes anything

Every step is durable before the next begins, and the one that counts is a single rename of
``models.json``: a crash leaves the old state or the new one.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Final, Literal

import msgspec
from msgspec import Meta, Struct

from edge_agent.errors import ModelNotFoundError, StoreError
from edge_agent.files import read_regular
from edge_agent.ownership import locked, private_folder, require_ours

if TYPE_CHECKING:
    from pathlib import Path

    from edge_agent.bundles import Bundle
    from edge_agent.types import ModelRef

# An install holds the lock while each engine loads the bundle: seconds on a small board.
_LOCK_TIMEOUT_S: Final = 60.0
_SPARE_BYTES: Final = 16 * 1024**2
_MAX_INDEX_BYTES: Final = 4 * 1024**2


_Digest = Annotated[str, Meta(pattern=r"^sha256:[0-9a-f]{64}(?!\n)$")]


class Installed(Struct, frozen=True, forbid_unknown_fields=True):
    """One installed bundle.

    Attributes:
        digest: ``sha256:…``.
        version: Semantic version in its model.yaml.
        installed_at: UTC, ISO 8601.
        size_bytes: Of all its files.
    """

    digest: _Digest
    version: str
    installed_at: str
    size_bytes: int


class Installs(Struct, frozen=True, forbid_unknown_fields=True):
    """All installed bundles of one name, oldest first.

    Attributes:
        active: Digest of the one that the bare name means.
        bundles: The bundles.
    """

    active: _Digest
    bundles: Annotated[tuple[Installed, ...], Meta(min_length=1)]


class _Index(Struct, frozen=True, forbid_unknown_fields=True):
    schema: Literal["edge-agent/models/v1"] = "edge-agent/models/v1"
    models: dict[str, Installs] = {}

    def __post_init__(self) -> None:
        for name, installs in self.models.items():
            if not any(one.digest == installs.active for one in installs.bundles):
                raise ValueError(f"the active bundle of {name!r} isn't among its bundles")


class ModelStore:
    """The store below one state folder."""

    def __init__(self, state_dir: Path) -> None:
        self._root = state_dir
        self._bundles = state_dir / "bundles"
        self._incoming = state_dir / "incoming"
        self._index_file = state_dir / "models.json"

    def list(self) -> dict[str, Installs]:
        """Returns what is installed, by name.

        Raises:
            StoreError: The index can't be read.
        """
        return dict(sorted(self._index().models.items()))

    def find(self, reference: str) -> Path | None:
        """Returns the folder of ``NAME`` (the active one) or ``NAME@VERSION``, if installed."""
        name, _, version = reference.partition("@")
        installs = self._index().models.get(name)
        if installs is None:
            return None
        for one in reversed(installs.bundles):
            if one.version == version or (not version and one.digest == installs.active):
                return self._folder(one.digest)
        return None

    def find_digest(self, digest: str) -> Path | None:
        """Returns the folder of the bundle with that digest, if installed."""
        models = self._index().models.values()
        there = any(one.digest == digest for installs in models for one in installs.bundles)
        return self._folder(digest) if there else None

    def is_expected(self, folder: Path, reference: str, found: ModelRef) -> bool:
        """Whether a bundle that was opened in the store is the one that the reference means.

        Args:
            folder: What `find` returned.
            reference: What it was asked for.
            found: What lies there, as it was verified.
        """
        return self._folder(found.digest) == folder and reference.partition("@")[0] == found.name

    def install(self, bundle: Bundle, when: str, check: Callable[[Path], None]) -> bool:
        """Copies a bundle in and makes it the active one of its name.

        Args:
            bundle: Verified for installing; hashed again as it is copied.
            when: The time, UTC, ISO 8601.
            check: Looks at the copy before it counts; what it raises calls the install off.

        Returns:
            False where these very bytes were installed already, undamaged; they are active now.

        Raises:
            StoreError: No space, no permission, or somebody else holds the lock.
            edge_signing.errors.BundleChanged: A file changed since it was verified.
        """
        size = sum(bundle.verified.size(name) for name in bundle.verified.names())
        with self._locked():
            folder = self._folder(bundle.ref.digest)
            fresh = not _is_intact(folder, check)
            if fresh:
                self._copy(bundle, size, folder, check)
            entry = Installed(bundle.ref.digest, bundle.ref.version, when, size)
            self._activate(bundle.ref.name, entry)
            return fresh

    def remove(self, reference: str) -> tuple[Installed, ...]:
        """Removes ``NAME`` with all its versions, or ``NAME@VERSION``.

        When the active version goes, the most recently installed of the others becomes active.

        Returns:
            What was removed.

        Raises:
            ModelNotFoundError: It isn't installed.
            StoreError: The store can't be changed.
        """
        name, at, version = reference.partition("@")
        if at and not version:
            raise ModelNotFoundError(f"{reference!r} names no version")
        with self._locked():
            index = self._index()
            installs = index.models.get(name)
            bundles = installs.bundles if installs else ()
            gone = tuple(b for b in bundles if not version or b.version == version)
            if not installs or not gone:
                raise ModelNotFoundError(
                    f"{reference!r} is not installed", hint="edge-agent models list"
                )
            left = tuple(b for b in bundles if b not in gone)
            models = {key: value for key, value in index.models.items() if key != name}
            if left:
                kept = any(b.digest == installs.active for b in left)
                models[name] = Installs(installs.active if kept else left[-1].digest, left)
            self._write(_Index(models=models))
            self._sweep(models)
        return gone

    def _folder(self, digest: str) -> Path:
        return self._bundles / digest.removeprefix("sha256:")

    def _copy(self, bundle: Bundle, size: int, folder: Path, check: Callable[[Path], None]) -> None:
        import shutil

        from edge_signing.durable import fsync_directory

        free = shutil.disk_usage(self._root).free
        if free < size + _SPARE_BYTES:
            raise StoreError(
                f"needs {(size + _SPARE_BYTES) >> 20} MiB, {free >> 20} MiB are free",
                path=str(self._root),
                hint="edge-agent models remove NAME gives space back",
            )
        staging = self._incoming / folder.name
        self._incoming.mkdir(mode=0o700)
        try:
            bundle.verified.copy_to(staging)
            check(staging)
            self._bundles.mkdir(mode=0o700, exist_ok=True)
            self._retire(folder)  # a damaged copy: it was refused at every load
            staging.rename(folder)
            fsync_directory(self._bundles)
        finally:
            shutil.rmtree(self._incoming, ignore_errors=True)

    def _activate(self, name: str, entry: Installed) -> None:
        index = self._index()
        before = index.models.get(name)
        bundles = before.bundles if before else ()
        others = tuple(b for b in bundles if b.digest != entry.digest)
        models = {**index.models, name: Installs(entry.digest, (*others, entry))}
        self._write(_Index(models=models))

    def _sweep(self, models: dict[str, Installs]) -> None:
        """Removes what no entry names: remains of a crash, and what was just removed."""
        from edge_signing.durable import remove_unfinished

        named = {self._folder(b.digest).name for m in models.values() for b in m.bundles}
        remove_unfinished(self._index_file)
        _discard(self._incoming)
        if self._bundles.is_dir():
            for folder in self._bundles.iterdir():
                if folder.name not in named:
                    self._retire(folder)
        _discard(self._incoming)

    def _retire(self, folder: Path) -> None:
        """Takes a bundle out of its place at once: a reader finds it whole, or gone."""
        if os.path.lexists(folder):
            self._incoming.mkdir(mode=0o700, exist_ok=True)
            folder.rename(self._incoming / f"{folder.name}.{os.urandom(4).hex()}")

    def _index(self) -> _Index:
        require_ours(self._root)
        try:
            data = read_regular(self._index_file, _MAX_INDEX_BYTES)
        except (FileNotFoundError, NotADirectoryError):
            return _Index()
        except OSError as error:
            raise StoreError(
                f"can't be read: {error.strerror}", path=str(self._index_file)
            ) from error
        try:
            if len(data) > _MAX_INDEX_BYTES:
                raise msgspec.ValidationError(f"more than {_MAX_INDEX_BYTES} bytes")
            return msgspec.json.decode(data, type=_Index)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise StoreError(
                f"is damaged: {error}",
                path=str(self._index_file),
                hint="move the file away and install the models again",
            ) from error

    def _write(self, index: _Index) -> None:
        from edge_signing.durable import write_durably

        data = msgspec.json.format(msgspec.json.encode(index), indent=1)
        write_durably(self._index_file, data, 0o600)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Holds the store's lock, and turns failures of the disk into a `StoreError`."""
        try:
            private_folder(self._root, 0o700)
            with locked(self._root / "lock", _LOCK_TIMEOUT_S):
                self._sweep(self._index().models)
                yield
        except TimeoutError as error:
            raise StoreError(
                f"somebody else has been changing the store for {_LOCK_TIMEOUT_S:.0f} s",
                path=str(self._root),
                hint="try again when that install has ended",
            ) from error
        except OSError as error:
            raise StoreError(
                f"can't be changed: {error.strerror or error}", path=str(self._root)
            ) from error


def _discard(path: Path) -> None:
    """Removes whatever is there; a link is removed, not followed."""
    if path.is_dir() and not path.is_symlink():
        import shutil

        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _is_intact(folder: Path, check: Callable[[Path], None]) -> bool:
    """Whether a bundle is installed and still as it was signed."""
    from edge_signing.errors import SigningError

    if not folder.exists():
        return False
    try:
        check(folder)
    except SigningError:
        return False
    return True
