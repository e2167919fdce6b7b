"""The manifest: an in-toto Statement with the OpenSSF Model Signing predicate.

Its bytes are what is signed, and their SHA-256 is the bundle's digest.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

from edge_signing.digest import is_sha256_hex, sha256_hex
from edge_signing.errors import BundleInvalid
from edge_signing.limits import MAX_MANIFEST_BYTES, MAX_RESOURCES
from edge_signing.names import (
    IGNORED_BY_OMS,
    SIGNATURES,
    check_bundle_name,
    check_distinct,
    check_name,
    sort_key,
)
from edge_signing.strict_json import StrictJSONError, canonical, parse_object

__all__ = [
    "Manifest",
    "Resource",
    "build_statement",
    "bundle_digest",
    "check_bundle_name",
    "check_name",
    "parse_statement",
]

STATEMENT_TYPE = "https://in-toto.io/Statement/v1"
PREDICATE_TYPE = "https://model_signing/signature/v1.0"
_MAX_TOKENS = 64 * MAX_RESOURCES


class Resource(NamedTuple):
    """One file of a bundle.

    Attributes:
        name: Its path relative to the bundle's folder.
        digest_hex: The SHA-256 of its bytes, 64 lower-case hexadecimal digits.
    """

    name: str
    digest_hex: str


@dataclass(frozen=True)
class Manifest:
    """What a Statement says, once it was checked.

    Attributes:
        name: The bundle's name.
        resources: Its files, sorted as OMS does (component by component).
    """

    name: str
    resources: tuple[Resource, ...]

    @cached_property
    def digests(self) -> Mapping[str, str]:
        """The files' digests by name, in the manifest's order."""
        return {resource.name: resource.digest_hex for resource in self.resources}


def build_statement(name: str, resources: Iterable[Resource]) -> bytes:
    """Serialises a manifest; the same files give the same bytes on every machine.

    Args:
        name: The bundle's name.
        resources: Its files, in any order.

    Returns:
        The in-toto Statement as canonical JSON.

    Raises:
        BundleInvalid: `parse_statement` would refuse the result.

    Source:
        in-toto attestation framework, Statement v1; model_signing 1.1.1, signing.Payload.
    """
    ordered = sorted(resources, key=lambda resource: sort_key(resource.name))
    _check_resources(ordered)
    statement = canonical(
        {
            "_type": STATEMENT_TYPE,
            "subject": [{"name": name, "digest": {"sha256": _root_digest(ordered)}}],
            "predicateType": PREDICATE_TYPE,
            "predicate": {
                "serialization": {
                    "method": "files",
                    "hash_type": "sha256",
                    "allow_symlinks": False,
                    "ignore_paths": [SIGNATURES],
                },
                "resources": [
                    {"name": r.name, "algorithm": "sha256", "digest": r.digest_hex} for r in ordered
                ],
            },
        }
    )
    parse_statement(statement)
    return statement


def parse_statement(payload: bytes) -> Manifest:
    """Parses a Statement whose signature has been verified over exactly these bytes.

    Fields that the specifications leave to the future are ignored, as both demand; a field that is
    known must have the one meaning that this agent supports.

    Args:
        payload: The bytes that were signed.

    Returns:
        The manifest.

    Raises:
        BundleInvalid: Larger than 4 MiB, more than 10,000 resources, JSON that is not strict, a
            field missing or of the wrong type or value, a name that is not allowed, resources out
            of order, twice, or distinct only by case, or a subject digest that is not theirs.

    Source:
        in-toto Statement v1 ("Consumers MUST ignore unrecognized fields");
        model_signing 1.1.1, signing.dsse_payload_to_manifest.
    """
    try:
        statement = parse_object(payload, MAX_MANIFEST_BYTES, _MAX_TOKENS)
    except StrictJSONError as error:
        raise BundleInvalid(f"the signed manifest {error}") from error
    _require(statement.get("_type") == STATEMENT_TYPE, f"_type is not {STATEMENT_TYPE}")
    _require(
        statement.get("predicateType") == PREDICATE_TYPE, f"predicateType is not {PREDICATE_TYPE}"
    )
    predicate = _object(statement.get("predicate"), "predicate")
    _check_serialization(_object(predicate.get("serialization"), "predicate.serialization"))
    resources = _parse_resources(predicate.get("resources"))
    name = _parse_subject(statement.get("subject"), _root_digest(resources))
    return Manifest(name, tuple(resources))


def bundle_digest(payload: bytes) -> str:
    """Names a bundle by its content.

    The subject's digest would not do: it covers the files' digests but not their names.

    Args:
        payload: The Statement's bytes, as signed.

    Returns:
        `sha256:` and 64 hexadecimal digits.
    """
    return "sha256:" + sha256_hex(payload)


def _parse_subject(subject: object, root_digest: str) -> str:
    _require(isinstance(subject, list) and len(subject) == 1, "subject is not a list of one")
    assert isinstance(subject, list)  # noqa: S101  # for mypy; _require has just checked it
    only = _object(subject[0], "subject[0]")
    name = only.get("name")
    if not isinstance(name, str):
        raise _fault("subject[0].name is not a string")
    check_bundle_name(name)
    digest = _object(only.get("digest"), "subject[0].digest")
    _require(
        digest == {"sha256": root_digest},
        "subject[0].digest is not the SHA-256 over the resources' digests",
    )
    return name


def _check_serialization(serialization: Mapping[str, Any]) -> None:
    _require(serialization.get("method") == "files", "serialization.method is not 'files'")
    _require(serialization.get("hash_type") == "sha256", "serialization.hash_type is not 'sha256'")
    _require(serialization.get("allow_symlinks") is False, "serialization.allow_symlinks is true")
    ignored = serialization.get("ignore_paths")
    # A verifier that believes this list skips what is in it: nothing that a bundle may contain.
    _require(
        isinstance(ignored, list)
        and SIGNATURES in ignored
        and all(
            isinstance(path, str) and path in {SIGNATURES, *IGNORED_BY_OMS} for path in ignored
        ),
        f"serialization.ignore_paths is not [{SIGNATURES!r}]",
    )


def _parse_resources(items: object) -> list[Resource]:
    if not isinstance(items, list):
        raise _fault("predicate.resources is not a list")
    _require(len(items) <= MAX_RESOURCES, f"it lists more than {MAX_RESOURCES} files")
    resources = [_parse_resource(item, f"resources[{i}]") for i, item in enumerate(items)]
    _check_resources(resources)
    return resources


def _parse_resource(item: object, where: str) -> Resource:
    fields = _object(item, where)
    name = fields.get("name")
    digest = fields.get("digest")
    if not isinstance(name, str):
        raise _fault(f"{where}.name is not a string")
    _require(fields.get("algorithm") == "sha256", f"{where}.algorithm is not 'sha256'")
    if not (isinstance(digest, str) and is_sha256_hex(digest)):
        raise _fault(f"{where}.digest is not 64 lower-case hexadecimal digits")
    return Resource(name, digest)


def _check_resources(resources: list[Resource]) -> None:
    _require(bool(resources), "it lists no files")
    names = [resource.name for resource in resources]
    for name in names:
        check_name(name)
    check_distinct(names)
    _require(names == sorted(names, key=sort_key), "resources are not sorted by name")


def _root_digest(resources: Iterable[Resource]) -> str:
    state = hashlib.sha256()
    for resource in resources:
        state.update(bytes.fromhex(resource.digest_hex))
    return state.hexdigest()


def _object(value: object, where: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise _fault(f"{where} is not an object")
    return value


def _require(condition: bool, reason: str) -> None:
    if not condition:
        raise _fault(reason)


def _fault(reason: str) -> BundleInvalid:
    return BundleInvalid(f"the signed manifest is not valid: {reason}")
