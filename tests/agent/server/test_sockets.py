"""Unix sockets and their folder: rights, names, and what stands in their way."""

from __future__ import annotations

import os
import shutil
import socket
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from edge_agent.errors import ConfigError
from edge_agent.server import sockets


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder with a path that is short enough for a socket's name."""
    made = Path(tempfile.mkdtemp(prefix="ea", dir="/tmp"))
    yield made
    shutil.rmtree(made)


def test_a_socket_appears_with_its_rights(folder: Path) -> None:
    path = folder / "data.sock"
    group = stat.S_ISREG(0) or os.getegid()
    made = sockets.unix_socket(path)
    facts = path.stat()
    assert stat.S_ISSOCK(facts.st_mode)
    assert stat.S_IMODE(facts.st_mode) == 0o660
    assert facts.st_gid == group
    assert [one.name for one in folder.iterdir()] == ["data.sock"]
    made.close()


def test_a_dead_daemons_socket_is_replaced_a_living_ones_is_not(folder: Path) -> None:
    path = folder / "data.sock"
    sockets.unix_socket(path).close()
    assert path.exists()
    living = sockets.unix_socket(path)
    with pytest.raises(ConfigError, match="another daemon"):
        sockets.unix_socket(path)
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(str(path))
    living.close()


def test_what_cant_be_listened_on_is_an_error_of_the_configuration(folder: Path) -> None:
    with pytest.raises(ConfigError, match="too long"):
        sockets.unix_socket(folder / ("x" * 108))
    with pytest.raises(ConfigError, match="no group"):
        sockets.unix_socket(folder / "a.sock", "no-such-group-here")
    assert list(folder.iterdir()) == []
    with pytest.raises(ConfigError):
        sockets.unix_socket(folder / "none" / "a.sock")


@pytest.mark.parametrize("name", ["a.sock", "a.sock.new"])
def test_a_folder_in_place_of_a_socket_is_one_too(folder: Path, name: str) -> None:
    (folder / name).mkdir()
    with pytest.raises(ConfigError) as caught:
        sockets.unix_socket(folder / "a.sock")
    assert name in str(caught.value)
    assert caught.value.hint
    assert [one.name for one in folder.iterdir()] == [name]


def test_the_folder_of_sockets_is_the_daemons(folder: Path) -> None:
    made = folder / "run" / "edge-agent"
    sockets.folder(made)
    assert stat.S_IMODE(made.stat().st_mode) == 0o755
    made.chmod(0o777)
    with pytest.raises(ConfigError):
        sockets.folder(made)
