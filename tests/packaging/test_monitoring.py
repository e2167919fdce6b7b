"""Dashboard and alerts use metrics and labels that exist, and the alerts fire when they should."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.agent.telemetry.figures import everything

PACKAGING = Path(__file__).parents[2] / "packaging"
DASHBOARD = PACKAGING / "grafana/edge-agent.json"
ALERTS = PACKAGING / "prometheus/alerts.yaml"
ALERTS_TEST = PACKAGING / "prometheus/alerts_test.yaml"
OF_PROMETHEUS = {"up": {"job", "instance"}}
needs_promtool = pytest.mark.skipif(
    not shutil.which("promtool"), reason="promtool isn't installed (Debian's package prometheus)"
)


def rules() -> list[dict[str, Any]]:
    (group,) = yaml.safe_load(ALERTS.read_text())["groups"]
    found: list[dict[str, Any]] = group["rules"]
    return found


def panels() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(DASHBOARD.read_text())["panels"]
    return [one for one in found if one["type"] != "row"]


def expressions() -> Iterator[str]:
    for rule in rules():
        yield rule["expr"]
    for panel in panels():
        for target in panel["targets"]:
            yield target["expr"]
    for variable in json.loads(DASHBOARD.read_text())["templating"]["list"]:
        if variable["type"] == "query":
            yield variable["definition"]


@pytest.fixture
def labels(tmp_path: Path) -> dict[str, set[str]]:
    """The labels of each metric that there is."""
    found: dict[str, set[str]] = dict(OF_PROMETHEUS)
    for family in everything(tmp_path):
        for sample in family.samples:
            found.setdefault(sample.name, {"job", "instance"}).update(sample.labels)
    return found


@pytest.mark.parametrize("expression", list(expressions()))
def test_metrics_and_labels_exist(expression: str, labels: dict[str, set[str]]) -> None:
    names = set(re.findall(r"\b(?:edge_agent|nv)_\w+|\bup\b", expression))
    assert names
    assert names <= set(labels)
    for name, selector in re.findall(r"(\w+)\{([^}]*)\}", expression):
        assert set(re.findall(r"(\w+)\s*(?:=|!=|=~|!~)\"", selector)) <= labels[name]
    for grouped in re.findall(r"\b(?:by|on) \(([^)]*)\)", expression):
        assert all(set(grouped.split(", ")) <= labels[name] for name in names)


def test_checker_finds_what_does_not_exist(labels: dict[str, set[str]]) -> None:
    for wrong in (
        "rate(edge_agent_nothing_total[5m])",
        "sum by (nothing) (edge_agent_queue_depth)",
        'edge_agent_queue_depth{nothing="x"}',
    ):
        with pytest.raises(AssertionError):
            test_metrics_and_labels_exist(wrong, labels)


def test_every_metric_is_shown_or_watched(labels: dict[str, set[str]]) -> None:
    """But Triton's names, which are for dashboards that know those."""
    used = " ".join(expressions())
    for name in labels:
        if not name.startswith("nv_") and name not in ("edge_agent_cache_entries",):
            base = re.sub(r"_(bucket|sum|count)$", "", name)
            assert base in used, name


def test_every_metric_is_documented(labels: dict[str, set[str]]) -> None:
    documented = (PACKAGING.parent / "docs/MONITORING.md").read_text()
    for name in set(labels) - set(OF_PROMETHEUS):
        base = re.sub(r"_(bucket|sum|count)$", "", name) if name not in documented else name
        assert f"`{base}`" in documented


def test_panels_have_numbers_of_their_own_and_do_not_overlap() -> None:
    found = json.loads(DASHBOARD.read_text())["panels"]
    assert len({one["id"] for one in found}) == len(found)
    cells = [
        (x, y)
        for place in (one["gridPos"] for one in found)
        for x in range(place["x"], place["x"] + place["w"])
        for y in range(place["y"], place["y"] + place["h"])
    ]
    assert len(set(cells)) == len(cells)
    assert max(x for x, _ in cells) < 24


def test_every_alert_says_what_to_do_and_is_tested() -> None:
    tests = yaml.safe_load(ALERTS_TEST.read_text())["tests"]
    for rule in rules():
        assert rule["annotations"]["summary"]
        assert rule["annotations"]["description"]
        expected = [
            bool(case["exp_alerts"])
            for test in tests
            for case in test["alert_rule_test"]
            if case["alertname"] == rule["alert"]
        ]
        assert {True, False} == set(expected), rule["alert"]


@needs_promtool
@pytest.mark.parametrize("arguments", [["check", ALERTS.name], ["test", ALERTS_TEST.name]])
def test_promtool_agrees(arguments: list[str]) -> None:
    what, file = arguments
    done = subprocess.run(
        ["promtool", what, "rules", file],
        cwd=ALERTS.parent,
        capture_output=True,
        text=True,
        timeout=50,
    )
    assert done.returncode == 0, done.stdout + done.stderr
