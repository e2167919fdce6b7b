"""A report held against an earlier one, or another board's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec import Struct

from edge_agent.errors import BadInputError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from edge_agent.bench.report import BenchReport, Figures

# What two medians may differ by without meaning anything: timers and schedulers.
_NOISE_MS: Final = 0.1
_NOISE_MIB: Final = 2.0


class Change(Struct, frozen=True):
    """One figure then and now.

    Attributes:
        engine: Whose.
        figure: Which, with its unit.
        before: Its value in the earlier report.
        now: Its value in this one.
        ratio: Now as a multiple of before; None where it was zero.
        is_regression: Whether it grew by more than the threshold, and by more than noise.
    """

    engine: str
    figure: str
    before: float
    now: float
    ratio: float | None
    is_regression: bool


def require_comparable(before: BenchReport, model: str, sample: str) -> None:
    """Refuses an earlier report that says nothing of what is to be measured.

    Args:
        before: The earlier report.
        model: Name of the model.
        sample: What it is to run on, as `report.Figures` names it.

    Raises:
        BadInputError: It is of another model, or another input.
    """
    if before.model.name != model:
        raise BadInputError(f"that report is of {before.model.name}, not of {model}")
    others = sorted({one.sample for one in before.figures.values()} - {sample})
    if others:
        raise BadInputError(
            f"that report was measured on the input {others[0]!r}, not on {sample!r}",
            hint="bench with the same SAMPLE",
        )


def compare(before: BenchReport, now: BenchReport, threshold_percent: float) -> list[Change]:
    """Compares medians and memory of the engines that both reports have figures of.

    Args:
        before: The earlier report.
        now: This one.
        threshold_percent: What a figure may grow by.
    """
    factor = 1 + threshold_percent / 100
    return [
        Change(
            name,
            figure,
            old,
            new,
            ratio=new / old if old else None,
            is_regression=new > old * factor and new - old > noise,
        )
        for name, then in before.figures.items()
        if name in now.figures
        for figure, old, new, noise in _figures(then, now.figures[name])
    ]


def losses(before: BenchReport, now: BenchReport) -> Iterator[str]:
    """Yields, a clause each, the engines that answered rightly before and don't now."""
    for one in now.engines:
        then = before.figures.get(one.engine)
        if then is None or then.wrong:
            continue
        if one.figures is None:
            yield f"{one.engine} fails now: {one.error}"
        elif one.figures.wrong:
            yield f"{one.engine} answers wrongly now: {one.figures.wrong}"


def _figures(then: Figures, now: Figures) -> Iterator[tuple[str, float, float, float]]:
    for stage, before, after in (
        ("warm infer", then.warm_ms.infer, now.warm_ms.infer),
        ("warm total", then.warm_ms.total, now.warm_ms.total),
        ("cold total", then.cold_ms.total, now.cold_ms.total),
    ):
        yield f"{stage} p50 ms", before.p50, after.p50, _NOISE_MS
    if then.memory_mib and now.memory_mib:
        yield "memory MiB", then.memory_mib.session, now.memory_mib.session, _NOISE_MIB


def _called(report: BenchReport) -> str:
    digest = report.model.digest.removeprefix("sha256:")[:12]
    return f"{report.model.version} ({digest or 'a project'})"


def differences(before: BenchReport, now: BenchReport) -> Iterator[str]:
    """Yields what else differs between two reports, a line each: figures depend on it."""
    if before.model.digest != now.model.digest:
        yield f"other bytes: {_called(before)} then, {_called(now)} now"
    if before.device.board != now.device.board or before.device.cpu_model != now.device.cpu_model:
        then = before.device.board or before.device.cpu_model
        yield f"another machine: {then} then, {now.device.board or now.device.cpu_model} now"
    for name, one in now.figures.items():
        then_one = before.figures.get(name)
        if then_one is None:
            yield f"{name} has no figures in the earlier report"
            continue
        for what, old, new in (
            ("version", then_one.version, one.version),
            ("threads", then_one.threads, one.threads),
        ):
            if old != new:
                yield f"{name}: {what} {old} then, {new} now"
    for name in before.figures.keys() - {one.engine for one in now.engines}:
        yield f"{name} wasn't measured now"
