"""Folders appear whole, are exchanged whole, and leave nothing behind."""

from __future__ import annotations

import os
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
            staging.place_folder(work / "bundle", out)
        assert (out / "x").read_bytes() == round_
    assert names(tmp_path) == ["b"]


def test_leftovers_of_the_dead_are_removed(tmp_path: Path) -> None:
    for name in (
        ".b.999999999.staging",
        f".b.{os.getppid()}.staging",
        ".b.x.staging",
        ".c.999999999.staging",
    ):
        (tmp_path / name).mkdir()
    with staged(tmp_path / "b"):
        pass
    left = sorted(names(tmp_path))
    assert left == sorted([f".b.{os.getppid()}.staging", ".b.x.staging", ".c.999999999.staging"])


def test_taken_places_are_refused(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("nowhere")
    with pytest.raises(BadInputError, match="exists already"):
        staging.require_free(tmp_path / "link")
    staging.require_free(tmp_path / "free")
