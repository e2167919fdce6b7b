"""Writing the OCI archive of a bundle: the same files give the same bytes."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection
from typing import BinaryIO

from edge_signing.contents import copy_file
from edge_signing.digest import hash_stream, sha256_hex
from edge_signing.durable import open_durably
from edge_signing.errors import BundleChanged
from edge_signing.names import check_path
from edge_signing.oci_manifest import (
    ARTIFACT_TYPE,
    BLOBS,
    EMPTY_CONFIG,
    EMPTY_CONFIG_DIGEST,
    INDEX_TYPE,
    LAYOUT,
    MANIFEST_TYPE,
    Layer,
    build_oci_manifest,
    descriptor,
)
from edge_signing.reading import reading
from edge_signing.sources import BundleSource
from edge_signing.strict_json import canonical
from edge_signing.tar import END, header, padding


def write_oci_tar(source: BundleSource, out_path: str | os.PathLike[str]) -> str:
    """Packs a bundle into an OCI archive; the same files give the same bytes.

    Args:
        source: The bundle; each file is read twice, and never held in memory.
        out_path: The archive, written durably.

    Returns:
        The OCI manifest's digest, `sha256:…`.

    Raises:
        BundleChanged: A file changed between the two readings.
        BundleInvalid: The source refuses a file.
        OSError: The archive cannot be written; nothing is left behind.

    Source:
        OCI image specification 1.1, image-layout.md.
    """
    return write_layers(source, [_hash_layer(source, name) for name in source.names()], out_path)


def write_layers(
    source: BundleSource,
    layers: Collection[Layer],
    out_path: str | os.PathLike[str],
    advance: Callable[[int], None] | None = None,
    mode: int = 0o644,
    finish: Callable[[BinaryIO], None] | None = None,
) -> str:
    """Packs files whose digests are known already, reading each once.

    Args:
        source: The bundle.
        layers: Every file that the archive shall have.
        out_path: The archive, written durably.
        advance: Called with the bytes of each piece.
        mode: The archive's permissions.
        finish: Called with the whole archive before it takes its name; an error of it stops that.

    Returns:
        The OCI manifest's digest, `sha256:…`.

    Raises:
        BundleChanged: The source's bytes are not those that a layer names.
        BundleInvalid: The source refuses a file.
        BundleUnreadable: A file cannot be read.
        OSError: The archive cannot be written; nothing is left behind.
    """
    manifest = build_oci_manifest(layers)
    digest = sha256_hex(manifest)
    listed = {**descriptor(MANIFEST_TYPE, digest, len(manifest)), "artifactType": ARTIFACT_TYPE}
    index = canonical({"schemaVersion": 2, "mediaType": INDEX_TYPE, "manifests": [listed]})
    small = {digest: manifest, EMPTY_CONFIG_DIGEST: EMPTY_CONFIG}
    large = {layer.digest_hex: layer for layer in layers if layer.digest_hex not in small}
    with open_durably(out_path, mode) as out:
        _put(out, "oci-layout", LAYOUT)
        _put(out, "index.json", index)
        for name in sorted([*small, *large]):
            if name in small:
                _put(out, BLOBS + name, small[name])
            else:
                _copy_layer(source, large[name], out, advance)
        out.write(END)
        if finish:
            finish(out)
    return "sha256:" + digest


def _hash_layer(source: BundleSource, name: str) -> Layer:
    check_path(name)
    size = source.size(name)
    with reading(name), source.open(name) as stream:
        return Layer(name, hash_stream(stream, at_most=size), size)


def _put(out: BinaryIO, name: str, data: bytes) -> None:
    out.write(header(name, len(data)) + data + padding(len(data)))


def _copy_layer(
    source: BundleSource, layer: Layer, out: BinaryIO, advance: Callable[[int], None] | None
) -> None:
    out.write(header(BLOBS + layer.digest_hex, layer.size))
    if copy_file(source, layer.name, out, layer.size, advance) != layer.digest_hex:
        raise BundleChanged("the file changed while it was packed", path=layer.name)
    out.write(padding(layer.size))
