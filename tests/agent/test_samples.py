"""Which files of a folder are sample inputs, and which of many are taken."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from edge_agent.errors import BadInputError
from edge_agent.images import ImageLimits
from edge_agent.samples import files, request, spread
from tests.agent import models
from tests.agent.authoring.gate.drift_models import Memory

NAMES = ("a.png", "b.npy", "c.npz", "d.json", "e.txt", "f.JPG")


@pytest.mark.parametrize(
    ("document", "taken"),
    [
        (models.COLOUR, ["a.png", "c.npz", "f.JPG"]),
        (models.ROWS, ["b.npy", "c.npz", "d.json"]),
        (models.PAIR, ["c.npz", "d.json"]),
    ],
)
def test_what_a_model_takes(tmp_path: Path, document: models.Yaml, taken: list[str]) -> None:
    for name in NAMES:
        (tmp_path / name).touch()
    (tmp_path / "g.npz").mkdir()
    found = files(Memory(document), tmp_path, 10)
    assert [one.name for one in found] == taken
    assert files(Memory(document), tmp_path / taken[0], 10) == [tmp_path / taken[0]]


def test_a_folder_without_any(tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match="no input that this model takes") as caught:
        files(Memory(models.PAIR), tmp_path, 10)
    assert caught.value.hint == "it takes files that end in .npz, .json"


@pytest.mark.parametrize(
    ("there", "at_most", "taken"),
    [(0, 3, []), (2, 3, [0, 1]), (3, 3, [0, 1, 2]), (10, 3, [0, 3, 6]), (5, 4, [0, 1, 2, 3])],
)
def test_they_are_evenly_spread(there: int, at_most: int, taken: list[int]) -> None:
    given = [Path(str(index)) for index in range(there)]
    assert spread(given, at_most) == [given[index] for index in taken]


def test_each_of_several_inputs_needs_a_name(tmp_path: Path) -> None:
    """One array that fits both would feed both."""
    model, limits = Memory(models.PAIR), ImageLimits()
    array = np.array([[1, 2, 3, 4]], np.float32)
    np.save(tmp_path / "one.npy", array)
    np.savez(tmp_path / "one.npz", array)
    np.savez(tmp_path / "left.npz", left=array)
    (tmp_path / "one.json").write_text("[[1, 2, 3, 4]]")
    for name in ("one.npy", "one.npz", "left.npz", "one.json"):
        with pytest.raises(BadInputError, match="for each of the inputs left, right"):
            request(model, tmp_path / name, limits)
    np.savez(tmp_path / "both.npz", left=array, right=2 * array)
    made = request(model, tmp_path / "both.npz", limits)
    assert [made.tensors[name].sum() for name in ("left", "right")] == [10, 20]
    (tmp_path / "both.json").write_text('{"left": [[1, 2, 3, 4]], "right": [[2, 4, 6, 8]]}')
    made = request(model, tmp_path / "both.json", limits)
    assert [made.tensors[name].sum() for name in ("left", "right")] == [10, 20]
