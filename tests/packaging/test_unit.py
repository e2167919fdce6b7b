"""The systemd unit: understood by systemd, and in keeping with the daemon's own times."""

from __future__ import annotations

import shutil
import subprocess
from configparser import RawConfigParser
from pathlib import Path

import pytest

from edge_agent.serve_config import ServeConfig

PACKAGING = Path(__file__).parents[2] / "packaging"
UNIT = PACKAGING / "edge-agent.service"
GROUP = "edge-agent"


class Unit(RawConfigParser):
    """Keeps capitals in keys."""

    def optionxform(self, optionstr: str) -> str:
        return optionstr


def service() -> dict[str, str]:
    parser = Unit()
    parser.read_string(UNIT.read_text())
    return dict(parser["Service"])


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="systemd-analyze isn't installed")
def test_systemd_understands_it(tmp_path: Path) -> None:
    """It must not say a word: an unknown key is only a warning to it."""
    installed = tmp_path / UNIT.name
    installed.write_text(UNIT.read_text().replace("/usr/bin/edge-agent serve", "/bin/true"))
    done = subprocess.run(
        ["systemd-analyze", "verify", installed], capture_output=True, text=True, timeout=50
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_stopping_takes_longer_than_draining() -> None:
    assert int(service()["TimeoutStopSec"]) > ServeConfig().drain_s


def test_watchdog_waits_for_more_than_one_canary() -> None:
    assert int(service()["WatchdogSec"]) > 2 * ServeConfig().canary_s


def test_group_of_the_socket_is_made() -> None:
    assert service()["Group"] == GROUP
    assert f"\ng {GROUP} -" in (PACKAGING / "sysusers.d/edge-agent.conf").read_text()


def test_root_keeps_what_the_daemon_needs_of_it() -> None:
    assert set(service()["CapabilityBoundingSet"].split()) == {
        "CAP_CHOWN",  # sockets get their groups
        "CAP_KILL",  # workers are nobody's
        "CAP_NET_BIND_SERVICE",
        "CAP_SETGID",
        "CAP_SETUID",
    }


def test_only_its_own_folders_can_be_written() -> None:
    unit = service()
    assert unit["ProtectSystem"] == "strict"
    assert unit["StateDirectory"] == unit["RuntimeDirectory"] == "edge-agent"
