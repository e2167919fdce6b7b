"""The desired state outlives the daemon, whole or not at all."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from edge_agent.daemon.kept_state import DesiredFile
from edge_agent.errors import StoreError
from edge_agent.serving.desired import SCHEMA, Desired, DesiredModel

STATE = Desired(SCHEMA, (DesiredModel("acme/a", "1.0.0", ("0.9.0",)),), {"a": "acme/a"})


def test_keeps_and_forgets(tmp_path: Path) -> None:
    kept = DesiredFile(tmp_path / "state")
    assert kept.read() is None
    kept.write(STATE)
    assert DesiredFile(tmp_path / "state").read() == STATE
    assert stat.S_IMODE((tmp_path / "state").stat().st_mode) == 0o700
    assert stat.S_IMODE((tmp_path / "state" / "desired.json").stat().st_mode) == 0o600
    kept.forget()
    assert kept.read() is None
    kept.forget()


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"{",
        b"\xff\xfe",
        b'{"schema": "edge-agent/desired/v9", "models": []}',
        b'{"schema": "edge-agent/desired/v1", "models": [], "aliases": {"a": "gone"}}',
    ],
)
def test_what_is_damaged_is_told(tmp_path: Path, text: bytes) -> None:
    (tmp_path / "desired.json").write_bytes(text)
    with pytest.raises(StoreError, match="is damaged"):
        DesiredFile(tmp_path).read()


def test_what_cannot_be_read_or_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "desired.json").mkdir()
    for attempt in (DesiredFile(tmp_path).read, lambda: DesiredFile(tmp_path).write(STATE)):
        with pytest.raises(StoreError) as caught:
            attempt()
        assert caught.value.path == str(tmp_path / "desired.json")
    (tmp_path / "desired.json").rmdir()
    (tmp_path / "file").write_bytes(b"")
    assert DesiredFile(tmp_path / "file").read() is None
