"""A report held against an earlier one, or another board's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec import Struct

from edge_agent.errors import BadInputError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from edge_agent.bench.report import BenchReport, EngineReport

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
        is_regression: Whether it grew by more than the threshold, and by more than noise.
    """

    engine: str
    figure: str
    before: float
    now: float
    is_regression: bool

    @property
    def ratio(self) -> float:
        """Now as a multiple of before."""
        return self.now / self.before if self.before else float("inf")


def compare(before: BenchReport, now: BenchReport, threshold_percent: float) -> list[Change]:
    """Compares medians and memory of the engines that both reports have.

    Args:
        before: The earlier report.
        now: This one.
        threshold_percent: What a figure may grow by.

    Raises:
        BadInputError: They have no engine in common, or speak of models of different names or of
            different inputs.
    """
    if before.model.name != now.model.name:
        raise BadInputError(f"that report is of {before.model.name}, this one of {now.model.name}")
    earlier = {one.engine: one for one in before.usable()}
    both = [(earlier[one.engine], one) for one in now.usable() if one.engine in earlier]
    if not both:
        raise BadInputError("the two reports have no engine in common")
    for then, one in both:
        if then.sample != one.sample:
            raise BadInputError(
                f"that report was measured on the input {then.sample!r}, this one on "
                f"{one.sample!r}",
                hint="bench with the same SAMPLE",
            )
    factor = 1 + threshold_percent / 100
    lost = [one.engine for one in now.engines if one.error and one.engine in earlier]
    return [change for then, one in both for change in _changes(then, one, factor)] + [
        Change(engine, "can be used", 1, 0, is_regression=True) for engine in lost
    ]


def _changes(then: EngineReport, now: EngineReport, factor: float) -> Iterator[Change]:
    for figure, before, after, noise in _figures(then, now):
        worse = after > before * factor and after - before > noise
        yield Change(now.engine, figure, before, after, worse)


def _figures(then: EngineReport, now: EngineReport) -> Iterator[tuple[str, float, float, float]]:
    for stage, before, after in (
        ("warm infer", then.warm_ms["infer"], now.warm_ms["infer"]),
        ("warm total", then.warm_ms["total"], now.warm_ms["total"]),
        ("cold total", then.cold_ms["total"], now.cold_ms["total"]),
    ):
        yield f"{stage} p50 ms", before.p50, after.p50, _NOISE_MS
    if then.memory_mib and now.memory_mib:
        yield "memory MiB", then.memory_mib.session, now.memory_mib.session, _NOISE_MIB


def differences(before: BenchReport, now: BenchReport) -> Iterator[str]:
    """Yields what else differs between two reports, a line each: figures depend on it."""
    if before.model.digest != now.model.digest:
        yield f"other bytes: {before.model.version} then, {now.model.version} now"
    if before.device.board != now.device.board or before.device.cpu_model != now.device.cpu_model:
        then = before.device.board or before.device.cpu_model
        yield f"another machine: {then} then, {now.device.board or now.device.cpu_model} now"
    earlier = {one.engine: one for one in before.usable()}
    for one in now.usable():
        then_one = earlier.get(one.engine)
        if then_one is None:
            yield f"{one.engine} has no figures in the earlier report"
            continue
        for what, old, new in (
            ("version", then_one.version, one.version),
            ("threads", then_one.threads, one.threads),
        ):
            if old != new:
                yield f"{one.engine}: {what} {old} then, {new} now"
    for engine in earlier.keys() - {one.engine for one in now.usable()}:
        yield f"{engine} has no figures now"
