"""Profiles' files: every shipped one loads; whatever is wrong in one is named."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from edge_profiles import profile_file
from edge_profiles.errors import ProfileError
from edge_profiles.profile import ENGINES, PRECISIONS
from edge_profiles.selection import SHIPPED

GOOD = (SHIPPED / "raspberry-pi-4.toml").read_text()
BOARDS = {
    "generic",
    "generic-arm64",
    "generic-riscv64",
    "generic-x86-64",
    "jetson-orin-nano",
    "raspberry-pi-4",
    "raspberry-pi-5",
    "visionfive-2",
}


def parse(text: str, name: str = "mine.toml") -> None:
    profile_file.parse(text, Path(name))


def test_the_boards() -> None:
    assert {file.stem for file in SHIPPED.glob("*")} == BOARDS


@pytest.mark.parametrize("name", sorted(BOARDS))
def test_every_profile_loads(name: str) -> None:
    file = SHIPPED / f"{name}.toml"
    profile = profile_file.parse(profile_file.read_file(file), file)
    assert (profile.name, profile.max_memory_mib) == (name, None)
    assert [list(row) for row in profile.precisions.values()] == [list(PRECISIONS)] * len(ENGINES)
    # A board's profile says by what it is recognised; a generic one is chosen by architecture.
    assert bool(profile.compatible) != name.startswith("generic")


def test_no_two_shipped_profiles_are_for_one_board() -> None:
    names = []
    for file in SHIPPED.glob("*.toml"):
        profile = profile_file.parse(file.read_text(), file)
        names += [*profile.compatible, *profile.models]
    assert len(names) == len(set(names))


def test_toml_of_any_form() -> None:
    text = GOOD.replace("threads = 4", "threads = 0x04 # hexadecimal").replace(
        'title = "Raspberry Pi 4"', "title = '''Raspberry Pi 4'''"
    )
    file = Path("raspberry-pi-4.toml")
    assert profile_file.parse(text, file) == profile_file.parse(GOOD, file)


def changed(old: str, new: str) -> str:
    assert GOOD.count(old) >= 1
    return GOOD.replace(old, new, 1)


WRONG = {
    "threads = 4\n" + GOOD: "is not valid TOML",
    "a = " + "[" * 20_000: "is not valid TOML",
    changed("threads = 4\n", ""): "lacks the key threads",
    changed("threads", "thread"): "unknown key 'thread'; known are arch,",
    changed("threads = 4", "threads = -1"): "threads must be a whole number from 0 to 1024",
    changed("threads = 4", "threads = 1025"): "threads must be",
    changed("threads = 4", "threads = true"): "threads must be",
    changed("threads = 4", 'threads = "4"'): "threads must be",
    changed("threads = 4", "threads = 4.0"): "threads must be",
    changed("min_available_mib = 256", "min_available_mib = 1048577"): "min_available_mib must be",
    changed("max_memory_percent = 75", "max_memory_percent = 0"): "max_memory_percent must be",
    changed("max_memory_percent = 75", "max_memory_percent = 101"): "max_memory_percent must be",
    changed("max_latency_ms = 500", "max_latency_ms = 0"): "max_latency_ms must be",
    changed("max_latency_ms = 500", "max_latency_ms = 600001"): "max_latency_ms must be",
    changed('min_kernel = "5.10"', "min_kernel = 5.10"): "min_kernel must be",
    changed('min_kernel = "5.10"', 'min_kernel = "5"'): "min_kernel must be",
    changed('min_kernel = "5.10"', 'min_kernel = "5.10.1"'): "min_kernel must be",
    changed('min_kernel = "5.10"', 'min_kernel = "5.1000"'): "min_kernel must be",
    changed('arch = "aarch64"', 'arch = "arm64"'): "arch must be one of aarch64, riscv64,",
    changed('title = "Raspberry Pi 4"', 'title = ""'): "title must be one printable line",
    changed('title = "Raspberry Pi 4"', 'title = "a\\u001b"'): "title must be one printable line",
    changed('title = "Raspberry Pi 4"', f'title = "{"x" * 129}"'): "title must be",
    changed('["tflite", "onnx"]', "[]"): "engines must be a list of onnx, tflite",
    changed('["tflite", "onnx"]', '"onnx"'): "engines must be a list",
    changed('["tflite", "onnx"]', '["onnx", "onnx"]'): "engines must be a list",
    changed('["tflite", "onnx"]', '["torch"]'): "engines must be a list",
    changed("compatible = [", "compatible = [1, "): "compatible must be a list",
    changed("[precisions.tflite]", "[precisions.torch]"): "unknown key 'precisions.torch'",
    GOOD.partition("[precisions.tflite]")[0]: "lacks the key precisions.tflite",
    GOOD.partition("[precisions.onnx]")[0] + "precisions = 1": "precisions must be a table",
    changed("fp16", "fp8"): "unknown key 'precisions.onnx.fp8'",
    changed('fp16 = ["asimdhp"]\n', ""): "lacks the key precisions.onnx.fp16",
    changed('fp16 = ["asimdhp"]', "fp16 = []"): "precisions.onnx.fp16 must be native, slow or",
    changed('fp16 = ["asimdhp"]', 'fp16 = "fast"'): "precisions.onnx.fp16 must be",
    changed('fp16 = ["asimdhp"]', "fp16 = [1]"): "precisions.onnx.fp16 must be a list",
    changed('fp16 = ["asimdhp"]', f"fp16 = {['x'] * 65}"): "precisions.onnx.fp16 must be a list",
}


@pytest.mark.parametrize("text", WRONG, ids=lambda text: WRONG[text][:40])
def test_what_is_refused(text: str) -> None:
    with pytest.raises(ProfileError) as caught:
        parse(text)
    assert WRONG[text] in caught.value.message
    assert caught.value.path == "mine.toml"
    assert str(caught.value).startswith("mine.toml: ")


@pytest.mark.parametrize(
    "name", ["", "Mine", "my_board", "1st", "-a", "a-", "a b", "ä", "x" * 65, "a\x1b"]
)
def test_names_that_are_refused(name: str) -> None:
    assert not profile_file.is_name(name)
    with pytest.raises(ProfileError, match="is no name for a profile"):
        parse(GOOD, f"{name}.toml")


def test_files_that_are_refused(tmp_path: Path) -> None:
    (tmp_path / "large").write_bytes(b"#" * (profile_file.MAX_FILE_BYTES + 1))
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    os.mkfifo(tmp_path / "pipe")
    for name, message in {
        "large": "is larger than 16384 bytes",
        "binary": "is not UTF-8",
        "pipe": "is not a regular file",
        "none": "can't be read: No such file",
    }.items():
        with pytest.raises(ProfileError, match=message) as caught:
            profile_file.read_file(tmp_path / name)
        assert caught.value.path == str(tmp_path / name)


DEVICES = (Path(__file__).parents[2] / "docs/DEVICES.md").read_text()


@pytest.mark.parametrize("name", sorted(BOARDS))
def test_every_profile_is_documented_with_its_figures(name: str) -> None:
    profile = profile_file.parse((SHIPPED / f"{name}.toml").read_text(), Path(name))
    row = re.search(rf"^\| `{name}` \|.*$", DEVICES, re.MULTILINE)
    assert row
    assert [cell.strip() for cell in row[0].split("|")[3:7]] == [
        str(profile.threads or "no limit"),
        ", ".join(profile.engines),
        f"{profile.min_available_mib} MiB / {profile.max_memory_percent} % / "
        f"{profile.max_latency_ms} ms",
        ".".join(map(str, profile.min_kernel)),
    ]


def test_the_documented_example_is_a_profile() -> None:
    example = re.search(r"^```toml\n(.*?)^```", DEVICES, re.MULTILINE | re.DOTALL)
    assert example
    profile = profile_file.parse(example[1], Path("acme-gateway.toml"))
    assert (profile.title, profile.min_kernel) == ("Acme gateway", (5, 15))
