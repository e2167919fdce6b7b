"""The report as a picture: an SVG with one bar a layer, or one an engine and output."""

from __future__ import annotations

import math
from collections.abc import Iterator
from html import escape
from typing import TYPE_CHECKING, Final, NamedTuple

from edge_signing.errors import printable

if TYPE_CHECKING:
    from edge_agent.drift.report import DriftReport

# All in pixels.
_WIDTH: Final = 960
_LEFT: Final = 380
_RIGHT: Final = 880
_TOP: Final = 64
_ROW: Final = 18
_LONGEST_NAME: Final = 50
# Below this an error is as good as none.
_SMALLEST: Final = 1e-6
_STYLE: Final = """
  text { font: 12px ui-monospace, monospace; fill: #1b1f24; }
  .title { font: bold 14px system-ui, sans-serif; }
  .grid { stroke: #d0d7de; } .limit { stroke: #cf222e; stroke-dasharray: 4 3; }
  .page { fill: #ffffff; } .bar { fill: #0969da; } .broken { fill: #cf222e; }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6edf3; } .grid { stroke: #3d444d; } .limit { stroke: #ff7b72; }
    .page { fill: #0d1117; } .bar { fill: #4493f8; } .broken { fill: #ff7b72; }
  }
"""


class _Bar(NamedTuple):
    name: str
    error: float


class _Chart(NamedTuple):
    what: str
    bars: list[_Bar]
    limit: float | None


def draw(report: DriftReport) -> bytes:
    """Draws relative L2 errors on a logarithmic axis; for outputs with the threshold as a line.

    Args:
        report: The report. Its layers are drawn, in the order in which they run; without any, its
            engines' outputs; without a reference, the pairs of engines. Only outputs are judged by
            the threshold.

    Returns:
        An SVG document in UTF-8; the same report gives the same bytes.
    """
    what, bars, limit = _chart(report)
    axis = _Axis([bar.error for bar in bars], limit)
    bottom = _TOP + _ROW * max(len(bars), 1)
    dashed = "" if limit is None else f"; dashed: limit {limit:g}"
    title = f"{report.name} {report.version}: relative L2 error {what}{dashed}"
    lines = [
        '<?xml version="1.0" encoding="UTF-8"?>',
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{bottom + 16}" '
        f'viewBox="0 0 {_WIDTH} {bottom + 16}" role="img">',
        f"<title>{_text(title)}</title>",
        f"<style>{_STYLE}</style>",
        f'<rect class="page" width="{_WIDTH}" height="{bottom + 16}"/>',
        f'<text class="title" x="16" y="24">{_text(title)}</text>',
        *axis.lines(bottom),
        *(line for index, bar in enumerate(bars) for line in axis.bar(bar, _TOP + _ROW * index)),
        "</svg>",
    ]
    return ("\n".join(lines) + "\n").encode()


def _chart(report: DriftReport) -> _Chart:
    if report.layers:
        layers = [_Bar(one.name, one.agreement.relative_l2) for one in report.layers]
        return _Chart("per layer", layers, None)
    outputs = [
        _Bar(f"{one.engine}: {name}", agreement.relative_l2)
        for one in report.engines
        for name, agreement in one.outputs.items()
    ]
    if outputs:
        return _Chart("per engine and output", outputs, report.thresholds.max_relative_l2)
    pairs = [
        _Bar(f"{' / '.join(pair.engines)}: {pair.output}", pair.agreement.relative_l2)
        for pair in report.consistency
    ]
    return _Chart("between engines", pairs, None)


class _Axis:
    """From errors to pixels, in whole decades.

    Args:
        errors: What is drawn; infinity reaches the axis's end.
        limit: The threshold; None where none applies.
    """

    def __init__(self, errors: list[float], limit: float | None) -> None:
        self._limit = limit
        ends = errors if limit is None else [*errors, limit]
        finite = [one for one in ends if _SMALLEST <= one < math.inf]
        self._low = math.floor(math.log10(min(finite, default=0.1)) - 1e-9)
        self._high = max(math.ceil(math.log10(max(finite, default=1.0))), self._low + 1)

    def _x(self, error: float) -> float:
        if error < _SMALLEST:
            return _LEFT
        if math.isinf(error):
            return _RIGHT
        share = (math.log10(error) - self._low) / (self._high - self._low)
        return round(_LEFT + share * (_RIGHT - _LEFT), 1)

    def _is_broken(self, error: float) -> bool:
        return self._limit is not None and not (math.isfinite(error) and error <= self._limit)

    def lines(self, bottom: int) -> Iterator[str]:
        """Yields the grid, its figures and the threshold."""
        for decade in range(self._low, self._high + 1):
            x = self._x(10.0**decade)
            yield f'<line class="grid" x1="{x}" y1="{_TOP - 6}" x2="{x}" y2="{bottom}"/>'
            yield f'<text x="{x}" y="{_TOP - 12}" text-anchor="middle">{10.0**decade:g}</text>'
        if self._limit is not None and _SMALLEST <= self._limit < math.inf:
            x = self._x(self._limit)
            yield f'<line class="limit" x1="{x}" y1="{_TOP - 6}" x2="{x}" y2="{bottom}">'
            yield f"<title>max_relative_l2 {self._limit:g}</title></line>"

    def bar(self, bar: _Bar, top: int) -> Iterator[str]:
        """Yields one row: name, bar, figure."""
        kind = "broken" if self._is_broken(bar.error) else "bar"
        end, name = self._x(bar.error), printable(bar.name)
        shown = f"{bar.error:.3g}" if math.isfinite(bar.error) else "not finite"
        yield f"<g><title>{_text(name)} {shown}</title>"
        yield f'<text x="{_LEFT - 8}" y="{top + 13}" text-anchor="end">{_text(_short(name))}</text>'
        yield (
            f'<rect class="{kind}" x="{_LEFT}" y="{top + 3}" width="{round(end - _LEFT, 1)}" '
            f'height="{_ROW - 6}"/>'
        )
        yield f'<text x="{end + 6}" y="{top + 13}">{shown}</text></g>'


def _short(name: str) -> str:
    """Returns a name without its middle, where it is long: both ends tell layers apart."""
    half = _LONGEST_NAME // 2 - 1
    return name if len(name) <= _LONGEST_NAME else f"{name[:half]}…{name[-half:]}"


def _text(text: str) -> str:
    """Returns text as XML takes it; control characters are made visible."""
    return escape(printable(text))
