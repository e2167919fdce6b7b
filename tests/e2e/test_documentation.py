"""What is there is documented, and what is documented is there."""

from __future__ import annotations

import inspect
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import typer
from msgspec.inspect import DictType, StructType, type_info
from PIL import Image

from edge_agent import __released__, __version__, config, errors
from edge_agent.cli import failures
from edge_agent.cli.main import NOUNS, application
from edge_agent.serve_config import TABLES
from edge_signing import errors as signing_errors
from tests.agent.authoring.quantising import float_models

from .conftest import ROOT, Run


def text(name: str) -> str:
    return (ROOT / name).read_text()


def commands() -> Iterator[tuple[str, Any]]:
    def walk(command: Any, path: tuple[str, ...]) -> Iterator[tuple[str, Any]]:
        children = getattr(command, "commands", None)
        if children is None:
            yield " ".join(path), command
        else:
            for name, child in children.items():
                yield from walk(child, (*path, name))

    yield from walk(typer.main.get_command(application([])), ())


@pytest.mark.parametrize(("name", "command"), list(commands()))
def test_command_is_documented_and_has_help(name: str, command: Any) -> None:
    assert f"`{name} " in text("docs/CLI.md") or f"`{name}`" in text("docs/CLI.md")
    assert command.help
    for parameter in command.params:
        if parameter.name != "help":
            assert parameter.help, f"{name}: {parameter.name}"


@pytest.mark.parametrize(
    "key", sorted(set(config.AgentConfig.__struct_fields__) - {"config_dir", "runtime_dir"})
)
def test_configuration_key_is_documented(key: str) -> None:
    assert f"| `{key}` |" in text("docs/CONFIGURATION.md")


def tables(name: str, info: Any) -> Iterator[tuple[str, Any]]:
    """A table of config.toml and those inside it; where an owner names them, NAME stands for it."""
    yield name, info
    for field in info.fields:
        for kind in getattr(field.type, "types", [field.type]):
            if isinstance(kind, StructType):
                yield from tables(f"{name}.{field.name}", kind)
            elif isinstance(kind, DictType):
                yield from tables(f"{name}.{field.name}.NAME", kind.value_type)


@pytest.mark.parametrize(
    ("name", "info"),
    [one for key, kind in TABLES.items() for one in tables(key, type_info(kind))],
)
def test_keys_of_tables_are_documented(name: str, info: Any) -> None:
    page = text("docs/CONFIGURATION.md")
    (rows,) = re.findall(
        rf"^\| key in `\[{re.escape(name)}\]` \|.*\n\|.*\n((?:\|.*\n)+)", page, re.MULTILINE
    )
    documented = dict(re.findall(r"^\| `(\w+)` \| (.*?) \|", rows, re.MULTILINE))
    assert list(documented) == [field.name for field in info.fields]
    for field in info.fields:
        if isinstance(field.default, str | int | float):
            shown = field.default
            number = int(shown) if isinstance(shown, float) and shown.is_integer() else shown
            assert documented[field.name] == f"`{json.dumps(number)}`", field.name


def test_environment_is_documented() -> None:
    files = text("edge_agent/config.py") + text("edge_agent/socket_places.py")
    used = set(re.findall(r"EDGE_AGENT_[A-Z_]+", files))
    assert used <= set(re.findall(r"EDGE_AGENT_[A-Z_]+", text("docs/CONFIGURATION.md")))


def leaves(module: Any, base: type) -> list[type]:
    found = [one for one in vars(module).values() if inspect.isclass(one) and issubclass(one, base)]
    return [one for one in found if one is not base]


@pytest.mark.parametrize(
    "error",
    leaves(errors, errors.AgentError) + leaves(signing_errors, signing_errors.SigningError),
)
def test_error_is_documented_with_its_exit_code(error: type[Exception]) -> None:
    rows = re.findall(r"^\| (\d) \|.*\| (.*) \|$", text("docs/CLI.md"), re.MULTILINE)
    documented = {name: int(code) for code, row in rows for name in re.findall(r"`(\w+)`", row)}
    assert documented[error.__name__] == failures.exit_code(error.__new__(error))


def test_release_date_stands_in_the_changelog() -> None:
    assert f"## {__version__} ({__released__})" in text("CHANGELOG.md")


def test_order_of_imports_is_documented() -> None:
    contracts = tomllib.loads(text("pyproject.toml"))["tool"]["importlinter"]["contracts"]
    page = " ".join(text("docs/ARCHITECTURE.md").split())
    layers = [one["layers"] for one in contracts if one["type"] == "layers"]
    assert " -> ".join(layers[0]) in page
    assert " -> ".join(layers[1][: layers[1].index("lint") + 1]) in page


def test_links_lead_somewhere() -> None:
    for page in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]:
        for link in re.findall(r"\]\((?!https?:)([^)]+)\)", page.read_text()):
            file, _, anchor = link.partition("#")
            target = page.parent / file if file else page
            assert target.exists(), f"{page.name}: {link}"
            assert not anchor or anchor in anchors(target.read_text()), f"{page.name}: {link}"


def anchors(markdown: str) -> set[str]:
    """The anchors that GitHub gives a page's headings."""
    headings = re.findall(r"^#+ (.*)$", markdown, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", one.lower()).replace(" ", "-") for one in headings}


def readme_commands() -> list[str]:
    blocks = re.findall(r"^```sh\n(.*?)^```", text("README.md"), re.MULTILINE | re.DOTALL)
    return [line for block in blocks for line in block.splitlines()]


def test_first_two_commands_run_the_job_and_the_checks() -> None:
    assert readme_commands()[:2] == ["scripts/edge-agent infer photos/coffee.png", "scripts/check"]
    assert "\nscripts/check" in text(".ci/run")


@pytest.mark.timeout(300)
def test_every_readme_command_runs(environment: dict[str, str], tmp_path: Path) -> None:
    """In order, in a folder that looks like the clone; the checks themselves are running now."""
    for name in ("scripts", "photos", "edge_agent"):
        (tmp_path / name).symlink_to(ROOT / name)
    lines, service = readme_commands(), section_commands("As a service")
    first = lines.index(service[0])
    assert lines[first : first + len(service)] == service
    del lines[first : first + len(service)]  # these have a test of their own
    for line in lines:
        if line == "scripts/check" or "~/edge-agent" in line:
            continue
        done = subprocess.run(
            ["sh", "-c", line], cwd=tmp_path, env=environment, capture_output=True, text=True
        )
        assert done.returncode == 0, f"{line}\n{done.stderr}"
        if "coffee" in line and " infer " in f" {shlex.join(shlex.split(line))} ":
            assert "espresso" in done.stdout


def section_commands(title: str) -> list[str]:
    command = ["scripts/readme-commands", title]
    return subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.splitlines()


@pytest.mark.skipif(shutil.which("curl") is None, reason="the README asks with curl")
@pytest.mark.timeout(120)
def test_service_commands_run(environment: dict[str, str], tmp_path: Path) -> None:
    """In one shell, as a newcomer pastes them: one runs in the background, and is ended."""
    for name in ("scripts", "photos"):
        (tmp_path / name).symlink_to(ROOT / name)
    lines = section_commands("As a service")
    assert len([line for line in lines if line.endswith("&")]) == 1
    assert lines[-1] == "kill $!"
    log = tmp_path / "log"
    with log.open("w") as errors, TemporaryDirectory() as short:  # names of sockets are short
        shell = subprocess.Popen(
            ["sh", "-ec", "\n".join([*lines, "wait $!"])],
            cwd=tmp_path,
            env=environment | {"TMPDIR": short},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            start_new_session=True,
        )
        try:
            shown, _ = shell.communicate(timeout=100)
        finally:
            with suppress(ProcessLookupError):  # what a failed line left behind
                os.killpg(shell.pid, signal.SIGKILL)
    assert shell.returncode == 0, log.read_text()
    assert shown.count("espresso") == 3
    assert shown.count(", by the daemon)") == 2
    assert "+ objects -> demo/efficientnet-lite0" in shown


@pytest.mark.timeout(300)
def test_every_authoring_command_runs(environment: dict[str, str], tmp_path: Path) -> None:
    """In order, with a small model, its labels and a few pictures under the page's names."""
    (tmp_path / "model.onnx").write_bytes(float_models.cnn().SerializeToString())
    (tmp_path / "labels.txt").write_text("red\ngreen\nblue\ngrey\n")
    for folder in ("photos", "others"):
        (tmp_path / folder).mkdir()
        for name in ("red", "green", "blue", "orange", "grey", "navy", "gold", "teal"):
            noise = Image.effect_noise((64, 48), 40).convert("RGB")
            picture = Image.blend(noise, Image.new("RGB", noise.size, name), 0.5)
            picture.save(tmp_path / f"{folder}/{name}.png")
    path = {"PATH": f"{Path(sys.executable).parent}:{environment['PATH']}"}
    blocks = re.findall(r"^```sh\n(.*?)^```", text("docs/AUTHORING.md"), re.MULTILINE | re.DOTALL)
    lines = [line for block in blocks for line in block.splitlines()]
    assert len(lines) >= 10
    for line in lines:
        done = subprocess.run(
            ["sh", "-c", line], cwd=tmp_path, env=environment | path, capture_output=True, text=True
        )
        assert done.returncode == 0, f"{line}\n{done.stdout}{done.stderr}"
        if " infer " in line:
            assert "(acme/camera 0.1.0, onnx" in done.stdout
    assert (tmp_path / "layers.svg").stat().st_size > 0


def test_install_commands_run_in_the_wheel_test() -> None:
    """They need the network: scripts/smoke-wheel takes them from the README, and CI runs it."""
    taken = section_commands("Install it")
    assert len(taken) == 3
    assert taken == [line for line in readme_commands() if "~/" in line]
    assert "scripts/readme-commands 'Install it'" in text("scripts/smoke-wheel")
    assert "\nscripts/smoke-wheel" in text(".ci/run")


def test_help_and_version(run: Run) -> None:
    assert run("--version").out.split() == ["edge-agent", __version__]
    for noun in ([], *([one] for one in NOUNS)):
        assert "Usage" in run(*noun, "--help").out


def test_completion_knows_the_commands(run: Run) -> None:
    words = {"COMP_WORDS": "edge-agent bundle ver", "COMP_CWORD": "2"}
    outcome = run(_EDGE_AGENT_COMPLETE="complete_bash", **words)
    assert "verify" in outcome.out
