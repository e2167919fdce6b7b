"""Memory that two processes share, one of which may be hostile."""

from __future__ import annotations

import os
from collections.abc import Iterator
from fcntl import F_ADD_SEALS, F_SEAL_WRITE, fcntl

import pytest

from edge_agent.errors import BadInputError
from edge_agent.workers.protocol import Span
from edge_agent.workers.tensor_memory import MAX_BYTES, WARM_BYTES, TensorMemory
from tests.agent.conftest import Python


@pytest.fixture
def memory() -> Iterator[TensorMemory]:
    one = TensorMemory.create()
    yield one
    one.close()


@pytest.fixture
def other_side(memory: TensorMemory) -> Iterator[TensorMemory]:
    one = TensorMemory(os.dup(memory.descriptor))
    yield one
    one.close()


def held_bytes(memory: TensorMemory) -> int:
    return os.fstat(memory.descriptor).st_blocks * 512


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_what_one_side_puts_the_other_sees(
    memory: TensorMemory, other_side: TensorMemory, kind: type[memoryview]
) -> None:
    first, empty, second = (memory.put(kind(data)) for data in (b"abc", b"", b"d" * 100))
    assert [span.offset % 64 for span in (first, empty, second)] == [0, 0, 0]
    assert bytes(other_side.view(first)) == b"abc"
    assert bytes(other_side.view(empty)) == b""
    assert bytes(other_side.view(second)) == b"d" * 100


def test_the_other_side_goes_on_behind_what_is_there(
    memory: TensorMemory, other_side: TensorMemory
) -> None:
    given = memory.put(b"input")
    other_side.reset(given.offset + given.size)
    span, place = other_side.reserve(6)
    place[:] = b"output"
    assert (bytes(memory.view(given)), bytes(memory.view(span))) == (b"input", b"output")


def test_a_batch_begins_at_the_beginning(memory: TensorMemory) -> None:
    first = memory.put(b"one")
    memory.reset()
    assert memory.put(b"two").offset == first.offset


def test_a_batch_takes_no_more_than_there_is(memory: TensorMemory) -> None:
    assert memory.size == MAX_BYTES
    memory.reserve(MAX_BYTES - 64)
    memory.reserve(64)
    with pytest.raises(BadInputError, match="more than the 1024 MiB that a worker has"):
        memory.reserve(1)
    memory.reset()
    with pytest.raises(BadInputError):
        memory.reserve(MAX_BYTES + 1)
    assert held_bytes(memory) == 0  # nothing was written


@pytest.mark.parametrize(
    ("offset", "size"),
    [(0, MAX_BYTES + 1), (MAX_BYTES, 1), (MAX_BYTES + 64, 0), (-64, 64), (64, -1), (2**70, 2**70)],
)
def test_a_span_stays_inside(memory: TensorMemory, offset: int, size: int) -> None:
    with pytest.raises(ValueError, match="outside"):
        memory.view(Span(offset, size))


def test_neither_side_can_resize_or_seal_it(memory: TensorMemory) -> None:
    for size in (0, MAX_BYTES - 1, MAX_BYTES + 1):
        with pytest.raises(PermissionError):
            os.ftruncate(memory.descriptor, size)
    with pytest.raises(PermissionError):
        fcntl(memory.descriptor, F_ADD_SEALS, F_SEAL_WRITE)


def test_a_large_batch_is_given_back(memory: TensorMemory, other_side: TensorMemory) -> None:
    small, large = other_side.put(b"small"), other_side.put(bytes(3 * WARM_BYTES))
    assert held_bytes(memory) > 3 * WARM_BYTES
    memory.give_back()  # this side knows of nothing
    assert held_bytes(memory) > 3 * WARM_BYTES
    memory.view(large)
    memory.give_back()
    assert held_bytes(memory) <= WARM_BYTES
    assert bytes(memory.view(small)) == b"small"


def test_views_outlive_it() -> None:
    memory = TensorMemory.create()
    view = memory.view(memory.put(b"abc"))
    memory.close()
    memory.close()
    assert bytes(view) == b"abc"


def test_where_the_address_space_is_small_so_is_the_memory(python: Python) -> None:
    out = python.run(
        """
import os, resource
from edge_agent.workers.tensor_memory import MAX_BYTES, TensorMemory
before = os.listdir("/proc/self/fd")
resource.setrlimit(resource.RLIMIT_AS, (600 << 20, 600 << 20))
memory = TensorMemory.create()
memory.put(bytes(1000))
print(memory.size < MAX_BYTES, memory.size >= 64 << 20)
memory.close()
resource.setrlimit(resource.RLIMIT_AS, (20 << 20, 600 << 20))
try:
    TensorMemory.create()
except OSError as error:
    print(error.strerror)
print(os.listdir("/proc/self/fd") == before)
"""
    )
    assert out.split("\n")[:3] == ["True True", "Cannot allocate memory", "True"]


def test_the_daemon_imports_no_arrays(python: Python) -> None:
    out = python.run(
        "import sys\n"
        "from edge_agent.workers import tensor_memory, protocol\n"
        "print({'numpy', 'PIL', 'onnxruntime'} & set(sys.modules))"
    )
    assert out == "set()\n"
