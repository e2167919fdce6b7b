"""The report of the drift gate, for people."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from edge_agent.cli import output
from edge_agent.description import Drift
from edge_agent.drift import gate

if TYPE_CHECKING:
    from edge_agent.drift.comparison import PairDifference
    from edge_agent.drift.gate import Limit
    from edge_agent.drift.report import DriftReport, EngineDrift

_LAYERS_SHOWN: Final = 10


def show(report: DriftReport) -> None:
    """Prints everything: measures, worst inputs, consistency, layers, golden answers, contract."""
    _show_engines(report)
    _show_worst(report)
    _show_pairs(report)
    _show_layers(report)
    for one in report.engines:
        output.line(f"{one.engine}: {_golden(one, report.has_golden)}")
    for note in report.notes:
        output.line(f"note: {note}")
    for line in _contract(report):
        output.line(line)


def _show_engines(report: DriftReport) -> None:
    rows = [
        [one.engine, name, *_limit_row(limit)]
        for one in report.engines
        for name, agreement in one.outputs.items()
        for limit in gate.limits(agreement, report.thresholds)
        if limit.value is not None
    ]
    if rows:
        title = f"{report.name} {report.version} against FP32, {report.inputs.count} inputs"
        output.table(title, ["engine", "output", "measure", "value", "threshold", ""], rows)


def _limit_row(limit: Limit) -> list[str]:
    threshold = "" if limit.threshold is None else _figure(limit.threshold)
    verdict = "" if limit.threshold is None else "BROKEN" if limit.is_broken else "ok"
    return [limit.measure, _figure(limit.value), threshold, verdict]


def _show_worst(report: DriftReport) -> None:
    rows = [
        [one.engine, worst.name, worst.output, _figure(worst.relative_l2)]
        for one in report.engines
        for worst in one.worst
    ]
    if rows:
        output.table("Worst inputs", ["engine", "input", "output", "relative_l2"], rows)


def _show_pairs(report: DriftReport) -> None:
    rows = [_pair_row(pair, report) for pair in report.consistency]
    if rows:
        columns = [
            "engines",
            "output",
            "lsb",
            "allowed",
            "",
            "max_error",
            "relative_l2",
            "top1",
            "topk",
        ]
        output.table("Engines against each other", columns, rows)


def _pair_row(pair: PairDifference, report: DriftReport) -> list[str]:
    allowed = report.thresholds.max_lsb
    broken = any(gate.of_pair(pair, report.thresholds))
    verdict = "" if pair.lsb is None else "BROKEN" if broken else "ok"
    return [
        " / ".join(pair.engines),
        pair.output,
        "unknown" if pair.lsb is None else _figure(pair.lsb),
        "" if pair.lsb is None else _figure(allowed),
        verdict,
        _figure(pair.agreement.max_error),
        _figure(pair.agreement.relative_l2),
        _figure(pair.agreement.top1),
        _figure(pair.agreement.topk),
    ]


def _show_layers(report: DriftReport) -> None:
    worst = sorted(report.layers, key=lambda one: -one.added)[:_LAYERS_SHOWN]
    rows = [
        [
            one.name,
            one.operator,
            _figure(one.added),
            _figure(one.agreement.relative_l2),
            _figure(one.agreement.cosine),
            _figure(one.agreement.max_error),
        ]
        for one in worst
    ]
    if rows:
        title = f"Worst of {len(report.layers)} layers, {worst[0].agreement.inputs} inputs"
        columns = ["layer", "operator", "added", "relative_l2", "cosine", "max_error"]
        output.table(title, columns, rows)


def _golden(one: EngineDrift, has_golden: bool) -> str:
    if one.problem is not None:
        return f"not compared: {one.problem}"
    if not has_golden:
        return "no golden input to try"
    return (
        f"the golden answer is wrong: {one.golden}" if one.golden else "the golden answer is right"
    )


def _contract(report: DriftReport) -> Iterator[str]:
    if report.thresholds == Drift():
        what, holds, broken = "drift: the default thresholds", "hold", "are BROKEN"
    else:
        what, holds, broken = "contract: drift", "holds", "is BROKEN"
    for breach in report.breaches:
        yield f"{what} {broken} on this device: {breach}"
    if report.breaches:
        return
    if report.reference is None:
        yield "drift: whether it holds on this device is not known, for want of a reference"
    else:
        names = ", ".join(one.engine for one in report.engines if one.problem is None)
        yield f"{what} {holds} on this device ({names})"


def _figure(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:.4g}" if math.isfinite(value) else "not finite"
