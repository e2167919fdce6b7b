"""Folders appear whole, are exchanged whole, and leave nothing behind."""

from __future__ import annotations

import fcntl
import os
import tempfile
from pathlib import Path

import pytest

from edge_agent.authoring import staging
from edge_agent.authoring.staging import staged, written
from edge_agent.errors import BadInputError


def names(folder: Path) -> list[str]:
    return [one.name for one in folder.iterdir()]


def test_written_folder_has_its_permissions_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        with written(tmp_path / "a" / "b", {"x": b"1", "d/e/y": b"2"}):
            assert not (tmp_path / "a" / "b").exists()
    finally:
        os.umask(before)
    made = tmp_path / "a" / "b"
    assert (made / "d/e/y").read_bytes() == b"2"
    assert {one.stat().st_mode & 0o777 for one in (made, made / "d", made / "d/e")} == {0o755}
    assert (made / "x").stat().st_mode & 0o777 == 0o644
    assert names(tmp_path / "a") == ["b"]


def test_nothing_is_left_after_a_failure(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no"), written(tmp_path / "b", {"x": b"1"}):
        raise ValueError("no")
    assert names(tmp_path) == []
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(OSError, match="can't be written"), staged(tmp_path / "file" / "b"):
        pass


@pytest.mark.parametrize("can_exchange", [True, False])
def test_folder_takes_the_place_of_another(
    can_exchange: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not can_exchange:
        monkeypatch.setattr(staging, "_exchanged", lambda one, other: False)
    out = tmp_path / "b"
    for round_ in (b"1", b"2"):
        with staged(out) as work:
            (work / "bundle").mkdir()
            (work / "bundle/x").write_bytes(round_)
            staging.place_folder(work / "bundle", out, replace=True)
        assert (out / "x").read_bytes() == round_
    assert names(tmp_path) == ["b"]


def test_nothing_is_replaced_unless_it_shall_be(tmp_path: Path) -> None:
    out = tmp_path / "b"
    with staged(out) as work:
        for name in ("folder", "other"):
            (work / name).mkdir()
            (work / name / "x").write_bytes(b"1")
        (work / "file").write_bytes(b"1")
        (tmp_path / "taken").write_bytes(b"2")
        for place in (staging.place_folder, staging.place_file):
            with pytest.raises(BadInputError, match="meanwhile"):
                place(work / "file" if place is staging.place_file else work / "other",
                      tmp_path / "taken")  # fmt: skip
        staging.place_folder(work / "folder", out)
        with pytest.raises(BadInputError, match="meanwhile"):
            staging.place_folder(work / "other", out)
        staging.place_file(work / "file", tmp_path / "free")
    assert (tmp_path / "taken").read_bytes() == b"2"
    assert sorted(names(tmp_path)) == ["b", "free", "taken"]


def test_folder_that_cannot_be_placed_leaves_the_earlier_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "b"
    out.mkdir()
    (out / "x").write_bytes(b"1")
    monkeypatch.setattr(staging, "_exchanged", lambda one, other: False)
    rename = Path.rename

    def failing(one: Path, other: Path) -> Path:
        if one.name == "bundle":
            raise OSError(5, "Input/output error")
        return rename(one, other)

    monkeypatch.setattr(Path, "rename", failing)
    with pytest.raises(OSError, match="can't be written"), staged(out) as work:
        (work / "bundle").mkdir()
        staging.place_folder(work / "bundle", out, replace=True)
    assert (out / "x").read_bytes() == b"1"
    assert names(tmp_path) == ["b"]


def test_errors_name_the_file_that_they_are_about(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    out = Path("made/b")
    with pytest.raises(FileNotFoundError) as caught, staged(out):
        Path("input.png").read_bytes()
    assert caught.value.filename == "input.png"
    for failure in (OSError(28, "No space left on device"), None):
        with pytest.raises(OSError, match="can't be written") as caught_, staged(out) as work:
            if failure:
                raise failure
            (work / "no" / "x").write_bytes(b"")
        assert caught_.value.filename == "made/b"
    assert names(tmp_path) == []  # the folders above are gone too


def test_leftovers_of_the_dead_are_removed(tmp_path: Path) -> None:
    dead, alive = f".b.{'0' * 16}.staging", f".b.{'1' * 16}.staging"
    others = [".b.x.staging", f".c.{'0' * 16}.staging", f".b.{'0' * 15}.staging"]
    for name in (dead, alive, *others):
        (tmp_path / name).mkdir()
        (tmp_path / name / "x").write_bytes(b"1")
    descriptor = os.open(tmp_path / alive, os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    with staged(tmp_path / "b") as work, staged(tmp_path / "b") as second:
        assert sorted(names(tmp_path)) == sorted([alive, *others, work.name, second.name])
    assert sorted(names(tmp_path)) == sorted([alive, *others])
    os.close(descriptor)


def test_taken_places_are_refused(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("nowhere")
    with pytest.raises(BadInputError, match="exists already"):
        staging.require_free(tmp_path / "link")
    staging.require_free(tmp_path / "free")


def test_scratch_is_private_and_swept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    left = tmp_path / ".edge-agent-scratch.0123456789abcdef.staging"
    left.mkdir()
    (left / "model.onnx").write_bytes(b"of a process that was killed")
    with staging.scratch() as folder:
        assert folder.stat().st_mode & 0o777 == 0o700
        assert not left.exists()
        with staging.scratch() as other:  # one that is in use stays
            assert folder.is_dir()
            assert other != folder
    assert list(tmp_path.iterdir()) == []
