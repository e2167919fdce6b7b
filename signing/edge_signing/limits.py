"""How large a bundle may be before anything of it is believed."""

from __future__ import annotations

from typing import NamedTuple

_MIB = 1024 * 1024


class Limits(NamedTuple):
    """Caps that hold before a signature has been checked.

    Attributes:
        files: Files outside `signatures/`.
        total_bytes: Bytes of all those files together.
        signature_files: Files inside `signatures/`.
        signature_file_bytes: Bytes of one signature file; 10,000 files with names of usual length
            need 2 MiB.
        signatures_bytes: Bytes of all signature files together.
        signature_check_bytes: Payload bytes hashed in all attempts to match signatures with the
            keyring's keys. Each attempt hashes the payload again, so without this many junk
            signatures times many keys would stall a gateway.
    """

    files: int = 10_000
    total_bytes: int = 16 * 1024 * _MIB
    signature_files: int = 64
    signature_file_bytes: int = 3 * _MIB
    signatures_bytes: int = 64 * _MIB
    signature_check_bytes: int = 48 * _MIB


DEFAULT_LIMITS = Limits()

MAX_MANIFEST_BYTES = 4 * _MIB
MAX_RESOURCES = 10_000
MAX_KEYRING_BYTES = _MIB
MAX_KEY_FILE_BYTES = 64 * 1024
