"""Which names a bundle and the files in it may have."""

from __future__ import annotations

import os
import re
import unicodedata
from collections.abc import Iterable

from edge_signing.errors import BundleInvalid

SIGNATURES = "signatures"
MAX_COMPONENT_BYTES = 255
MAX_NAME_BYTES = 512
MAX_DEPTH = 32
MAX_BUNDLE_NAME = 128

# The OMS library skips these at the top of a model, listed or not, so that a bundle that
# contained them could not be checked with it (model_signing 1.1.1, hashing.Config.hash).
IGNORED_BY_OMS = frozenset({".git", ".gitattributes", ".github", ".gitignore"})

_BUNDLE_NAME = re.compile(r"[a-z0-9]+(?:[._-][a-z0-9]+)*(?:/[a-z0-9]+(?:[._-][a-z0-9]+)*)*")
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]")
_SIGNATURE_FILE = re.compile(r"signatures/[0-9a-f]{64}\.sigstore\.json")


def check_bundle_name(name: str) -> None:
    """Checks the name of a bundle, such as `acme/detector`.

    Args:
        name: The name.

    Raises:
        BundleInvalid: It is not lower-case components joined by `/`, or has over 128 characters.

    Source:
        OCI distribution specification 1.1, "Pulling manifests" (the grammar of <name>).
    """
    if len(name) > MAX_BUNDLE_NAME or not _BUNDLE_NAME.fullmatch(name):
        raise BundleInvalid(
            f"bundle name {name[:MAX_BUNDLE_NAME]!r} is not allowed",
            hint="use lower-case letters, digits and single . _ - between them, parts joined by /,"
            f" at most {MAX_BUNDLE_NAME} characters: acme/detector",
        )


def check_name(name: str) -> None:
    """Checks the name that a manifest gives a file: as `check_path`, and not in `signatures/`.

    Args:
        name: The relative name.

    Raises:
        BundleInvalid: The name is not allowed.
    """
    check_path(name)
    top = name.split("/", 1)[0]
    # Compared without case: on a folding file system "Signatures/x" would land among them.
    if top.casefold() == SIGNATURES:
        raise BundleInvalid("a manifest cannot list what is inside signatures/", path=name)
    if top in IGNORED_BY_OMS:
        raise BundleInvalid(
            "files of git do not belong in a bundle", path=name, hint=f"move {top} out of it"
        )


def check_path(name: str) -> None:
    """Checks a relative path as any file of a bundle may have it, signatures included.

    Args:
        name: The path, with `/` between its components.

    Raises:
        BundleInvalid: It is absolute, has an empty, `.` or `..` component, a backslash, a control
            character, is not UTF-8 in Unicode's form NFC, or is too long.
    """
    reason = _fault(name)
    if reason is not None:
        raise BundleInvalid(f"a file has a name that is not allowed: {reason}", path=name[:1024])


def _fault(name: str) -> str | None:
    try:
        raw = name.encode("utf-8")
    except UnicodeEncodeError:
        return "it is not UTF-8"
    if len(raw) > MAX_NAME_BYTES:
        return f"it has more than {MAX_NAME_BYTES} bytes"
    if name.startswith("/"):
        return "it is absolute"
    if "\\" in name:
        return "it contains a backslash"
    if _CONTROL.search(name):
        return "it contains a control character"
    if not unicodedata.is_normalized("NFC", name):
        return "it is not in Unicode's normal form C"
    return _component_fault(name.split("/"))


def _component_fault(components: list[str]) -> str | None:
    if len(components) > MAX_DEPTH:
        return f"it lies more than {MAX_DEPTH - 1} folders deep"
    for component in components:
        if component in ("", ".", ".."):
            return f"it has the component {component!r}"
        if len(component.encode("utf-8")) > MAX_COMPONENT_BYTES:
            return f"a component has more than {MAX_COMPONENT_BYTES} bytes"
    return None


def check_signature_path(name: str) -> None:
    """Checks that a file inside `signatures/` is named as a signature.

    Args:
        name: The path, beginning with `signatures/`.

    Raises:
        BundleInvalid: Anything else lies there. No signature covers that folder, so a stray file
            could otherwise ride along unsigned.
    """
    if not _SIGNATURE_FILE.fullmatch(name):
        raise BundleInvalid(
            "signatures/ may hold only <keyid>.sigstore.json files", path=name, hint="remove it"
        )


def from_system(name: str) -> str:
    """Reads a name that the system gave: its bytes are UTF-8, whatever the locale says.

    Returns:
        The name; bytes that are not UTF-8 become lone surrogates, which `check_path` refuses.
    """
    return os.fsencode(name).decode("utf-8", "surrogateescape")


def to_system(name: str) -> str:
    """Spells a name that passed `check_path` so that the system gets its UTF-8 bytes."""
    return os.fsdecode(name.encode("utf-8"))


def is_signature(name: str) -> bool:
    """Tells whether a path lies inside `signatures/`."""
    return name.startswith(SIGNATURES + "/")


def sort_key(name: str) -> list[str]:
    """Returns the key that sorts names as OMS does: component by component.

    Source:
        model_signing 1.1.1, Manifest.resource_descriptors (sorts PurePosixPath); it differs from
        comparing whole strings: `a/b` comes before `a.txt`.
    """
    return name.split("/")


def check_distinct(names: Iterable[str]) -> None:
    """Checks that names stay apart on every file system.

    Args:
        names: Names that each passed `check_path`.

    Raises:
        BundleInvalid: A name occurs twice, two names or two of their folders differ only by case,
            or one is both a file and a folder.
    """
    spelling: dict[str, str] = {}
    files: set[str] = set()
    for name in names:
        for folder in _folders(name):
            folded = _folded(folder)
            if folded in files or spelling.setdefault(folded, folder) != folder:
                raise BundleInvalid(f"clashes with {spelling[folded]!r}", path=name)
        folded = _folded(name)
        if folded in spelling:
            raise BundleInvalid(f"clashes with {spelling[folded]!r}", path=name)
        spelling[folded] = name
        files.add(folded)


def _folders(name: str) -> list[str]:
    components = name.split("/")
    return ["/".join(components[:depth]) for depth in range(1, len(components))]


def _folded(name: str) -> str:
    return unicodedata.normalize("NFC", name.casefold())
