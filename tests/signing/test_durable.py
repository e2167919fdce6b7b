from __future__ import annotations

import errno
import os
import socket
import stat
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from edge_signing.durable import (
    create_durably,
    fsync_directory,
    open_durably,
    remove_unfinished,
    write_durably,
)

if TYPE_CHECKING:
    from tests.signing.conftest import Crashes


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077, 0o777])
@pytest.mark.parametrize("mode", [0o600, 0o644])
def test_writes_with_exactly_the_mode(tmp_path: Path, mode: int, umask: int) -> None:
    old = os.umask(umask)
    try:
        write_durably(tmp_path / "f", b"data", mode)
    finally:
        os.umask(old)
    assert (tmp_path / "f").read_bytes() == b"data"
    assert stat.S_IMODE((tmp_path / "f").stat().st_mode) == mode
    assert [path.name for path in tmp_path.iterdir()] == ["f"]


def test_replaces_and_leaves_nothing_else(tmp_path: Path) -> None:
    write_durably(tmp_path / "f", b"one")
    write_durably(str(tmp_path / "f"), b"two")
    assert (tmp_path / "f").read_bytes() == b"two"
    assert [path.name for path in tmp_path.iterdir()] == ["f"]


def test_a_failure_keeps_the_old_file_and_removes_the_temporary_one(tmp_path: Path) -> None:
    write_durably(tmp_path / "f", b"old")
    with pytest.raises(RuntimeError), open_durably(tmp_path / "f") as stream:
        stream.write(b"half")
        raise RuntimeError
    assert (tmp_path / "f").read_bytes() == b"old"
    assert [path.name for path in tmp_path.iterdir()] == ["f"]


def test_a_folder_in_the_way_is_an_error_that_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "f").mkdir()
    with pytest.raises(OSError):
        write_durably(tmp_path / "f", b"x")
    assert [path.name for path in tmp_path.iterdir()] == ["f"]


def make_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        os.chdir(path.parent)  # socket paths are short
        server.bind(path.name)


def make_device(path: Path) -> None:
    try:
        os.mknod(path, 0o020666, os.makedev(1, 3))
    except PermissionError:
        pytest.skip("no device nodes here")


IN_THE_WAY: dict[str, Callable[[Path], object]] = {
    "folder": lambda path: path.mkdir(),
    "FIFO": lambda path: os.mkfifo(path),
    "socket": make_socket,
    "device": make_device,
    "link to a file": lambda path: path.symlink_to("victim"),
    "link to a device": lambda path: path.symlink_to("/dev/null"),
    "dangling link": lambda path: path.symlink_to("nowhere"),
}


@pytest.mark.parametrize("make", IN_THE_WAY.values(), ids=IN_THE_WAY.keys())
def test_only_a_regular_file_is_replaced(
    tmp_path: Path, make: Callable[[Path], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "victim").write_bytes(b"victim")
    make(tmp_path / "f")
    before = (tmp_path / "f").lstat()
    for write in (write_durably, create_durably):
        with pytest.raises(FileExistsError) as caught:
            write(tmp_path / "f", b"x")
        assert caught.value.filename == str(tmp_path / "f")
    with pytest.raises(FileExistsError, match="regular file"), open_durably(tmp_path / "f"):
        pytest.fail("nothing may be written")
    assert (tmp_path / "f").lstat() == before
    assert (tmp_path / "victim").read_bytes() == b"victim"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["f", "victim"]


def test_killed_at_any_step(tmp_path: Path, crashes: Crashes) -> None:
    target = tmp_path / "f"
    for _ in crashes(
        lambda: target.write_bytes(b"old"), lambda: write_durably(target, b"new" * 10_000)
    ):
        assert target.read_bytes() in (b"old", b"new" * 10_000)
        write_durably(target, b"again")
        assert [path.name for path in tmp_path.iterdir()] == ["f"]


def test_killed_at_any_step_of_creating(tmp_path: Path, crashes: Crashes) -> None:
    target = tmp_path / "f"
    for _ in crashes(
        lambda: target.unlink(missing_ok=True), lambda: create_durably(target, b"new" * 10_000)
    ):
        if target.exists():
            assert target.read_bytes() == b"new" * 10_000
            with pytest.raises(FileExistsError):
                create_durably(target, b"again")
        else:
            create_durably(target, b"again")
        assert [path.name for path in tmp_path.iterdir()] == ["f"]


def test_creating_keeps_what_is_there(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"precious")
    with pytest.raises(FileExistsError):
        create_durably(tmp_path / "f", b"x")
    assert (tmp_path / "f").read_bytes() == b"precious"


def refuse(number: int) -> Callable[..., None]:
    def call(*arguments: object, **options: object) -> None:
        raise OSError(number, os.strerror(number))

    return call


def test_creating_without_hard_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "link", refuse(errno.EPERM))
    create_durably(tmp_path / "f", b"data", 0o600)
    assert (tmp_path / "f").read_bytes() == b"data"
    assert stat.S_IMODE((tmp_path / "f").stat().st_mode) == 0o600
    with pytest.raises(FileExistsError):
        create_durably(tmp_path / "f", b"x")
    monkeypatch.setattr(os, "replace", refuse(errno.EIO))
    with pytest.raises(OSError, match="Input/output"):
        create_durably(tmp_path / "g", b"x")
    assert [path.name for path in tmp_path.iterdir()] == ["f"]


@pytest.mark.parametrize("call", ["fsync", "link", "fchmod"])
def test_a_failure_to_create_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    monkeypatch.setattr(os, call, refuse(errno.ENOSPC))
    with pytest.raises(OSError, match="No space"):
        create_durably(tmp_path / "f", b"x")
    assert not list(tmp_path.iterdir())


def test_a_folder_that_cannot_be_synced_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("edge_signing.durable.fsync_directory", refuse(errno.EIO))
    with pytest.raises(OSError):
        create_durably(tmp_path / "f", b"x")
    assert not list(tmp_path.iterdir())


def test_a_living_writer_is_left_alone(tmp_path: Path) -> None:
    with open_durably(tmp_path / "f") as stream:
        stream.write(b"slow")
        write_durably(tmp_path / "f", b"quick")
        remove_unfinished(tmp_path / "f")
        assert (tmp_path / "f").read_bytes() == b"quick"
    assert (tmp_path / "f").read_bytes() == b"slow"
    assert [path.name for path in tmp_path.iterdir()] == ["f"]


def test_only_own_leftovers_are_removed(tmp_path: Path) -> None:
    kept = {".f.notes.tmp", ".fg." + "0" * 16 + ".tmp", ".f." + "0" * 17 + ".tmp", "f"}
    for name in (*kept, ".f." + "0" * 16 + ".tmp"):
        (tmp_path / name).write_bytes(b"x")
    (tmp_path / (".f." + "1" * 16 + ".tmp")).mkdir()
    write_durably(tmp_path / "f", b"new")
    assert {path.name for path in tmp_path.iterdir()} == {*kept, ".f." + "1" * 16 + ".tmp"}


def test_another_folder_for_the_temporary_file(tmp_path: Path) -> None:
    (tmp_path / "inner").mkdir()
    with open_durably(tmp_path / "inner" / "f", staging=tmp_path) as stream:
        stream.write(b"x")
        assert not list((tmp_path / "inner").iterdir())
    assert (tmp_path / "inner" / "f").read_bytes() == b"x"
    assert [path.name for path in tmp_path.iterdir()] == ["inner"]


def test_a_long_name_and_a_relative_one_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_durably("n" * 255, b"x")
    assert (tmp_path / ("n" * 255)).read_bytes() == b"x"


def test_a_missing_folder_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        write_durably(tmp_path / "no" / "f", b"x")
    with pytest.raises(FileNotFoundError):
        fsync_directory(tmp_path / "no")
