from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from edge_signing.durable import fsync_directory, open_durably, write_durably


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


def test_replaces_a_link_instead_of_following_it(tmp_path: Path) -> None:
    (tmp_path / "victim").write_bytes(b"victim")
    (tmp_path / "f").symlink_to("victim")
    write_durably(tmp_path / "f", b"new")
    assert (tmp_path / "victim").read_bytes() == b"victim"
    assert not (tmp_path / "f").is_symlink()


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
