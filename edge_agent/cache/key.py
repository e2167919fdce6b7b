"""What makes two calls the same: a digest of everything that decides their answer."""

from __future__ import annotations

from functools import lru_cache
from hashlib import blake2b, sha256
from typing import TYPE_CHECKING, Final, TypeAlias

from msgspec import Struct

if TYPE_CHECKING:
    from edge_agent.calls import Query

    Buffer: TypeAlias = bytes | bytearray | memoryview

KEY_BYTES: Final = 32
# Up to here everything is hashed at once; above, only samples of it until it was seen before.
SMALL_BYTES: Final = 8 * 1024
_DOMAIN: Final = "edge-agent/cache-key/v1"
_SAMPLES: Final = 48
_SAMPLE_BYTES: Final = 64
_WORD_BYTES: Final = 8
_WORDS: Final = 4  # for each sample, apart from each other
_FINGERPRINT_BYTES: Final = 8


class Origin(Struct, frozen=True):
    """What computes the answer.

    Attributes:
        engine: ``onnx`` or ``tflite``.
        versions: What else of it decides the answer: packages with their versions or stamps.
    """

    engine: str
    versions: tuple[str, ...]


class CacheSubject(Struct, frozen=True):
    """Who asks what; beside the query, everything that decides an answer.

    Attributes:
        bundle: Digest of the bundle.
        pipeline: Digest of its pipeline (`description.digest_of_pipeline`).
        origin: What computes the answer.
        tenant: Who asks: nobody is answered from what another one asked.
    """

    bundle: str
    pipeline: str
    origin: Origin
    tenant: str


def head(subject: CacheSubject, query: Query) -> bytes:
    """Returns everything that decides the answer but the values of the inputs.

    It has the length of each input, in their order, so that the values may follow as they are.
    """
    parts = [
        _subject_fields(subject),
        _wish_fields(query.wants, query.top_k, query.outputs, len(query.tensors)),
    ]
    for one in query.tensors:
        parts.append(_form_fields(one.name, one.dtype, one.is_json, one.shape))
        parts.append(_netstrings([str(memoryview(one.data).nbytes)]))
    if query.images:
        parts.append(_netstrings([str(memoryview(one).nbytes) for one in query.images]))
    return b"".join(parts)


def key(head: bytes, query: Query) -> bytes:
    """Returns the SHA-256 of the head and every value, without copying them."""
    state = sha256(head)
    for part in _parts(query):
        state.update(part)
    return state.digest()


def fingerprint(head: bytes, query: Query) -> int:
    """Returns a number that inputs which differ nearly always differ in, at next to no cost.

    It is taken from samples at fixed places, so it says only that inputs *may* be the same.
    """
    parts = _parts(query)
    samples = max(4, _SAMPLES // max(1, len(parts)))
    state = blake2b(head, digest_size=_FINGERPRINT_BYTES)
    for part in parts:
        state.update(_sampled(part, samples))
    return as_number(state.digest())


def as_number(digest: bytes) -> int:
    """Returns the first 64 bits of a digest as SQLite's integer."""
    return int.from_bytes(digest[:_FINGERPRINT_BYTES], "little", signed=True)


def _sampled(part: memoryview, samples: int) -> Buffer:
    if part.nbytes <= samples * _SAMPLE_BYTES + _SAMPLE_BYTES:
        return part
    # Many small ones: a view with steps gathers them in one go.
    end = part.nbytes - _SAMPLE_BYTES
    words = part[: end - end % _WORD_BYTES].cast("Q")
    step = max(2, len(words) // (samples * _WORDS))
    return words[::step].tobytes() + part[end:].tobytes()


def _parts(query: Query) -> list[memoryview]:
    found = [_flat(one.data) for one in query.tensors]
    if query.images:
        found += [_flat(image) for image in query.images]
    return found


def _flat(data: Buffer) -> memoryview:
    view = memoryview(data)
    if view.ndim == 1 and view.format == "B":
        return view
    return view.cast("B") if view.nbytes else memoryview(b"")


# What clients ask again and again differs in its values only.
@lru_cache(maxsize=256)
def _wish_fields(wants: str, top_k: int | None, outputs: tuple[str, ...], tensors: int) -> bytes:
    return _netstrings([wants, str(top_k), str(len(outputs)), *outputs, str(tensors)])


@lru_cache(maxsize=256)
def _form_fields(name: str, dtype: str, is_json: bool, shape: tuple[int, ...]) -> bytes:
    kind = "json" if is_json else "raw"
    return _netstrings([name, dtype, kind, str(len(shape)), *map(str, shape)])


@lru_cache(maxsize=256)
def _subject_fields(subject: CacheSubject) -> bytes:
    origin = subject.origin
    fields = [_DOMAIN, subject.bundle, subject.pipeline, subject.tenant, origin.engine]
    return _netstrings([*fields, str(len(origin.versions)), *origin.versions])


def _netstrings(fields: list[str]) -> bytes:
    """Each with its length in front: no two lists of fields read the same."""
    encoded = [field.encode("utf-8", "surrogatepass") for field in fields]
    return b"".join([b"%d:%b," % (len(field), field) for field in encoded])
