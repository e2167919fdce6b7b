"""build.toml, read and changed."""

from __future__ import annotations

from pathlib import Path

import pytest

from edge_agent.authoring.recipe import Recipe, change_recipe, read_recipe
from edge_agent.errors import ConfigError


def test_paths_with_signs_of_their_own_survive(tmp_path: Path) -> None:
    reference, include = 'a"b\\c é\n.onnx', ("x'y", "\U0001f4f7", "\x7f\x1f")
    change_recipe(tmp_path, reference=reference, include=include)
    assert read_recipe(tmp_path) == Recipe(reference=reference, include=include)


def test_what_else_stands_there_stays(tmp_path: Path) -> None:
    file = tmp_path / "build.toml"
    file.write_text("# why\ninputs = 'photos'  # field\nreference='a.onnx'\n\n# end")
    change_recipe(tmp_path, reference="b.onnx", include=("LICENSE",))
    assert file.read_text() == (
        "# why\ninputs = 'photos'  # field\nreference = \"b.onnx\"\n\n# end\n"
        'include = ["LICENSE"]\n'
    )


@pytest.mark.parametrize(
    "text",
    ['include = [\n "a",\n "b"\n]\n', 'inputs = """\ninclude = ["c"]\n"""\n', "x = 1\n"],
)
def test_what_can_not_be_changed_is_left(tmp_path: Path, text: str) -> None:
    (tmp_path / "build.toml").write_text(text)
    with pytest.raises(ConfigError):
        change_recipe(tmp_path, include=("LICENSE",))
    assert (tmp_path / "build.toml").read_text() == text


def test_a_path_that_is_no_text_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="isn't UTF-8"):
        change_recipe(tmp_path, inputs="\udcff")
    assert not (tmp_path / "build.toml").exists()


@pytest.mark.parametrize("key", ["reference", "inputs", "include"])
def test_a_path_that_no_file_can_have_is_refused(tmp_path: Path, key: str) -> None:
    value = '["a\\u0000b"]' if key == "include" else '"a\\u0000b"'
    (tmp_path / "build.toml").write_text(f"{key} = {value}\n")
    with pytest.raises(ConfigError, match=key):
        read_recipe(tmp_path)


def test_nothing_is_an_empty_one(tmp_path: Path) -> None:
    assert read_recipe(tmp_path) == Recipe()
