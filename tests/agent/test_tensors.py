"""Tensors from files, and their check against model.yaml."""

from __future__ import annotations

import io
import json
import struct
import tracemalloc
import zipfile
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edge_agent import tensors
from edge_agent.description import TensorSpec
from edge_agent.errors import TensorError

from . import models


def spec(dtype: Any = "float32", shape: tuple[int | str, ...] = (1, 4), **more: Any) -> TensorSpec:
    return TensorSpec(name="x", dtype=dtype, shape=shape, **more)


def saved(value: Any) -> bytes:
    file = io.BytesIO()
    np.save(file, value)
    return file.getvalue()


def archive(members: dict[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", method) as out:
        for name, data in members.items():
            out.writestr(name, data)
    return file.getvalue()


def refused(data: bytes, name: str, wanted: TensorSpec, words: str) -> TensorError:
    with pytest.raises(TensorError) as caught:
        tensors.read(data, name, wanted)
    assert words in str(caught.value)
    assert caught.value.path == name
    return caught.value


GOOD = np.array([[1, 2, 3, 4]], "f4")


@pytest.mark.parametrize(
    "value",
    [
        GOOD,
        GOOD.astype(">f4"),
        np.asfortranarray(GOOD),
        np.asfortranarray(GOOD.astype(">f4")),
    ],
)
@pytest.mark.parametrize("ending", ["npy", "npz", "NPY"])
def test_the_same_tensor_from_any_order_of_bytes_and_axes(value: Any, ending: str) -> None:
    data = saved(value)
    read = tensors.read(
        data if ending != "npz" else archive({"x.npy": data}), f"a.{ending}", spec()
    )
    assert read.tolist() == GOOD.tolist()
    assert read.dtype == np.dtype("=f4")
    assert read.flags.c_contiguous
    assert read.flags.aligned


def test_axes_in_fortran_order_are_put_in_order() -> None:
    value = np.arange(6, dtype="i4").reshape(2, 3)
    read = tensors.read(saved(np.asfortranarray(value)), "a.npy", spec("int32", (2, 3)))
    assert (read.tolist(), read.flags.c_contiguous) == (value.tolist(), True)


def test_values_after_a_header_of_odd_length_are_aligned() -> None:
    text = b"{'descr': '<f8', 'fortran_order': False, 'shape': (1,)}\n"
    for pad in range(8):
        head = text[:-1] + b" " * pad + b"\n"
        data = b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head + struct.pack("<d", 7)
        read = tensors.read(data, "a.npy", spec("float64", (1,)))
        assert (read.tolist(), read.flags.aligned) == ([7.0], True)


@pytest.mark.parametrize("name", ["a", "a.txt", "npy", "a.npy.gz", "a.csv", ""])
def test_other_endings_are_refused(name: str) -> None:
    if name == "npy":  # the whole name is its ending
        assert tensors.read(saved(GOOD), name, spec()).tolist() == GOOD.tolist()
        return
    with pytest.raises(TensorError, match=r"is neither \.npy, \.npz nor \.json"):
        tensors.read(saved(GOOD), name, spec())


WRONG = {
    "float64": (np.zeros((1, 4)), spec(), "the input 'x' takes float32, not float64"),
    "int32": (np.zeros((1, 4), "i4"), spec("int64"), "the input 'x' takes int64, not int32"),
    "uint8 for bool": (np.zeros((1, 4), "u1"), spec("bool"), "the input 'x' takes bool, not uint8"),
    "uint64": (np.zeros((1, 4), "u8"), spec("int64"), "not uint64"),
    "flat": (np.zeros(4, "f4"), spec(), "the input 'x' takes the shape [1, 4], not [4]"),
    "turned": (np.zeros((4, 1), "f4"), spec(), "not [4, 1]"),
    "scalar": (np.float32(1), spec(), "not []"),
    "layout": (
        np.zeros((1, 8, 8, 3), "f4"),
        spec(shape=(1, 3, 8, 8), layout="NCHW"),
        "the input 'x' takes the shape [1, 3, 8, 8] (NCHW), not [1, 8, 8, 3]",
    ),
    "NaN": (np.array([[0, np.nan, 0, 0]], "f4"), spec(), "not finite"),
    "inf": (np.array([[0, np.inf, 0, 0]], "f4"), spec(), "not finite"),
    "half inf": (np.array([[0, -np.inf, 0, 0]], "f2"), spec("float16"), "not finite"),
    "big-endian NaN": (np.array([[0, np.nan, 0, 0]], ">f4"), spec(), "not finite"),
    "above": (GOOD, spec(range=(0, 3)), "'x' was made for 0 to 3, its values go from 1 to 4"),
    "below": (-GOOD, spec(range=(0, 3)), "its values go from -4 to -1"),
    "bytes for 0..1": (GOOD * 60, spec(range=(0, 1)), "made for 0 to 1"),
    # An index past the end of a table: a thousandth of the range is not rounding here.
    "one index more": (
        np.array([[0, 0, 0, 30522]]), spec("int64", range=(0, 30521)), "from 0 to 30522",
    ),
    "a huge index": (np.array([[2**53 + 1, 0, 0, 0]]), spec("int64", range=(0, 2.0**53)), "from"),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG)
def test_what_is_not_as_described(case: str) -> None:
    value, wanted, words = WRONG[case]
    error = refused(saved(value), "a.npy", wanted, words)
    assert str(error).startswith("a.npy: ")


@pytest.mark.parametrize(
    ("value", "bounds"),
    [
        (GOOD, (1, 4)),
        (GOOD + np.float32(0.002), (1, 4)),  # rounding
        (GOOD - np.float32(0.002), (1, 4)),
    ],
)
def test_the_range_is_inclusive_and_forgives_rounding(
    value: Any, bounds: tuple[float, float]
) -> None:
    assert tensors.read(saved(value), "a.npy", spec(range=bounds)) is not None
    whole = np.array([[-128, 127, 0, 0]], "i1")
    assert tensors.read(saved(whole), "a.npy", spec("int8", range=(-128, 127))) is not None
    truth = np.array([[True, False, True, True]])
    assert (
        tensors.read(saved(truth), "a.npy", spec("bool", range=(0, 1))).tolist() == truth.tolist()
    )


def test_named_axes_take_any_length_but_none() -> None:
    rows = spec(shape=("N", 4))
    for count in (1, 7):
        assert tensors.read(saved(np.zeros((count, 4), "f4")), "a.npy", rows).shape == (count, 4)
    with pytest.raises(TensorError):
        tensors.check(np.zeros((0, 4), "f4"), rows, "a")


def test_axes_of_one_name_have_one_length() -> None:
    specs = [
        TensorSpec(name="a", dtype="float32", shape=("N", "T")),
        TensorSpec(name="b", dtype="float32", shape=("T", 3, "N")),
    ]
    tensors.check_axes({"a": (2, 5), "b": (5, 3, 2)}, specs, "input")
    with pytest.raises(TensorError, match="the axis 'T' is 2 in 'b' and 5 elsewhere"):
        tensors.check_axes({"a": (2, 5), "b": (2, 3, 2)}, specs, "input")
    with pytest.raises(TensorError, match="the axis 'T' is 3 in 'a' and 2 elsewhere"):
        same = TensorSpec(name="a", dtype="float32", shape=("T", "T"))
        tensors.check_axes({"a": (2, 3)}, [same], "input")
    with pytest.raises(TensorError, match="the input 'b' is missing") as caught:
        tensors.check_axes({"a": (2, 5)}, specs, "input")
    assert "--input b=FILE" in (caught.value.hint or "")


def test_a_strange_array_is_refused_not_run() -> None:
    for value in (np.array([object()]), np.array(["a"]), np.zeros(1, [("a", "f4")])):
        with pytest.raises(TensorError):
            tensors.check(value, spec(shape=(1,)), "a")


# .npz


def test_an_archive_gives_the_array_of_the_inputs_name_or_its_only_one() -> None:
    other = saved(GOOD * 2)
    for members in ({"x.npy": saved(GOOD), "y.npy": other}, {"x": saved(GOOD)}):
        assert tensors.read(archive(members), "a.npz", spec()).tolist() == GOOD.tolist()
    assert tensors.read(archive({"y.npy": other}), "a.npz", spec()).tolist() == (GOOD * 2).tolist()
    refused(archive({"y.npy": other, "z.npy": other}), "a.npz", spec(), "holds 'y', 'z', not 'x'")
    refused(archive({}), "a.npz", spec(), "holds nothing, not 'x'")


def zeros_archive(size: int, promised: int | None = None) -> bytes:
    """An archive whose member of zeros says that it has another size."""
    data = archive({"x.npy": bytes(size)})
    if promised is None:
        return data
    lie = struct.pack("<I", promised)
    truth = struct.pack("<I", size)
    assert data.count(truth) == 2  # the local header and the directory
    return data.replace(truth, lie)


def test_a_bomb_is_refused_before_it_is_unpacked() -> None:
    data = zeros_archive(1_000_003, tensors.MAX_BYTES + 1)
    tracemalloc.start()
    try:
        refused(data, "a.npz", spec(), f"unpacks to more than {tensors.MAX_BYTES} bytes")
        assert tracemalloc.get_traced_memory()[1] < 1 << 19
    finally:
        tracemalloc.stop()


def test_a_bomb_that_lies_about_its_size_unpacks_no_further_than_it_says() -> None:
    data = zeros_archive(8 << 20, 1000)
    tracemalloc.start()
    try:
        refused(data, "a.npz", spec(), "is not a readable .npz file")
        assert tracemalloc.get_traced_memory()[1] < 2 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_numpy_never_compresses_so(method: int) -> None:
    refused(archive({"x.npy": saved(GOOD)}, method), "a.npz", spec(), "compression method")


def encrypted() -> bytes:
    data = bytearray(archive({"x.npy": saved(GOOD)}))
    data[6] |= 1
    data[data.index(b"PK\x01\x02") + 8] |= 1
    return bytes(data)


BAD_ARCHIVES = {
    "empty": b"",
    "npy": saved(GOOD),
    "cut": archive({"x.npy": saved(GOOD)})[:-30],
    "no end": archive({"x.npy": saved(GOOD)})[:60],
    "objects": archive({"x.npy": saved(np.array([{}], dtype=object))}),
    "text": archive({"x.npy": b"1 2 3 4"}),
    "an archive in it": archive({"x.npy": archive({"x.npy": saved(GOOD)})}),
    "encrypted": encrypted(),
    "a wrong checksum": archive({"x.npy": saved(GOOD)}, zipfile.ZIP_STORED).replace(
        GOOD.tobytes(), (GOOD + 1).tobytes()
    ),
    "method 99": archive({"x.npy": saved(GOOD)}).replace(b"\x08\x00", b"\x63\x00"),
}


@pytest.mark.parametrize("case", BAD_ARCHIVES)
def test_damaged_archives(case: str) -> None:
    refused(BAD_ARCHIVES[case], "a.npz", spec(), "")


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_any_damage_to_an_archive_is_a_tensor_error(data: st.DataObject) -> None:
    file = bytearray(archive({"x.npy": saved(GOOD)}))
    for _ in range(data.draw(st.integers(1, 6))):
        file[data.draw(st.integers(0, len(file) - 1))] = data.draw(st.integers(0, 255))
    try:
        value = tensors.read(bytes(file), "a.npz", spec())
    except TensorError:
        return
    assert value.tolist() == GOOD.tolist()  # a checksum guards the values


# .json


JSON_READ = {
    "float32": ([[1, 2.5, -3, 1e-3]], [[1, 2.5, -3, pytest.approx(1e-3)]]),
    "float64": ([[0.1, 2, 3, 1e300]], [[0.1, 2, 3, 1e300]]),
    "float16": ([[1, 2, 3, 65504]], [[1, 2, 3, 65504]]),
    "uint8": ([[0, 255, 1, 2]], [[0, 255, 1, 2]]),
    "int64": ([[-(2**63), 2**63 - 1, 0, 1]], [[-(2**63), 2**63 - 1, 0, 1]]),
    "bool": ([[True, False, True, True]], [[True, False, True, True]]),
}


@pytest.mark.parametrize("dtype", JSON_READ)
def test_json_numbers_become_the_dtype(dtype: str) -> None:
    value, want = JSON_READ[dtype]
    for document in (value, {"x": value, "y": None}):
        read = tensors.read(json.dumps(document).encode(), "a.json", spec(dtype))
        assert (read.tolist(), read.dtype.name) == (want, dtype)


JSON_REFUSED: list[tuple[str, str, str]] = [
    ("float32", "[[1, 2, 3]]", "not [1, 3]"),
    ("float32", "[[1, 2], [3]]", "rows differ in length"),
    ("float32", "[]", "not [0]"),
    ("float32", "5", "not []"),
    ("float32", "[[1, 2, 3, null]]", "holds values that are not float32"),
    ("float32", '[[1, 2, 3, "4"]]', "holds values that are not float32"),
    ("float32", "[[true, true, true, true]]", "holds values that are not float32"),
    ("float32", '[[1, 2, 3, {"a": 1}]]', "holds values that are not float32"),
    ("float32", "[[1, 2, 3, NaN]]", "is not readable JSON"),
    ("float32", "[[1, 2, 3, Infinity]]", "is not readable JSON"),
    ("float32", "[[1, 2, 3, 1e999]]", "is not readable JSON"),
    ("float32", "[[1, 2, 3, 1e39]]", "not finite"),
    ("float16", "[[1, 2, 3, 65520]]", "not finite"),
    ("float32", f"[[1, 2, 3, {10**39}]]", "not finite"),
    ("float32", f"[[1, 2, 3, {'9' * 5000}]]", "is not readable JSON"),
    ("uint8", "[[1, 2, 3, 256]]", "holds values beyond uint8"),
    ("uint8", "[[1, 2, 3, -1]]", "holds values beyond uint8"),
    ("uint8", "[[1, 2, 3, 4.0]]", "holds values that are not uint8"),
    ("int8", "[[1, 2, 3, -129]]", "holds values beyond int8"),
    ("int64", f"[[1, 2, 3, {2**63}]]", "int64"),
    ("int64", f"[[-1, 2, 3, {2**63}]]", "holds values beyond int64"),
    ("int64", f"[[1, 2, 3, {2**64}]]", "holds values beyond int64"),
    ("bool", "[[0, 1, 0, 1]]", "holds values that are not bool"),
    ("float32", '{"y": [[1, 2, 3, 4]]}', "has no member 'x'"),
    ("float32", "{}", "has no member 'x'"),
    ("float32", "", "is not readable JSON"),
    ("float32", "[[1, 2, 3, 4]", "is not readable JSON"),
    ("float32", "[[1, 2, 3, 4]] x", "is not readable JSON"),
    ("float32", "[" * 100_000, "is not readable JSON"),
    ("float32", "[" * 70 + "1" + "]" * 70, "has 70 axes, the most are 8"),
    ("float32", "[[]]", "not [1, 0]"),
    ("float32", "[[],[]]", "not [2, 0]"),
    ("float32", "[[1],[]]", "rows differ in length"),
    ("float32", "[[1,2,3,],[]]", "is not readable JSON"),
    ("float32", "[[1, 2, 3, []]]", "rows differ in length"),
    ("float32", "[1, [2, 3, 4]]", "rows differ in length"),
    ("float32", "[[1, [2], 3, 4]]", "rows differ in length"),
    ("float32", "[[1, 2 3, 4]]", "is not readable JSON"),
    ("float32", "1[[,2,3,4]]", "is not readable JSON"),
    ("float32", '{"x": null}', "holds values that are not float32"),
    ("float32", '{"x": {}}', "holds values that are not float32"),
    ("bool", "[[true, 0, true, true]]", "holds values that are not bool"),
    ("int8", "[[1, 2, 3, 1e0]]", "holds values that are not int8"),
    ("int8", "[[1, 2, 3, true]]", "holds values that are not int8"),
]


@pytest.mark.parametrize(("dtype", "text", "words"), JSON_REFUSED)
def test_json_that_does_not_fit(dtype: str, text: str, words: str) -> None:
    refused(text.encode(), "a.json", spec(dtype), words)


@pytest.mark.parametrize(
    "shape", [(), (1,), (7,), (3, 1), (1, 3), (2, 3, 4), (2, 1, 1, 5), (40_000,)]
)
@pytest.mark.parametrize("indent", [None, 2])
def test_json_of_any_shape(shape: tuple[int, ...], indent: int | None) -> None:
    values = np.arange(max(1, int(np.prod(shape))), dtype="i4").reshape(shape)
    text = json.dumps(values.tolist(), indent=indent).encode()
    assert tensors.read(text, "a.json", spec("int32", shape)).tolist() == values.tolist()
    named = spec("int32", tuple("abcdefgh"[: len(shape)]))
    assert tensors.read(text, "a.json", named).tolist() == values.tolist()


@settings(max_examples=300, deadline=None)
@given(
    st.recursive(
        st.integers(-9, 9) | st.floats(-9, 9), lambda rows: st.lists(rows, max_size=3), max_leaves=9
    )
)
def test_json_is_read_as_numpy_reads_it(value: Any) -> None:
    try:
        wanted = np.array(value, "f8")
    except ValueError:
        wanted = None
    axes = 0 if wanted is None else wanted.ndim
    try:
        read = tensors.read(
            json.dumps(value).encode(), "a.json", spec("float64", tuple("abcdefgh"[:axes]))
        )
    except TensorError:
        assert wanted is None or not wanted.size
    else:
        assert wanted is not None
        assert read.tolist() == wanted.tolist()


@pytest.mark.parametrize("key", ["a b", "é", 'a"b', "a\\b", "a\nb"])
def test_a_member_of_any_name(key: str) -> None:
    wanted = TensorSpec(name=key, dtype="int8", shape=(2,))
    text = json.dumps({"other": {"x": [1]}, key: [1, 2]}).encode()
    assert tensors.read(text, "a.json", wanted).tolist() == [1, 2]


BOMBS = {
    "long words": b'[["' + b"a" * 1_000_000 + b'"]' + b',[""]' * 700 + b"]",
    "empty rows": b"[" + b"[]," * 500_000 + b"[]]",
    "members": b"{" + b",".join(b'"%d":1' % n for n in range(200_000)) + b"}",
    "objects": b"[" + b"{}," * 500_000 + b"{}]",
    "short rows": b"[" + b"[1]," * 500_000 + b"[1]]",
    "numbers": b"[[" + b"1e1," * 500_000 + b"1]]",
}


@pytest.mark.parametrize("case", BOMBS)
@pytest.mark.parametrize("shape", [(1, 4), ("N", "M"), (1, 4_000_000)])
def test_json_takes_a_small_multiple_of_its_bytes(case: str, shape: tuple[int | str, ...]) -> None:
    """Objects would take 20 times the text, an array of the longest word thousands of times."""
    data = BOMBS[case]
    tracemalloc.start()
    try:
        tensors.read(data, "a.json", spec("float64", shape))
    except TensorError:
        pass
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert peak < 6 * len(data) + (1 << 20)


def test_json_of_fixed_axes_is_bounded_by_the_tensor() -> None:
    text = b"[[" + b"1, " * 999 + b"1]]"
    wanted = spec(shape=(1, 1000))
    assert tensors.read(text + b" " * 60_000, "a.json", wanted).size == 1000
    padded = text[:-1] + b" " * (64 * 1024) + b"]"
    refused(padded, "a.json", wanted, "the limit for this tensor in JSON is 65536")
    refused(padded, "a.json", spec(shape=(1, "N", 2)), "not [1, 1000]")
    wide = spec(shape=(1, 2000))
    refused(padded, "a.json", wide, "not [1, 1000]")


def test_json_that_is_no_text() -> None:
    refused(b'{"x": "\xff"}', "a.json", spec(), "holds values that are not float32")


@pytest.mark.parametrize(
    ("name", "limit"), [("a.npy", tensors.MAX_BYTES), ("a.json", tensors.MAX_JSON_BYTES)]
)
def test_files_over_the_limit_are_not_parsed(name: str, limit: int) -> None:
    class Long(bytes):
        def __len__(self) -> int:
            return limit + 1

    refused(Long(models.npy([[1]])), name, spec(), f"is {limit + 1} bytes, the limit")


def test_an_archive_of_endless_entries_is_not_listed() -> None:
    entry = b"PK\1\2" + bytes(42)
    end = b"PK\5\6" + bytes(18)
    with pytest.raises(TensorError, match="more than 1000 arrays"):
        tensors.read(entry * 2000 + end, "a.npz", spec())


def test_the_names_of_an_archive_are_told_briefly() -> None:
    many = archive({f"{'n' * 300}{number}.npy": saved(GOOD) for number in range(50)})
    with pytest.raises(TensorError) as caught:
        tensors.read(many, "a.npz", spec())
    assert len(str(caught.value)) < 1000


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int64"])
def test_a_number_beyond_every_type(dtype: Any) -> None:
    text = f"[[1, 2, 3, 1{'0' * 400}]]".encode()
    with pytest.raises(TensorError, match=rf"holds values beyond {dtype}|is not readable JSON"):
        tensors.read(text, "a.json", spec(dtype))
