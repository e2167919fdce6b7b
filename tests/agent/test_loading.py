"""Which engine runs a bundle, when it is measured, and what it is handed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from edge_agent import keyrings
from edge_agent.bundles import open_bundle
from edge_agent.description import EngineFile
from edge_agent.errors import EngineUnavailableError, GoldenMismatchError, ModelFileError
from edge_agent.types import Request
from edge_signing.errors import BundleChanged
from edge_signing.trust import Purpose

from . import models
from .conftest import NOW, Bench
from .fakes import FakeBackend, zeros

if TYPE_CHECKING:
    from collections.abc import Mapping

    from edge_agent.bundles import Bundle
    from edge_agent.types import Tensor

    from .conftest import Publisher

ENGINES = [{"engine": "onnx", "file": "model.onnx"}, {"engine": "tflite", "file": "model.tflite"}]
BOTH = models.changed(models.PAIR, "engines", ENGINES)
SLOW_MS = 20.0


def fakes(**changes: FakeBackend) -> dict[str, FakeBackend]:
    return {"onnx": FakeBackend(), "tflite": FakeBackend()} | changes


@pytest.fixture
def pair(publisher: Publisher) -> Bundle:
    return publisher.bundle(BOTH, model_tflite=b"tflite")


def ask(**tensors: list[list[float]]) -> Request:
    arrays = {name: np.array(value, "f4") for name, value in tensors.items()}
    return Request("m", "s", None, arrays)


PAIR = {"left": [[1.0, 2, 3, 4]], "right": [[2.0, 2, 2, -1]]}


@pytest.mark.parametrize(("slow", "chosen"), [("onnx", "tflite"), ("tflite", "onnx")])
def test_the_faster_engine_is_chosen_once(
    tmp_path: Path, pair: Bundle, slow: str, chosen: str
) -> None:
    engines = fakes(**{slow: FakeBackend(busy_ms=SLOW_MS)})
    bench = Bench(tmp_path / "state", engines)
    model = bench.loader.load(pair, "auto")
    assert model.engine == chosen
    assert model.run(ask(**PAIR)).outputs["product"].tolist() == [[2, 4, 6, -4]]
    assert bench.told[0] == "trying acme/pair on onnx and tflite"
    assert bench.told[1].endswith(f": using {chosen} from now on")
    again = bench.loader.load(pair, "auto")
    assert again.engine == chosen
    assert again.run(ask(**PAIR)).engine == chosen
    assert len(bench.told) == 2
    # What was measured is used; the second load made one session only.
    assert [len(engines[chosen].loaded), len(engines[slow].loaded)] == [2, 1]
    assert {threads for engine in engines.values() for _, threads in engine.loaded} == {1}


def test_it_is_measured_again_when_an_engine_was_replaced(tmp_path: Path, pair: Bundle) -> None:
    engines = fakes(tflite=FakeBackend(busy_ms=SLOW_MS))
    assert Bench(tmp_path / "state", engines).loader.load(pair, "auto").engine == "onnx"
    updated = fakes(onnx=FakeBackend(busy_ms=SLOW_MS, version="2"))
    bench = Bench(tmp_path / "state", updated)
    assert bench.loader.load(pair, "auto").engine == "tflite"
    assert len(bench.told) == 2


def test_a_remembered_engine_that_is_gone_is_not_used(tmp_path: Path, pair: Bundle) -> None:
    bench = Bench(tmp_path / "state", engines := fakes(tflite=FakeBackend(busy_ms=SLOW_MS)))
    assert bench.loader.load(pair, "auto").engine == "onnx"
    engines["onnx"].problem = "was removed"
    assert bench.loader.load(pair, "auto").engine == "tflite"


def test_a_new_engine_is_measured_too(tmp_path: Path, pair: Bundle) -> None:
    engines = fakes(onnx=FakeBackend(busy_ms=SLOW_MS), tflite=FakeBackend(version=None))
    assert Bench(tmp_path / "state", engines).loader.load(pair, "auto").engine == "onnx"
    engines["tflite"] = FakeBackend()
    assert Bench(tmp_path / "state", engines).loader.load(pair, "auto").engine == "tflite"


def test_an_engine_that_answers_wrongly_is_never_chosen(tmp_path: Path, pair: Bundle) -> None:
    engines = fakes(onnx=FakeBackend(zeros), tflite=FakeBackend(busy_ms=SLOW_MS))
    bench = Bench(tmp_path / "state", engines)
    assert bench.loader.load(pair, "auto").engine == "tflite"
    assert (
        "onnx: wrong answer to the golden input on onnx: the output 'product' is off"
        in (bench.told[1])
    )
    with pytest.raises(GoldenMismatchError, match="wrong answer to the golden input on onnx"):
        bench.loader.load(pair, "onnx")


def test_an_engine_that_refuses_the_file_is_never_chosen(tmp_path: Path, pair: Bundle) -> None:
    bench = Bench(tmp_path / "state", fakes(onnx=FakeBackend(refuses="no such operator")))
    assert bench.loader.load(pair, "auto").engine == "tflite"
    assert "onnx: model.onnx: no such operator" in bench.told[1]


def test_every_engine_answers_wrongly(tmp_path: Path, pair: Bundle) -> None:
    bench = Bench(tmp_path / "state", fakes(onnx=FakeBackend(zeros), tflite=FakeBackend(zeros)))
    with pytest.raises(GoldenMismatchError, match=r"onnx: wrong answer.*tflite: wrong answer"):
        bench.loader.load(pair, "auto")
    assert not (tmp_path / "state").exists()


def test_one_engine_alone_must_answer_rightly_once(tmp_path: Path, pair: Bundle) -> None:
    missing = FakeBackend(problem="not installed", version=None)
    bench = Bench(tmp_path / "state", engines := fakes(onnx=missing))
    for _ in range(2):
        assert bench.loader.load(pair, "auto").engine == "tflite"
    assert bench.told[0] == "trying acme/pair on tflite"
    assert len(bench.told) == 2
    assert len(engines["tflite"].loaded[0][0].inputs) > 1
    assert bench.loader.usable_engines(pair) == [EngineFile(engine="tflite", file="model.tflite")]


def test_no_engine_is_there(tmp_path: Path, pair: Bundle) -> None:
    engines = fakes(onnx=FakeBackend(problem="no onnx"), tflite=FakeBackend(problem="no tflite"))
    with pytest.raises(EngineUnavailableError, match="onnx: no onnx; tflite: no tflite"):
        Bench(tmp_path / "state", engines).loader.load(pair, "auto")


def test_a_named_engine_is_used_or_refused_never_replaced(
    tmp_path: Path, pair: Bundle, publisher: Publisher
) -> None:
    engines = fakes(onnx=FakeBackend(busy_ms=SLOW_MS), tflite=FakeBackend(problem="not here"))
    bench = Bench(tmp_path / "state", engines)
    assert bench.loader.load(pair, "onnx").engine == "onnx"
    with pytest.raises(EngineUnavailableError, match="not here"):
        bench.loader.load(pair, "tflite")
    only_onnx = publisher.bundle(models.PAIR, "other")
    with pytest.raises(EngineUnavailableError, match="no file for the engine tflite; it has one"):
        bench.loader.load(only_onnx, "tflite")
    assert bench.told[0] == "trying acme/pair on onnx"


def test_a_choice_that_cannot_be_kept_is_told(tmp_path: Path, pair: Bundle) -> None:
    (tmp_path / "state").write_bytes(b"")
    bench = Bench(tmp_path / "state", fakes(onnx=FakeBackend(busy_ms=SLOW_MS)))
    assert bench.loader.load(pair, "auto").engine == "tflite"
    assert "the choice can't be kept, so it is measured again next time" in bench.told[-1]


def test_open_axes_without_a_golden_input_cannot_be_compared(
    tmp_path: Path, publisher: Publisher
) -> None:
    bundle = publisher.bundle(models.changed(models.ROWS, "engines", ENGINES), model_tflite=b"t")
    bench = Bench(tmp_path / "state", fakes(onnx=FakeBackend(busy_ms=SLOW_MS)))
    assert bench.loader.load(bundle, "auto").engine == "onnx"  # the publisher's first
    assert "open axes and no golden input" in bench.told[0]
    assert not (tmp_path / "state").exists()


def test_fixed_axes_without_a_golden_input_are_measured_with_blanks(
    tmp_path: Path, publisher: Publisher
) -> None:
    document = models.changed(BOTH, "golden", ...)
    document["inputs"][0]["range"] = [2, 6]
    bundle = publisher.bundle(document, model_tflite=b"t")
    bench = Bench(tmp_path / "state", engines := fakes(onnx=FakeBackend(busy_ms=SLOW_MS)))
    assert bench.loader.load(bundle, "auto").engine == "tflite"
    blank = engines["tflite"].loaded[0][0].inputs[0]
    assert {name: value.tolist() for name, value in blank.items()} == {
        "left": [[4, 4, 4, 4]],
        "right": [[0, 0, 0, 0]],
    }


@pytest.mark.parametrize(
    "dtype", ["float16", "float64", "uint8", "int8", "uint16", "int16", "int32", "int64", "bool"]
)
def test_blanks_of_every_type_are_within_the_range(
    tmp_path: Path, publisher: Publisher, dtype: str
) -> None:
    document = models.changed(BOTH, "golden", ...)
    document["inputs"][0] |= {"dtype": dtype, "range": [0, 1]}
    bundle = publisher.bundle(document, model_tflite=b"t")
    bench = Bench(tmp_path / "state", fakes())
    for found in bench.loader._measure_all(bundle, bench.loader.usable_engines(bundle), {}):
        assert found.problem is None


def test_an_image_reaches_each_engine_in_its_layout(tmp_path: Path, publisher: Publisher) -> None:
    document = models.changed(
        models.COLOUR, "engines", [ENGINES[0], ENGINES[1] | {"layout": "NHWC"}]
    )
    bundle = publisher.bundle(document, model_tflite=b"t")
    bench = Bench(tmp_path / "state", engines := fakes())
    sessions: dict[str, object] = {}
    found = bench.loader._measure_all(bundle, bench.loader.usable_engines(bundle), sessions)  # type: ignore[arg-type]
    assert [one.problem for one in found] == [None, None]
    assert list(sessions) == ["onnx", "tflite"]
    shapes = {"onnx": (1, 3, 8, 8), "tflite": (1, 8, 8, 3)}
    for name, shape in shapes.items():
        assert engines[name].loaded[0][0].inputs[0]["image"].shape == shape
    for engine in ("onnx", "tflite"):
        result = bench.loader.load(bundle, engine).run(Request("m", "s", models.png((0, 0, 255))))
        assert (result.engine, result.labels[0].label) == (engine, "blue")
        assert engines[engine].loaded[-1][0].inputs[-1]["image"].shape == shapes[engine]


def test_the_engine_gets_verified_bytes_or_none(tmp_path: Path, publisher: Publisher) -> None:
    folder = publisher.sign(models.PAIR)
    bundle = publisher.open(folder)
    (folder / "model.onnx").write_bytes(models.rows())
    engines = fakes()
    with pytest.raises(BundleChanged):
        Bench(tmp_path / "state", engines).loader.load(bundle, "onnx")
    assert engines["onnx"].loaded == []


def test_a_named_engines_refusal_is_the_answer(tmp_path: Path, pair: Bundle) -> None:
    bench = Bench(tmp_path / "state", fakes(onnx=FakeBackend(refuses="damaged")))
    for _ in range(2):
        with pytest.raises(ModelFileError, match=r"model\.onnx: damaged"):
            bench.loader.load(pair, "onnx")


def test_the_number_of_threads_is_handed_on(tmp_path: Path, pair: Bundle) -> None:
    from msgspec import structs

    engines = fakes()
    loader = structs.replace(Bench(tmp_path / "state", engines).loader, threads=3)
    loader.load(pair, "onnx").run(ask(**PAIR))
    assert {threads for _, threads in engines["onnx"].loaded} == {3}
    # Other threads, other times: what was measured with one doesn't count for three.
    assert loader.fingerprint() != structs.replace(loader, threads=1).fingerprint()


def test_the_demo_on_the_real_engines(bench: Bench) -> None:
    with open_bundle(keyrings.DEMO_BUNDLE, keyrings.shipped(), NOW, Purpose.LOAD) as bundle:
        model = bench.loader.load(bundle, "auto")
        told = bench.told[1]
        assert "onnx " in told and "tflite " in told and "problem" not in told
        assert model.engine in ("onnx", "tflite")
        times = bench.memory.recall(bundle.ref.digest, bench.loader.fingerprint())
        assert set(times) == {"onnx", "tflite"}
        image = (keyrings.DEMO_BUNDLE / "golden" / "coffee.jpg").read_bytes()
        assert model.run(Request("m", "s", image)).labels[0].index == 967


def test_a_small_bundle_on_the_real_engine(bench: Bench, publisher: Publisher) -> None:
    found: Mapping[str, Tensor] = (
        bench.loader.load(publisher.bundle(models.PAIR), "auto").run(ask(**PAIR)).outputs
    )
    assert found["product"].tolist() == [[2, 4, 6, -4]]
