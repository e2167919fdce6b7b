"""`edge-agent doctor`: which profile, what it checks, and the configuration that it writes."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from edge_agent import config
from edge_agent.backends.base import EngineStatus
from edge_agent.cli import doctor_checks
from edge_agent.cli.doctor_apply import apply
from edge_profiles.detect import Machine
from edge_profiles.profile import DeviceProfile
from edge_profiles.selection import SHIPPED, select

from .conftest import Run

GENERIC = (SHIPPED / "generic.toml").read_text()
GENERIC_NAMES = {"x86_64": "generic-x86-64", "aarch64": "generic-arm64"}
CHECKS = ["keyring", "store", "cache", "profile", "kernel", "threads", "memory", "engines", "int8"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The configuration folder."""
    (tmp_path / "config" / "profiles").mkdir(parents=True)
    return tmp_path / "config"


def own(folder: Path, name: str = "mine", **changes: str) -> None:
    lines = []
    for line in GENERIC.splitlines():
        key = line.partition(" = ")[0]
        lines.append(f"{key} = {changes[key]}" if key in changes else line)
    (folder / "profiles" / f"{name}.toml").write_text("\n".join(lines) + "\n")


def checks(document: Any) -> dict[str, Any]:
    return {one["name"]: one for one in document["checks"]}


def test_it_shows_the_profile_and_every_check(run: Run) -> None:
    outcome = run("doctor", "--json")
    document = outcome.json()
    cpus = document["machine"]["cpus"]
    assert outcome.code == 0
    assert [one["name"] for one in document["checks"]] == CHECKS
    assert {one["status"] for one in document["checks"]} <= {"pass", "warn"}
    profile = document["profile"]
    machine = os.uname().machine
    assert profile["name"] == GENERIC_NAMES.get(machine, profile["name"])
    assert (profile["threads"], document["threads"]) == (cpus, cpus)
    assert profile["max_memory_mib"] < document["machine"]["memory_mib"]
    assert set(document["precisions"]) == {"onnx", "tflite"}
    assert set(document["precisions"]["onnx"]) == {"fp32", "fp16", "int8"}
    assert document["applied"] is None
    shown = run("doctor").out
    for words in (profile["name"], "Precisions", "Checks", "engine order", "pass"):
        assert words in shown


def test_configuration_comes_before_the_profile_and_the_environment_first(
    run: Run, folder: Path
) -> None:
    own(folder, threads="1", min_available_mib="5", max_latency_ms="77")
    own(folder, "other")
    file = folder / "config.toml"
    file.write_text('profile = "mine"\n')
    found = run("doctor", "--json").json()
    profile = found["profile"]
    assert (profile["name"], profile["reason"]) == ("mine", "as configured")
    assert (profile["threads"], found["threads"]) == (1, 1)
    assert profile["engines"] == ["onnx", "tflite"]
    assert (profile["min_available_mib"], profile["max_latency_ms"]) == (5, 77)
    file.write_text(
        'profile = "mine"\nthreads = 2\nengine_order = ["tflite"]\nmin_available_mib = 6\n'
        "max_memory_mib = 123\nmax_latency_ms = 78\n"
    )
    profile = run("doctor", "--json").json()["profile"]
    assert (profile["threads"], profile["engines"]) == (2, ["tflite", "onnx"])
    assert [profile[key] for key in ("min_available_mib", "max_memory_mib", "max_latency_ms")] == [
        6,
        123,
        78,
    ]
    named = run("doctor", "--json", EDGE_AGENT_PROFILE="other", EDGE_AGENT_THREADS="1").json()
    assert (named["profile"]["name"], named["threads"]) == ("other", 1)


def test_inference_uses_the_threads_and_the_order(run: Run, folder: Path, photos: Path) -> None:
    own(folder, threads="1", engines='["tflite", "onnx"]')
    script = (
        "from edge_agent import config; from edge_agent.app import Agent;"
        "loader = Agent(config.load(), print).loader; print(loader.threads, *loader.order)"
    )
    assert run(script=script, EDGE_AGENT_PROFILE="mine").out == "1 tflite onnx\n"
    answer = run("infer", photos / "coffee.png", EDGE_AGENT_PROFILE="mine")
    assert answer.code == 0
    assert "trying demo/efficientnet-lite0 on tflite and onnx" in answer.err


def test_a_kernel_that_is_too_old_is_a_problem(run: Run, folder: Path) -> None:
    own(folder, min_kernel='"999.0"')
    outcome = run("doctor", "--json", EDGE_AGENT_PROFILE="mine")
    kernel = checks(outcome.json())["kernel"]
    assert (outcome.code, kernel["status"]) == (1, "fail")
    assert "older than 999.0" in kernel["found"]
    assert "999.0" in kernel["hint"]
    assert "fail" in run("doctor", EDGE_AGENT_PROFILE="mine").out


def test_too_little_memory_and_slow_precisions_are_told(run: Run, folder: Path) -> None:
    own(folder, min_available_mib="1048576")
    outcome = run("doctor", "--json", EDGE_AGENT_PROFILE="mine")
    found = checks(outcome.json())
    assert outcome.code == 0
    assert [found[one]["status"] for one in ("memory", "int8")] == ["warn", "warn"]
    assert "measured before they are used" in found["int8"]["hint"]


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("mine", GENERIC + "x = 1\n", "unknown key"),
        ("mine", "threads = ", "is not valid TOML"),
        ("absent", None, "there is no device profile 'absent'"),
    ],
)
def test_a_profile_that_cant_be_used(
    run: Run, folder: Path, photos: Path, name: str, text: str | None, said: str
) -> None:
    if text is not None:
        (folder / "profiles/mine.toml").write_text(text)
    outcome = run("doctor", "--json", EDGE_AGENT_PROFILE=name)
    document = outcome.json()
    assert (outcome.code, document["profile"], document["precisions"]) == (1, None, None)
    assert said in checks(document)["profile"]["found"]
    assert run("doctor", EDGE_AGENT_PROFILE=name).code == 1
    refused = run("infer", photos / "coffee.png", EDGE_AGENT_PROFILE=name)
    assert refused.code == 2
    assert said in refused.err
    if text is not None:  # it might be for this board
        assert run("doctor", "--apply").code == 2
        assert not (folder / "config.toml").exists()


@pytest.mark.parametrize("place", ["profiles", "profiles/mine.toml"])
def test_a_profile_that_others_can_change_is_refused(run: Run, folder: Path, place: str) -> None:
    own(folder)
    (folder / place).chmod(0o777)
    outcome = run("doctor", "--json", EDGE_AGENT_PROFILE="mine")
    assert outcome.code == 1
    profile = checks(outcome.json())["profile"]
    assert "can be changed by others" in profile["found"]
    assert "chmod go-w" in profile["hint"]


# What follows writes a configuration.


def test_apply_writes_a_configuration_that_loads(run: Run, tmp_path: Path) -> None:
    outcome = run("doctor", "--apply", "--json")
    assert outcome.code == 0
    found = outcome.json()
    file = tmp_path / "config/config.toml"
    text = file.read_text()
    assert found["applied"] == {"path": str(file), "added": text.splitlines(), "kept": []}
    assert tomllib.loads(text) == {"profile": found["profile"]["name"]}
    assert stat.S_IMODE(file.stat().st_mode) == 0o644
    made = config.load({"EDGE_AGENT_CONFIG_DIR": str(file.parent)})
    assert made.profile == found["profile"]["name"]
    # With every # taken away it means the same on this machine.
    lines = [line.removeprefix("# ") if " = " in line else line for line in text.splitlines()]
    file.write_text("\n".join(lines))
    again = run("doctor", "--json").json()["profile"]
    for key in ("threads", "engines", "min_available_mib", "max_memory_mib", "max_latency_ms"):
        assert again[key] == found["profile"][key]


def test_apply_twice_changes_nothing(run: Run, tmp_path: Path) -> None:
    first = run("doctor", "--apply")
    file = tmp_path / "config/config.toml"
    assert f"Written to {file}:" in first.out
    before = (file.read_bytes(), file.stat().st_ino)
    second = run("doctor", "--apply")
    assert (file.read_bytes(), file.stat().st_ino) == before
    assert "Nothing is missing" in second.out
    assert "Kept as you have them: profile" in second.out
    assert sorted(one.name for one in file.parent.iterdir()) == ["config.lock", "config.toml"]


def test_apply_names_the_board_whatever_the_environment_says(run: Run, tmp_path: Path) -> None:
    other = "visionfive-2"
    assert run("doctor", "--apply", EDGE_AGENT_PROFILE=other).code == 0
    written = tomllib.loads((tmp_path / "config/config.toml").read_text())
    assert written["profile"] == run("doctor", "--json").json()["profile"]["name"] != other


@pytest.mark.parametrize("end", ["\n", "", "\r\n"])
def test_apply_keeps_every_key_and_comment(run: Run, folder: Path, end: str) -> None:
    line = "\r\n" if end == "\r\n" else "\n"
    before = line.join(["# mine", "threads = 1  # why", 'engine_order = ["tflite"]']) + end
    file = folder / "config.toml"
    file.write_bytes(before.encode())
    file.chmod(0o600)
    if os.geteuid() == 0:
        os.chown(file, 65534, 65534)
    owner = (file.stat().st_uid, file.stat().st_gid)
    found = run("doctor", "--apply", "--json").json()
    after = file.read_bytes().decode()
    assert after.startswith(before)
    assert found["applied"]["kept"] == ["engine_order", "threads"]
    assert not any("threads =" in one for one in found["applied"]["added"])
    assert tomllib.loads(after)["threads"] == 1
    assert after.count(line) == after.count("\n")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert (file.stat().st_uid, file.stat().st_gid) == owner
    assert run("doctor", "--apply", "--json").json()["applied"]["added"] == []
    assert file.read_bytes().decode() == after


TABLE = '# the daemon\n  [serve]\nlog_level = "info"\n'


@pytest.mark.parametrize(
    ("keys", "tables"),
    [
        ("", TABLE),
        ("", '[serve.tcp]\nport = 1\ntokens_file = "/etc/tokens"\n[cache]\nmib = 1\n'),
        ("threads = 1  # why\n\n", TABLE),
        ('engine_order = [\n"onnx", # [a]\n]\n', TABLE),
        ('state_dir = """\n/[serve]\\\n[serve]"""\n', TABLE),
        ('state_dir = """\\\n/\\\n#a"""\n', "[cache]\n"),
    ],
)
def test_apply_puts_keys_before_tables(folder: Path, keys: str, tables: str) -> None:
    file = folder / "config.toml"
    file.write_text(keys + tables)
    board = profile()
    applied = apply(file, board)
    after = file.read_text()
    assert after.startswith(keys)
    assert after.endswith("\n" + tables)
    assert "\n".join(applied.added) in after
    assert tomllib.loads(after) == {"profile": board.name, **tomllib.loads(keys + tables)}
    assert apply(file, board).added == ()


@pytest.mark.parametrize("value", ["auto", "visionfive-2"])
def test_apply_never_overrides_a_profile(run: Run, folder: Path, value: str) -> None:
    (folder / "config.toml").write_text(f'profile = "{value}"\n')
    found = run("doctor", "--apply", "--json").json()
    assert found["applied"]["kept"] == ["profile"]
    assert (folder / "config.toml").read_text() == f'profile = "{value}"\n'


@pytest.mark.parametrize("text", ["threads = ", "unknown = 1\n", "[table]\n", "threads = -1\n"])
def test_apply_leaves_a_wrong_configuration_untouched(run: Run, folder: Path, text: str) -> None:
    (folder / "config.toml").write_text(text)
    outcome = run("doctor", "--apply", "--json")
    assert (outcome.code, outcome.json()["error"]["kind"]) == (2, "ConfigError")
    assert (folder / "config.toml").read_text() == text


def test_apply_to_a_file_that_would_become_too_large(run: Run, folder: Path) -> None:
    text = "#" * (config.MAX_FILE_BYTES - 10) + "\n"
    (folder / "config.toml").write_text(text)
    outcome = run("doctor", "--apply")
    assert outcome.code == 2
    assert "is larger than 65536 bytes" in outcome.err
    assert (folder / "config.toml").read_text() == text


def test_apply_where_nothing_can_be_written(run: Run, folder: Path, tmp_path: Path) -> None:
    outcome = run("doctor", "--apply", EDGE_AGENT_CONFIG_DIR="/proc/nowhere")
    assert outcome.code == 2
    assert "/proc/nowhere/config.toml: can't be written" in outcome.err
    assert "hint: run it as the user" in outcome.err
    (tmp_path / "elsewhere.toml").write_text("threads = 1\n")
    (folder / "config.toml").symlink_to(tmp_path / "elsewhere.toml")
    linked = run("doctor", "--apply")
    assert (linked.code, "is a link" in linked.err) == (2, True)
    assert (tmp_path / "elsewhere.toml").read_text() == "threads = 1\n"


def test_two_at_a_time_write_one_configuration(environment: dict[str, str], folder: Path) -> None:
    words = [sys.executable, "-m", "edge_agent", "doctor", "--apply", "--json"]
    both = [subprocess.Popen(words, env=environment, stdout=subprocess.PIPE) for _ in range(2)]
    assert [one.communicate(timeout=50)[0] != b"" for one in both] == [True, True]
    assert [one.returncode for one in both] == [0, 0]
    assert (folder / "config.toml").read_text().count("profile = ") == 1


# The checks themselves, on machines that aren't this one.

MACHINE = Machine("aarch64", "Cortex-A72", "Pi", ("asimd", "crc32"), 4, 3794, "6.6.31+rpt-rpi-v8")
BOTH = [EngineStatus("onnx", "1"), EngineStatus("tflite", "1")]
NONE = [EngineStatus("onnx", None, "missing", "install it"), EngineStatus("tflite", None, "no")]


def profile(name: str = "raspberry-pi-4") -> DeviceProfile:
    return select(name).profile


@pytest.mark.parametrize(
    ("name", "called", "arch", "status"),
    [
        ("raspberry-pi-4", ("raspberrypi,4-model-b", "brcm,bcm2711"), "aarch64", "pass"),
        ("raspberry-pi-4", (), "aarch64", "pass"),
        ("raspberry-pi-4", ("raspberrypi,5-model-b", "brcm,bcm2712"), "aarch64", "warn"),
        ("raspberry-pi-4", ("brcm,bcm2711",), "armv7l", "warn"),
        ("generic-arm64", ("raspberrypi,5-model-b",), "aarch64", "pass"),
        ("generic-riscv64", (), "aarch64", "warn"),
        ("generic", ("anything",), "s390x", "pass"),
    ],
)
def test_a_profile_of_another_board_is_told(
    name: str, called: tuple[str, ...], arch: str, status: str
) -> None:
    assert doctor_checks.board(profile(name), called, MACHINE._replace(arch=arch)).status == status


@pytest.mark.parametrize(
    ("release", "status"),
    [("6.6.31", "pass"), ("5.10", "pass"), ("5.4.0-1080-raspi", "fail"), ("custom", "warn")],
)
def test_kernels(release: str, status: str) -> None:
    assert doctor_checks.kernel(profile(), MACHINE._replace(kernel=release)).status == status


@pytest.mark.parametrize(
    ("board", "configured", "cpus", "status", "hint"),
    [
        (4, 0, 4, "pass", None),
        (0, 0, 1, "pass", None),
        (4, 0, 1, "warn", "CPUQuota="),
        (4, 1, 1, "pass", None),
        (4, 8, 4, "warn", "lower threads"),
    ],
)
def test_threads(board: int, configured: int, cpus: int, status: str, hint: str | None) -> None:
    check = doctor_checks.threads(board, configured, MACHINE._replace(cpus=cpus))
    assert check.status == status
    assert (hint is None) == (check.hint is None)
    assert (hint or "") in (check.hint or "")


@pytest.mark.parametrize(
    ("limit", "available", "status", "hint"),
    [
        (3794, 3000, "pass", ""),
        (3794, 200, "warn", "end what isn't needed"),
        (128, 100, "warn", "MemoryMax="),
        (None, None, "warn", ""),
        (None, 300, "pass", ""),
    ],
)
def test_memory(limit: int | None, available: int | None, status: str, hint: str) -> None:
    check = doctor_checks.memory(profile(), MACHINE._replace(memory_mib=limit), available)
    assert (check.status, hint in (check.hint or "")) == (status, True)


@pytest.mark.parametrize(
    ("found", "status", "hint"),
    [
        (BOTH, "pass", None),
        (NONE, "fail", "install it"),
        ([BOTH[0], NONE[1]], "warn", None),
        ([NONE[0], BOTH[1]], "pass", None),
    ],
)
def test_engines(found: list[EngineStatus], status: str, hint: str | None) -> None:
    check = doctor_checks.engines(profile(), found)
    assert (check.status, check.hint) == (status, hint)


def test_int8_counts_on_engines_that_are_there() -> None:
    matrix = profile().matrix({"asimd", "asimddp"})
    slow = profile().matrix(MACHINE.cpu_features)
    assert doctor_checks.int8(matrix, BOTH).status == "pass"
    assert doctor_checks.int8(matrix, NONE).status == "warn"
    assert doctor_checks.int8(slow, BOTH) == (
        "int8",
        "warn",
        "onnx: slow, tflite: slow",
        "INT8 may be no faster than FP32 here: engines are measured before they are used",
    )
