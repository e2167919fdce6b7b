"""Headers of .npy files: NumPy's own are read, those that lie are refused before they cost."""

from __future__ import annotations

import io
import pickle
import struct
import tracemalloc
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edge_agent import npy
from edge_agent.errors import TensorError


def saved(value: Any, version: tuple[int, int] | None = None) -> bytes:
    file = io.BytesIO()
    np.lib.format.write_array(file, np.asanyarray(value), version)
    return file.getvalue()


def made(header: str, values: bytes = b"", version: int = 1) -> bytes:
    text = header.encode("utf-8")
    length = struct.pack("<H" if version == 1 else "<I", len(text))
    return b"\x93NUMPY" + bytes([version, 0]) + length + text + values


def header(descr: object = "<f4", shape: object = (2,), order: object = False) -> str:
    return f"{{'descr': {descr!r}, 'fortran_order': {order!r}, 'shape': {shape!r}, }}"


@pytest.mark.parametrize(
    "dtype",
    ["f2", "f4", "f8", ">f4", ">f2", "i1", "i2", "<i4", ">i8", "u1", ">u2", "u4", "u8", "?"],
)
@pytest.mark.parametrize("version", [(1, 0), (2, 0), (3, 0)])
def test_reads_what_numpy_writes(dtype: str, version: tuple[int, int]) -> None:
    value = np.arange(6).astype(dtype).reshape(2, 3)
    read = npy.parse(saved(value, version), "x.npy")
    assert (read.dtype, read.tolist()) == (value.dtype, value.tolist())


@pytest.mark.parametrize("shape", [(), (1,), (4,), (2, 3, 4)])
def test_shapes_and_axis_orders(shape: tuple[int, ...]) -> None:
    value = np.arange(np.prod(shape, dtype=int), dtype="f4").reshape(shape)
    for order in (value, np.array(value, order="F")):
        read = npy.parse(saved(order), "x.npy")
        assert (read.shape, read.tolist()) == (value.shape, value.tolist())


@pytest.mark.parametrize(
    "text",
    [
        "{'descr':'<f4','fortran_order':False,'shape':(2,)}",
        '{"shape": (2,), "fortran_order": False, "descr": "<f4"}',
        header() + " " * 60 + "\n",
        header("=f4"),
    ],
)
def test_reads_what_other_tools_write(text: str) -> None:
    assert npy.parse(made(text, struct.pack("<2f", 1, 2)), "x.npy").tolist() == [1, 2]


class Bomb:
    def __reduce__(self) -> Any:
        return pytest.fail, ("unpickled",)


REFUSED = {
    "empty": b"",
    "text": b"1 2 3",
    "magic only": b"\x93NUMPY",
    "version only": b"\x93NUMPY\x01\x00",
    "version 0": made(header()).replace(b"\x01", b"\x00", 1),
    "version 1.1": made(header(), bytes(8)).replace(b"\x00", b"\x01", 1),
    "version 4": made(header(), bytes(8), 4),
    "a header longer than the file": b"\x93NUMPY\x01\x00\xff\x00" + header().encode(),
    "a header of 4 GiB": b"\x93NUMPY\x02\x00\xff\xff\xff\xff" + header().encode(),
    "a header over NumPy's limit": made(header() + " " * 10_000, bytes(8)),
    "objects": saved(np.array([Bomb()], dtype=object)),
    "objects by hand": made(header("|O"), pickle.dumps([Bomb()])),
    "a bare pickle": pickle.dumps(Bomb()),
    "a pickle with a magic": b"\x93NUMPY" + pickle.dumps(Bomb()),
    "complex": saved(np.zeros(2, "c8")),
    "strings": saved(np.array(["a"])),
    "bytes": saved(np.array([b"a"])),
    "dates": saved(np.array(["2020-01-01"], "M8[D]")),
    "records": saved(np.zeros(2, [("a", "f4")])),
    "records in a string": made(header("f4,f4"), bytes(16)),
    "a subarray": made(header("(2,)f4"), bytes(16)),
    "f1": made(header("<f1"), bytes(2)),
    "f16": made(header("<f16"), bytes(32)),
    "b8": made(header("<b8"), bytes(16)),
    "no type": made(header(None), bytes(8)),
    "a type in a list": made(header(["<f4"]), bytes(8)),
    "a shape in a list": made(header(shape=[2]), bytes(8)),
    "a bare length": made(header(shape=2), bytes(8)),
    "a negative length": made(header(shape=(-1, -2)), bytes(8)),
    "a float length": made(header(shape=(2.0,)), bytes(8)),
    "a true length": made(header(shape=(True, 2)), bytes(8)),
    "33 axes": made(header(shape=(1,) * 33), bytes(4)),
    "order 1": made(header(order=1), bytes(8)),
    "a missing key": made("{'descr': '<f4', 'shape': (2,)}", bytes(8)),
    "one key more": made(header()[:-1] + "'x': 1}", bytes(8)),
    "a list": made("['descr', 'fortran_order', 'shape']", bytes(8)),
    "a call": made("{'descr': '<f4', 'fortran_order': False, 'shape': exit()}", bytes(8)),
    "an unhashable key": made("{[]: 1}", bytes(8)),
    "an open string": made("{'descr': '''", bytes(8)),
    "open brackets": made("(" * 300, bytes(8)),
    "nested too deeply": made("-" * 9000 + "1", bytes(8)),
    "nul bytes": made("\0" * 60, bytes(8)),
    "a long of Python 2": made(header().replace("2", "2L"), bytes(8)),
    "not text": made(header(), bytes(8)).replace(b"descr", b"d\xffscr"),
    "one byte short": saved(np.zeros(2))[:-1],
    "cut in the header": saved(np.zeros(2))[:50],
    "one byte more": saved(np.zeros(2)) + b"\0",
    "two arrays": saved(np.zeros(2)) * 2,
    "no values": made(header()),
    "an empty axis": saved(np.zeros((2, 0))),
    "an empty axis beside a huge one": made(header(shape=(0, 2**61))),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_refused(case: str) -> None:
    with pytest.raises(TensorError, match=r"^x\.npy: ") as caught:
        npy.parse(REFUSED[case], "x.npy")
    assert len(str(caught.value)) < 200


def test_an_archive_is_named_as_one() -> None:
    file = io.BytesIO()
    np.savez(file, x=np.zeros(2))
    with pytest.raises(TensorError, match=r"is an archive; rename it to \.npz"):
        npy.parse(file.getvalue(), "x.npy")


@pytest.mark.parametrize("shape", [(2**33,), (2**61,), (2**61, 2**61), (2**32, 2**32)])
def test_a_header_that_promises_the_world_allocates_nothing(shape: tuple[int, ...]) -> None:
    data = made(header("<f8", shape), bytes(64))
    tracemalloc.start()
    try:
        with pytest.raises(TensorError, match="its header promises"):
            npy.parse(data, "x.npy")
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


def test_the_values_are_not_copied_and_cannot_be_written() -> None:
    value = npy.parse(saved(np.zeros(4)), "x.npy")
    assert not value.flags.owndata
    assert not value.flags.writeable


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_damage_is_refused_or_read_as_numpy_reads_it(data: st.DataObject) -> None:
    file = bytearray(saved(np.arange(4, dtype="i2").reshape(2, 2)))
    for _ in range(data.draw(st.integers(1, 4))):
        file[data.draw(st.integers(0, 90))] = data.draw(
            st.integers(0, 255) | st.sampled_from(list(b"'(),0123456789<>|{}FTe "))
        )
    try:
        value = npy.parse(bytes(file), "x.npy")
    except TensorError:
        return
    assert value.tobytes() == np.load(io.BytesIO(file), allow_pickle=False).tobytes()
