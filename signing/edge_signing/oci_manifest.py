"""The OCI manifest of a bundle: one layer a file, titled with its path."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from edge_signing.digest import is_sha256_hex, sha256_hex
from edge_signing.errors import BundleInvalid
from edge_signing.limits import DEFAULT_LIMITS, MAX_MANIFEST_BYTES, Limits
from edge_signing.names import check_path, sort_key
from edge_signing.strict_json import StrictJSONError, canonical, parse_object

LAYOUT = b'{"imageLayoutVersion":"1.0.0"}'
BLOBS = "blobs/sha256/"
ARTIFACT_TYPE = "application/vnd.edge-agent.bundle.v1"
MANIFEST_TYPE = "application/vnd.oci.image.manifest.v1+json"
INDEX_TYPE = "application/vnd.oci.image.index.v1+json"
EMPTY_TYPE = "application/vnd.oci.empty.v1+json"
LAYER_TYPE = "application/octet-stream"
TITLE = "org.opencontainers.image.title"
EMPTY_CONFIG = b"{}"
EMPTY_CONFIG_DIGEST = sha256_hex(EMPTY_CONFIG)

_MAX_TOKENS = 640_000


class Layer(NamedTuple):
    """One file of a bundle, as the OCI manifest lists it.

    Attributes:
        name: Its path in the bundle.
        digest_hex: Its SHA-256.
        size: Its bytes.
    """

    name: str
    digest_hex: str
    size: int


def build_oci_manifest(layers: Iterable[Layer]) -> bytes:
    """Serialises the OCI manifest of a bundle.

    Args:
        layers: Every file, signatures included, in any order.

    Returns:
        Canonical JSON: the same files give the same bytes.

    Source:
        OCI image specification 1.1, manifest.md, "Guidelines for Artifact Usage".
    """
    return canonical(
        {
            "schemaVersion": 2,
            "mediaType": MANIFEST_TYPE,
            "artifactType": ARTIFACT_TYPE,
            "config": descriptor(EMPTY_TYPE, EMPTY_CONFIG_DIGEST, len(EMPTY_CONFIG)),
            "layers": [
                {
                    **descriptor(LAYER_TYPE, layer.digest_hex, layer.size),
                    "annotations": {TITLE: layer.name},
                }
                for layer in sorted(layers, key=lambda layer: sort_key(layer.name))
            ],
        }
    )


def parse_oci_manifest(data: bytes, limits: Limits = DEFAULT_LIMITS) -> list[Layer]:
    """Parses the OCI manifest of a bundle; nothing in it is signed, so nothing is believed.

    Args:
        data: Its bytes.
        limits: How many files it may list.

    Returns:
        The files, sorted.

    Raises:
        BundleInvalid: Too large, not strict JSON, another schema version, media type or kind of
            artifact, a config that is not empty, a layer without title, with a name that is not
            allowed, or of a name twice.

    Source:
        OCI image specification 1.1, manifest.md and descriptor.md.
    """
    try:
        document = parse_object(data, MAX_MANIFEST_BYTES, _MAX_TOKENS)
    except StrictJSONError as error:
        raise BundleInvalid(f"the OCI manifest {error}") from error
    check_kind(document, MANIFEST_TYPE, "the OCI manifest")
    if document.get("artifactType") != ARTIFACT_TYPE:
        raise BundleInvalid(f"the OCI manifest is not of the artifact type {ARTIFACT_TYPE}")
    config = parse_descriptor(document.get("config"), EMPTY_TYPE, "config")
    if config != (EMPTY_CONFIG_DIGEST, len(EMPTY_CONFIG)):
        raise BundleInvalid("the OCI manifest has a config that is not empty")
    items = document.get("layers")
    if not isinstance(items, list):
        raise BundleInvalid("the OCI manifest has no list of layers")
    if len(items) > limits.files + limits.signature_files:
        raise BundleInvalid(f"the OCI manifest lists more than {limits.files} files")
    layers = [_parse_layer(item, f"layers[{index}]") for index, item in enumerate(items)]
    if len({layer.name for layer in layers}) != len(layers):
        raise BundleInvalid("the OCI manifest lists a file twice")
    return sorted(layers, key=lambda layer: sort_key(layer.name))


def descriptor(media_type: str, digest_hex: str, size: int) -> dict[str, object]:
    """Returns an OCI content descriptor (OCI image specification 1.1, descriptor.md)."""
    return {"mediaType": media_type, "digest": f"sha256:{digest_hex}", "size": size}


def check_kind(document: dict[str, Any], media_type: str, what: str) -> None:
    """Checks of which schema an OCI index or manifest says that it is.

    Args:
        document: The index or manifest.
        media_type: What it must be; the specification lets it leave that out.
        what: Its name, for the error.

    Raises:
        BundleInvalid: Another schema version or media type.

    Source:
        OCI image specification 1.1, image-index.md and manifest.md.
    """
    version = document.get("schemaVersion")
    if type(version) is not int or version != 2:
        raise BundleInvalid(f"{what} is not of the schema version 2")
    if document.get("mediaType", media_type) != media_type:
        raise BundleInvalid(f"{what} is not of the media type {media_type}")


def parse_descriptor(value: Any, media_type: str, where: str) -> tuple[str, int]:
    """Reads an OCI content descriptor.

    Args:
        value: What should be one.
        media_type: What it must say that it points to.
        where: Its place, for the error.

    Returns:
        The digest as 64 hexadecimal digits, and the size in bytes.

    Raises:
        BundleInvalid: Another media type, no SHA-256 digest, or no size.
    """
    digest = value.get("digest") if isinstance(value, dict) else None
    size = value.get("size") if isinstance(value, dict) else None
    if (
        not isinstance(digest, str)
        or not digest.startswith("sha256:")
        or not is_sha256_hex(digest.removeprefix("sha256:"))
        or type(size) is not int
        or size < 0
    ):
        raise BundleInvalid(f"an OCI descriptor is malformed: {where}")
    if value.get("mediaType") != media_type:
        raise BundleInvalid(f"an OCI descriptor is not of the media type {media_type}: {where}")
    return digest.removeprefix("sha256:"), size


def _parse_layer(value: Any, where: str) -> Layer:
    digest, size = parse_descriptor(value, LAYER_TYPE, where)
    annotations = value.get("annotations")
    name = annotations.get(TITLE) if isinstance(annotations, dict) else None
    if not isinstance(name, str):
        raise BundleInvalid(f"the OCI manifest gives no title to {where}")
    check_path(name)
    return Layer(name, digest, size)
