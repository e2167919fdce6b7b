"""The configuration: file, then environment; everything out of bounds is named."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from edge_agent import config
from edge_agent.errors import ConfigError
from edge_profiles import profile, profile_file

if TYPE_CHECKING:
    from .conftest import Python


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "etc").mkdir()
    return tmp_path / "etc"


def load(folder: Path, text: str | bytes = "", **environment: str) -> config.AgentConfig:
    (folder / "config.toml").write_bytes(text.encode() if isinstance(text, str) else text)
    return config.load({"EDGE_AGENT_CONFIG_DIR": str(folder), **environment})


def test_everything_at_once(folder: Path) -> None:
    text = """
        state_dir = "/srv/models"
        engine = "tflite"
        threads = 3
        max_image_mib = 8
        max_image_megapixels = 12
        profile = "raspberry-pi-4"
        engine_order = ["tflite"]
        min_available_mib = 0
        max_memory_mib = 700
        max_latency_ms = 90
    """
    assert load(folder, text) == config.AgentConfig(
        config_dir=folder,
        state_dir=Path("/srv/models"),
        engine="tflite",
        threads=3,
        max_image_mib=8,
        max_image_megapixels=12,
        profile="raspberry-pi-4",
        engine_order=("tflite",),
        min_available_mib=0,
        max_memory_mib=700,
        max_latency_ms=90,
    )
    assert load(folder, text).keyring_file == folder / "keyring.json"
    assert load(folder, text).keys_dir == folder / "keys"


def test_no_file_means_defaults(tmp_path: Path) -> None:
    made = config.load({"EDGE_AGENT_CONFIG_DIR": str(tmp_path / "none")})
    assert (made.engine, made.threads, made.max_image_mib) == ("auto", 0, 64)
    assert (made.profile, made.engine_order) == ("auto", ())
    assert (made.min_available_mib, made.max_memory_mib, made.max_latency_ms) == (None, None, None)


def test_the_environment_comes_after_the_file(folder: Path) -> None:
    text = 'state_dir = "/srv/a"\nengine = "tflite"\nthreads = 3'
    made = load(
        folder,
        text,
        EDGE_AGENT_STATE_DIR="/srv/b",
        EDGE_AGENT_ENGINE="onnx",
        EDGE_AGENT_THREADS="0",
    )
    assert (made.state_dir, made.engine, made.threads) == (Path("/srv/b"), "onnx", 0)
    named = load(folder, 'profile = "generic"', EDGE_AGENT_PROFILE="visionfive-2")
    assert named.profile == "visionfive-2"
    assert load(folder, 'profile = "generic"', EDGE_AGENT_PROFILE="auto").profile == "auto"
    assert load(folder, 'profile = "generic"', EDGE_AGENT_PROFILE="").profile == "generic"
    empty = load(folder, text, EDGE_AGENT_STATE_DIR="", EDGE_AGENT_ENGINE="", EDGE_AGENT_THREADS="")
    assert (empty.state_dir, empty.engine, empty.threads) == (Path("/srv/a"), "tflite", 3)


FILES = {
    "thread = 1": "unknown key 'thread'; known are cache, engine,",
    'config_dir = "/x"': "unknown key 'config_dir'",
    "[limits]\nthreads = 1": "unknown key 'limits'",
    '"\\u001b" = 1': r"unknown key '\x1b'",
    'engine = "torch"': "engine must be one of auto, onnx, tflite",
    'engine = ["onnx"]': "engine must be one of",
    "engine = 1": "engine must be one of",
    'engine = ""': "engine must be one of",
    "threads = -1": "threads must be a whole number from 0 to 1024",
    "threads = 1025": "threads must be",
    "threads = true": "threads must be",
    "threads = 2.0": "threads must be",
    'threads = "2"': "threads must be",
    f"threads = {'9' * 5000}": "is not valid TOML",
    "max_image_mib = 0": "max_image_mib must be a whole number from 1 to 4096",
    "max_image_mib = 4097": "max_image_mib must be",
    "max_image_megapixels = 0": "max_image_megapixels must be",
    "max_image_megapixels = 4097": "max_image_megapixels must be",
    'state_dir = "models"': "state_dir must be an absolute path",
    'state_dir = ""': "state_dir must be an absolute path",
    'state_dir = "~/models"': "state_dir must be an absolute path",
    "state_dir = 5": "state_dir must be an absolute path",
    'state_dir = "/a\\u0000b"': "state_dir must be an absolute path",
    "profile = 4": "profile must be auto or a profile's name",
    'profile = ""': "profile must be",
    'profile = "../x"': "profile must be",
    'profile = "Mine"': "profile must be",
    f'profile = "{"x" * 65}"': "profile must be",
    'engine_order = "onnx"': "engine_order must be a list of onnx, tflite, each at most once",
    'engine_order = ["auto"]': "engine_order must be",
    'engine_order = ["onnx", "onnx"]': "engine_order must be",
    'engine_order = [["onnx"]]': "engine_order must be",
    "min_available_mib = -1": "min_available_mib must be a whole number from 0 to 1048576",
    "min_available_mib = 1048577": "min_available_mib must be",
    "max_memory_mib = 0": "max_memory_mib must be a whole number from 1 to 1048576",
    "max_latency_ms = 0": "max_latency_ms must be a whole number from 1 to 600000",
    "max_latency_ms = 600001": "max_latency_ms must be",
    "serve = 5": "serve: must be a table",
    "[cache]\nmib = -1": "cache.mib: must be a whole number from 0 to 1048576, not -1",
    "[cache]\nsize = 1": "cache: unknown key 'size'; known are mib, ttl_s",
    "[serve.tenants.camera]": "serve.tenants: the name 'camera' must be uid:NUMBER, token:NAME",
    "threads = ": "is not valid TOML",
    "threads = 1\nthreads = 2": "is not valid TOML",
    "a = " + "[" * 20_000: "is not valid TOML",
    "#" * 65537: "is larger than 65536 bytes",
}


@pytest.mark.parametrize("text", FILES, ids=lambda text: text[:24])
def test_files_that_are_refused(folder: Path, text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(folder, text)
    assert FILES[text] in caught.value.message
    assert caught.value.path == str(folder / "config.toml")


@pytest.mark.parametrize("data", [b"\xff", b"threads = 1\x00", "threads = 1".encode("utf-16")])
def test_files_that_are_no_text(folder: Path, data: bytes) -> None:
    with pytest.raises(ConfigError, match="is not valid TOML"):
        load(folder, data)


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("EDGE_AGENT_THREADS", "-1"),
        ("EDGE_AGENT_THREADS", "1025"),
        ("EDGE_AGENT_THREADS", "two"),
        ("EDGE_AGENT_THREADS", "１２"),  # noqa: RUF001 - digits, but not ASCII's
        ("EDGE_AGENT_THREADS", " 2"),
        ("EDGE_AGENT_THREADS", "9" * 5000),
        ("EDGE_AGENT_ENGINE", "ONNX"),
        ("EDGE_AGENT_PROFILE", "../x"),
        ("EDGE_AGENT_PROFILE", "7"),
        ("EDGE_AGENT_STATE_DIR", "relative"),
        ("EDGE_AGENT_STATE_DIR", "7"),
    ],
)
def test_variables_that_are_refused_are_named(folder: Path, variable: str, value: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(folder, **{variable: value})
    assert caught.value.path == variable


@pytest.mark.parametrize("bounds", [0, 1024])
def test_bounds_are_inclusive(folder: Path, bounds: int) -> None:
    assert load(folder, f"threads = {bounds}").threads == bounds


def test_a_folder_in_the_files_place(folder: Path) -> None:
    (folder / "config.toml").mkdir()
    with pytest.raises(ConfigError, match="can't be read: Is a directory"):
        config.load({"EDGE_AGENT_CONFIG_DIR": str(folder)})


def test_a_file_in_the_folders_place(folder: Path) -> None:
    (folder / "config.toml").write_text("")
    with pytest.raises(ConfigError, match="can't be read: Not a directory"):
        config.load({"EDGE_AGENT_CONFIG_DIR": str(folder / "config.toml")})


def test_defaults_of_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    made = config.load({"EDGE_AGENT_CONFIG_DIR": str(tmp_path), "HOME": str(tmp_path)})
    assert made.state_dir == Path("/var/lib/edge-agent")


def test_defaults_of_anyone_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    home = {"HOME": str(tmp_path)}
    made = config.load(home)
    assert made.config_dir == tmp_path / ".config/edge-agent"
    assert made.state_dir == tmp_path / ".local/share/edge-agent"
    xdg = {"XDG_CONFIG_HOME": str(tmp_path / "c"), "XDG_DATA_HOME": str(tmp_path / "d")}
    made = config.load(home | xdg)
    assert made.config_dir == tmp_path / "c/edge-agent"
    assert made.state_dir == tmp_path / "d/edge-agent"
    # XDG Base Directory Specification: relative paths are to be ignored.
    assert config.load(home | {"XDG_CONFIG_HOME": "c", "XDG_DATA_HOME": "d"}) == config.load(home)
    assert config.load({}).state_dir == Path("/nonexistent/.local/share/edge-agent")


def test_profiles_and_configuration_know_the_same_engines_and_bounds() -> None:
    assert ("auto", *profile.ENGINES) == config.ENGINES
    shared = config._BOUNDS.keys() & profile_file._BOUNDS.keys()
    assert shared == {"threads", "min_available_mib", "max_latency_ms"}
    assert all(config._BOUNDS[key] == profile_file._BOUNDS[key] for key in shared)


def test_reading_the_configuration_is_light(python: Python) -> None:
    loaded = python.run(
        "import sys; from edge_agent import config;"
        "config.load({'EDGE_AGENT_CONFIG_DIR': '/nonexistent'});"
        "print(*(m for m in ('numpy', 'nacl', 'yaml', 'tomllib') if m in sys.modules))"
    )
    assert loaded.split() == []
