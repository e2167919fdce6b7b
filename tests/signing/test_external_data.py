from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from edge_signing.errors import BundleInvalid
from edge_signing.external_data import external_files, resolve


def scan(data: bytes) -> set[str]:
    """Also checks that the quick walk finds the same; it may overlook damage, but no location."""
    found = external_files(io.BytesIO(data), len(data))
    assert external_files(io.BytesIO(data), len(data), thorough=False) == found
    return found


def tensor(location: str, name: str = "w") -> TensorProto:
    made = TensorProto(name=name, data_type=TensorProto.FLOAT, dims=[2])
    made.data_location = TensorProto.EXTERNAL
    for key, value in (("offset", "0"), ("location", location), ("length", "8")):
        made.external_data.add(key=key, value=value)
    return made


def plain() -> TensorProto:
    return numpy_helper.from_array(np.zeros((300, 300), np.float32), "p")


def node(**attributes: Any) -> onnx.NodeProto:
    return helper.make_node("Op", [], ["y"], **attributes)


def graph(nodes: Any = (), initializers: Any = (), **rest: Any) -> onnx.GraphProto:
    return helper.make_graph(list(nodes), "g", [], [], list(initializers), **rest)


def sparse(values: TensorProto, indices: TensorProto) -> onnx.SparseTensorProto:
    return onnx.SparseTensorProto(values=values, indices=indices, dims=[2])


def model(made: onnx.GraphProto, **rest: Any) -> onnx.ModelProto:
    return helper.make_model(made, **rest)


def with_function(inner: onnx.NodeProto) -> onnx.ModelProto:
    function = helper.make_function("d", "F", [], [], [inner], [helper.make_opsetid("", 17)])
    return model(graph(), functions=[function])


def with_default(attribute: onnx.AttributeProto) -> onnx.ModelProto:
    function = helper.make_function(
        "d", "F", [], [], [], [helper.make_opsetid("", 17)], attribute_protos=[attribute]
    )
    return model(graph(), functions=[function])


def training(**parts: onnx.GraphProto) -> onnx.ModelProto:
    made = model(graph())
    made.training_info.append(onnx.TrainingInfoProto(**parts))
    return made


EXTERNAL = tensor("w.bin")
PLACES: dict[str, Callable[[], onnx.ModelProto]] = {
    "initializer": lambda: model(graph(initializers=[plain(), EXTERNAL])),
    "sparse values": lambda: model(graph(sparse_initializer=[sparse(EXTERNAL, plain())])),
    "sparse indices": lambda: model(graph(sparse_initializer=[sparse(plain(), EXTERNAL)])),
    "attribute tensor": lambda: model(graph([node(value=EXTERNAL)])),
    "attribute tensors": lambda: model(graph([node(value=[plain(), EXTERNAL])])),
    "attribute sparse": lambda: model(graph([node(value=sparse(EXTERNAL, plain()))])),
    "attribute sparses": lambda: model(graph([node(value=[sparse(plain(), EXTERNAL)])])),
    "subgraph": lambda: model(graph([node(body=graph(initializers=[EXTERNAL]))])),
    "subgraphs": lambda: model(graph([node(body=[graph(), graph([node(value=EXTERNAL)])])])),
    "nested subgraph": lambda: model(
        graph([node(body=graph([node(body=graph([node(body=graph(initializers=[EXTERNAL]))]))]))])
    ),
    "function": lambda: with_function(node(value=EXTERNAL)),
    "function's subgraph": lambda: with_function(node(body=graph(initializers=[EXTERNAL]))),
    "function's default": lambda: with_default(helper.make_attribute("a", EXTERNAL)),
    "training algorithm": lambda: training(algorithm=graph(initializers=[EXTERNAL])),
    "training initialization": lambda: training(initialization=graph([node(value=EXTERNAL)])),
}


@pytest.mark.parametrize("build", PLACES.values(), ids=PLACES.keys())
def test_found_wherever_a_tensor_may_be(build: Callable[[], onnx.ModelProto]) -> None:
    assert scan(build().SerializeToString()) == {"w.bin"}


def message_paths() -> Iterator[tuple[str, ...]]:
    """Every way from ModelProto to a TensorProto, by the schema of the installed onnx."""

    def walk(descriptor: Any, path: tuple[str, ...], seen: frozenset[str]) -> Iterator[Any]:
        for field in descriptor.fields:
            child = field.message_type
            if child is None:
                continue
            if child.name == "TensorProto":
                yield (*path, field.name)
            elif child.full_name not in seen:
                yield from walk(child, (*path, field.name), seen | {child.full_name})

    yield from walk(onnx.ModelProto.DESCRIPTOR, (), frozenset({"onnx.ModelProto"}))


@pytest.mark.parametrize("path", sorted(set(message_paths())), ids=".".join)
def test_found_on_every_path_of_the_schema(path: tuple[str, ...]) -> None:
    """If a later onnx adds a place for tensors, this fails, and the walker learns it."""
    made = onnx.ModelProto()
    message: Any = made
    for name in path:
        field = getattr(message, name)
        message = field.add() if hasattr(field, "add") else field
        message.SetInParent()
    message.CopyFrom(EXTERNAL)
    assert scan(made.SerializeToString()) == {"w.bin"}


def test_nothing_is_found_where_nothing_is() -> None:
    assert (
        scan(model(graph([node(value=plain(), s="location")], [plain()])).SerializeToString())
        == set()
    )
    made = model(graph(initializers=[tensor("w.bin")]), doc_string="location" * 100)
    del made.graph.initializer[0].external_data[1]
    assert scan(made.SerializeToString()) == set()
    assert scan(b"") == set()


def test_what_onnx_itself_writes(tmp_path: Path) -> None:
    made = model(graph(initializers=[plain(), numpy_helper.from_array(np.ones(5000), "q")]))
    onnx.save_model(
        made,
        tmp_path / "m.onnx",
        save_as_external_data=True,
        all_tensors_to_one_file=True,
        location="m.onnx.data",
        size_threshold=0,
    )
    assert scan((tmp_path / "m.onnx").read_bytes()) == {"m.onnx.data"}


def test_several_locations() -> None:
    tensors = [tensor(f"w{i}.bin") for i in range(500)]
    assert len(scan(model(graph(initializers=tensors)).SerializeToString())) == 500


def test_a_location_counts_although_the_data_location_says_default() -> None:
    made = tensor("w.bin")
    made.data_location = TensorProto.DEFAULT
    assert scan(model(graph(initializers=[made])).SerializeToString()) == {"w.bin"}


# --- encodings that no honest writer makes -------------------------------------------------------


def varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def field(number: int, data: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(data)) + data


def wrap(entry: bytes) -> bytes:
    """A model whose one initializer has one external_data entry."""
    return field(7, field(5, field(13, entry)))


LOCATION = field(1, b"location")


@pytest.mark.parametrize(
    ("entry", "found"),
    [
        (LOCATION + field(2, b"a"), {"a"}),
        (field(2, b"a") + LOCATION, {"a"}),
        (LOCATION + field(2, b"a") + field(2, b"b"), {"a", "b"}),
        (field(1, b"offset") + field(2, b"a") + LOCATION, {"a"}),
        (LOCATION + field(2, b"a") + field(1, b"offset"), {"a"}),
        (LOCATION, {""}),
        (field(9, b"x") + LOCATION + b"\x18\x01" + field(2, b"a"), {"a"}),
        (field(1, b"Location") + field(2, b"a"), set()),
        (b"", set()),
    ],
)
def test_repeated_fields_all_count(entry: bytes, found: set[str]) -> None:
    assert scan(wrap(entry)) == found


def test_messages_that_protobuf_merges_all_count() -> None:
    one = wrap(LOCATION + field(2, b"a"))
    other = wrap(LOCATION + field(2, b"b"))
    merged = onnx.ModelProto.FromString(one + other)
    assert len(merged.graph.initializer) == 2
    assert scan(one + other) == {"a", "b"}
    # A singular tensor given in two parts, of which the second looks empty.
    attribute = field(5, field(13, LOCATION + field(2, b"x"))) + field(5, field(13, b""))
    assert scan(field(7, field(1, field(5, attribute)))) == {"x"}


def overlong(value: int, length: int) -> bytes:
    digits = [value >> (7 * i) & 0x7F for i in range(length)]
    return bytes([d | 0x80 for d in digits[:-1]] + digits[-1:])


GOOD = wrap(LOCATION + field(2, b"w"))
DAMAGED = {
    "text": b"this is not protobuf at all",
    "length past the end": b"\x3a\x7f",
    "length past its message": field(7, b"\x2a\x7f\x00"),
    "huge length": b"\x3a" + b"\xff" * 9 + b"\x01",
    "length of 65 bits": b"\x3a" + b"\xff" * 9 + b"\x7f",
    "varint of 11 bytes": b"\x08" + b"\xff" * 10 + b"\x01",
    "varint cut": b"\x08\xff",
    "tag cut": b"\xba",
    "tag without length": b"\x3a",
    "field 0": b"\x02\x00",
    "field 0 as number": b"\x00\x00",
    "field too large": varint((1 << 29) << 3 | 2) + b"\x00",
    "group": b"\x3b\x3c",
    "end of group": b"\x3c",
    "wire type 6": b"\x3e",
    "wire type 7": b"\x3f",
    "fixed64 cut": b"\x09" + bytes(7),
    "fixed32 cut": b"\x0d" + bytes(3),
    "overlong tag": overlong(7 << 3 | 2, 2) + GOOD[1:],
    "overlong tag of five": overlong(7 << 3 | 2, 5) + GOOD[1:],
    "overlong tag of ten": overlong(7 << 3 | 2, 10) + GOOD[1:],
    "overlong length": GOOD[:1] + overlong(GOOD[1], 3) + GOOD[2:],
    "location not UTF-8": wrap(LOCATION + field(2, b"\xff")),
    "location too long": wrap(LOCATION + field(2, b"a" * 5000)),
    "location hidden in a group": field(7, field(5, b"\x6b" + LOCATION + field(2, b"a") + b"\x6c")),
}


@pytest.mark.parametrize("data", DAMAGED.values(), ids=DAMAGED.keys())
def test_damaged_or_ambiguous_files(data: bytes) -> None:
    with pytest.raises(BundleInvalid, match="damaged"):
        scan(data)


def test_a_stream_shorter_than_it_claims() -> None:
    with pytest.raises(BundleInvalid, match="truncated"):
        external_files(io.BytesIO(GOOD[:5]), len(GOOD))


def test_negative_numbers_are_ordinary() -> None:
    assert scan(b"\x08" + b"\xff" * 9 + b"\x01" + GOOD) == {"w"}


def nested(depth: int) -> bytes:
    inner = field(5, field(13, LOCATION + field(2, b"deep")))
    for _ in range(depth):
        inner = field(1, field(5, field(6, inner)))
    return field(7, inner)


def test_depth_is_bounded_as_in_protobuf() -> None:
    assert scan(nested(30)) == {"deep"}
    for depth in (40, 2000):
        with pytest.raises(BundleInvalid, match="nested too deeply"):
            scan(nested(depth))


def test_memory_stays_constant_because_content_is_skipped() -> None:
    class Counting(io.RawIOBase):
        """A model of 2 GB, nearly all of it raw data, without any of it existing."""

        head = b""
        tail = field(5, field(13, LOCATION + field(2, b"w")))
        raw = 2 * 1024**3
        taken = 0
        position = 0

        def seek(self, offset: int, whence: int = 0) -> int:
            self.position = offset
            return offset

        def read(self, count: int = -1) -> bytes:
            self.taken += count
            place = self.position
            if place < len(self.head):
                return self.head[place:] + bytes(1000)
            if place < len(self.head) + self.raw:
                return bytes(min(count, len(self.head) + self.raw - place))
            return self.tail[place - len(self.head) - self.raw :]

    stream = Counting()
    raw = varint(9 << 3 | 2) + varint(stream.raw)
    initializer = varint(5 << 3 | 2) + varint(len(raw) + stream.raw) + raw
    total = len(initializer) + stream.raw + len(stream.tail)
    stream.head = varint(7 << 3 | 2) + varint(total) + initializer
    size = len(stream.head) + stream.raw + len(stream.tail)
    assert external_files(stream, size) == {"w"}  # type: ignore[arg-type]
    assert stream.taken < 1_000_000


def test_models_with_many_numbers_do_not_take_long() -> None:
    numbers = helper.make_node("Trees", [], [], ids=list(range(200_000)))
    assert scan(model(graph([numbers], [EXTERNAL])).SerializeToString()) == {"w.bin"}


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=200))
def test_any_bytes_give_a_set_or_our_error(data: bytes) -> None:
    try:
        scan(data)
    except BundleInvalid:
        return


BASE = PLACES["nested subgraph"]().SerializeToString()


@settings(max_examples=300, deadline=None)
@given(st.integers(0, len(BASE) - 1), st.integers(1, 255))
def test_whatever_onnx_still_reads_is_found(position: int, change: int) -> None:
    """The walker may refuse what onnx accepts, but never miss a location that onnx sees."""
    data = bytearray(BASE)
    data[position] ^= change
    try:
        parsed = onnx.ModelProto.FromString(bytes(data))
        seen = {
            entry.value
            for found in onnx.external_data_helper._get_all_tensors(parsed)
            for entry in found.external_data
            if entry.key == "location"
        }
    except Exception:  # noqa: BLE001  # whatever protobuf raises: onnx cannot read it
        seen = set()
    try:
        assert seen <= scan(bytes(data))
    except BundleInvalid:
        return


@pytest.mark.parametrize(
    ("name", "location", "resolved"),
    [
        ("model.onnx", "w.bin", "w.bin"),
        ("weights/model.onnx", "w.bin", "weights/w.bin"),
        ("a/b/model.onnx", "c/w.bin", "a/b/c/w.bin"),
    ],
)
def test_locations_are_relative_to_the_model(name: str, location: str, resolved: str) -> None:
    assert resolve(name, location) == resolved


@pytest.mark.parametrize(
    "location",
    ["", "/etc/passwd", "../w", "a/../w", "./w", "a\\w", "a\0", "C:\\w", "w/", "..", "e\u0301"],
)
def test_locations_that_lead_elsewhere(location: str) -> None:
    with pytest.raises(BundleInvalid) as caught:
        resolve("weights/m.onnx", location)
    assert caught.value.path == "weights/m.onnx"
