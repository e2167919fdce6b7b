"""The picture is well-formed, whole and the same every time."""

from __future__ import annotations

import math
from xml.etree import ElementTree

import pytest
from msgspec.structs import replace

from edge_agent.description import Drift
from edge_agent.drift.picture import draw
from edge_agent.drift.report import DriftReport

from .reports import FINE, engine, layer, pair, report

SVG = "{http://www.w3.org/2000/svg}"


def parsed(made: DriftReport) -> ElementTree.Element:
    return ElementTree.fromstring(draw(made))


def bars(made: DriftReport) -> list[tuple[str, str, float]]:
    """Title, class and width of every bar."""
    found = []
    for group in parsed(made).iter(f"{SVG}g"):
        title, rect = group.find(f"{SVG}title"), group.find(f"{SVG}rect")
        assert title is not None
        assert rect is not None
        found.append((title.text or "", rect.attrib["class"], float(rect.attrib["width"])))
    return found


def test_one_bar_a_layer_in_their_order() -> None:
    made = report(engine(), layers=(layer("stem", 0.01), layer("head", 0.5), layer("tail", 0.1)))
    found = bars(made)
    assert [(title, kind) for title, kind, _ in found] == [
        ("stem 0.01", "bar"),
        ("head 0.5", "bar"),
        ("tail 0.1", "bar"),
    ]
    # 500 pixels for three decades, so that the smallest error has a bar too.
    assert [width for _, _, width in found] == [166.7, 449.8, 333.3]
    # The threshold judges none of them.
    assert {line.attrib["class"] for line in parsed(made).iter(f"{SVG}line")} == {"grid"}
    assert "dashed" not in draw(made).decode()


def test_without_layers_one_bar_an_engine_and_output() -> None:
    assert [title for title, _, _ in bars(report(engine(), engine("tflite")))] == [
        "onnx: y 0.2",
        "tflite: y 0.2",
    ]


def test_without_a_reference_one_bar_a_pair() -> None:
    """The threshold is for answers against the reference's, so it judges no pair."""
    made = report(engine(outputs={}), pairs=(pair(),), drift=Drift(max_relative_l2=0.01))
    assert [(title, kind) for title, kind, _ in bars(made)] == [("onnx / tflite: y 0.04", "bar")]


def test_nothing_to_draw_is_still_a_picture() -> None:
    assert bars(report()) == []


@pytest.mark.parametrize("error", [0.0, 1e-300, 1e-6, 1.0, 1e30, math.inf])
@pytest.mark.parametrize("limit", [0.0, 0.35, math.inf])
def test_any_error_stays_on_the_page(error: float, limit: float) -> None:
    drift = Drift(max_relative_l2=limit)
    judged = report(engine(agreement=replace(FINE, relative_l2=error)), drift=drift)
    layers = report(layers=(layer("a", error),), drift=drift)
    for made, is_judged in ((judged, True), (layers, False)):
        ((_, kind, width),) = bars(made)
        assert 0 <= width <= 500
        is_kept = error <= limit and error < math.inf
        assert kind == ("bar" if is_kept or not is_judged else "broken")


def test_an_error_that_is_not_finite_says_so() -> None:
    made = report(engine(agreement=replace(FINE, relative_l2=math.inf)))
    assert bars(made) == [("onnx: y not finite", "broken", 500.0)]


@pytest.mark.parametrize("name", ["<b>&\"'", "a\x00\x1b[31m", "\ud800", "\ufffe", "x" * 300, "层"])
def test_any_name_is_well_formed(name: str) -> None:
    ((title, _, _),) = bars(report(layers=(layer(name, 0.1),)))
    assert title.endswith(" 0.1")
    texts = [
        one.text or "" for one in parsed(report(layers=(layer(name, 0.1),))).iter(f"{SVG}text")
    ]
    assert max(map(len, texts)) <= 80


def test_light_and_dark_and_the_threshold() -> None:
    text = draw(report(engine())).decode()
    assert "prefers-color-scheme: dark" in text
    assert "max_relative_l2 0.35" in text


def test_the_same_report_is_the_same_picture() -> None:
    assert draw(report(engine())) == draw(report(engine()))
