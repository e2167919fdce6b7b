"""What a bench found, as a document that another machine's can be held against."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal

import msgspec
from msgspec import Struct

from edge_agent.bench.statistics import Latency
from edge_agent.bench.trial import Memory
from edge_agent.errors import BadInputError
from edge_agent.files import read_regular
from edge_agent.types import ModelRef

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SCHEMA: Final = "edge-agent/bench/v1"
_MAX_FILE_BYTES: Final = 4 * 1024 * 1024


class Device(Struct, frozen=True):
    """The machine that was measured.

    Attributes:
        profile: Name of its profile.
        board: What it calls itself, None where it doesn't say.
        arch: The kernel's name of the architecture.
        cpu_model: Its processor, None where it isn't known.
        cpus: Threads that could run at a time.
        memory_mib: Memory that could be used, None where it isn't known.
        kernel: The kernel's release.
    """

    profile: str
    board: str | None
    arch: str
    cpu_model: str | None
    cpus: int
    memory_mib: int | None
    kernel: str


class Cold(Struct, frozen=True):
    """Milliseconds of each stage of a cold start; see `trial.Trial`."""

    start: Latency
    open: Latency
    read: Latency
    load: Latency
    first: Latency
    total: Latency


class Warm(Struct, frozen=True):
    """Milliseconds of each stage of a warm answer; see `trial.Trial`."""

    prepare: Latency
    infer: Latency
    answer: Latency
    total: Latency


class Figures(Struct, frozen=True):
    """What one engine needs.

    Attributes:
        version: Its package and version.
        threads: Threads that it used.
        sample: What it ran on: a file's name, ``golden`` or ``blank``.
        wrong: What is wrong with its answer to the golden input, None where nothing is.
        cold_ms: Of fresh processes.
        warm_ms: Of all runs in all processes.
        memory_mib: Of the trial that needed most; None where the system doesn't say.
    """

    version: str
    threads: int
    sample: str
    wrong: str | None
    cold_ms: Cold
    warm_ms: Warm
    memory_mib: Memory | None


class EngineReport(Struct, frozen=True):
    """One engine.

    Attributes:
        engine: Its name.
        figures: What was measured; None where it failed.
        error: How it failed, None where it didn't.
    """

    engine: str
    figures: Figures | None = None
    error: str | None = None


class Promise(Struct, frozen=True):
    """One promise of the contract, or one limit of the device, and what was measured.

    Attributes:
        name: Such as ``contract.latency_ms``.
        limit: The most that it allows.
        measured: What the fastest engine needs.
        engine: That engine.
        holds: Whether that is within the limit.
    """

    name: str
    limit: float
    measured: float
    engine: str
    holds: bool


class BenchReport(Struct, frozen=True):
    """A whole bench.

    Attributes:
        schema: Version of this document.
        agent: The agent's version.
        model: What was measured.
        device: Where.
        engines: The figures.
        promises: What was promised, and whether it holds here.
    """

    schema: Literal["edge-agent/bench/v1"]
    agent: str
    model: ModelRef
    device: Device
    engines: tuple[EngineReport, ...]
    promises: tuple[Promise, ...] = ()

    @property
    def figures(self) -> dict[str, Figures]:
        """What was measured, by engine."""
        return {one.engine: one.figures for one in self.engines if one.figures}


COLUMNS: Final = ("engine", "", "stage", "p50 ms", "p95 ms", "p99 ms", "runs")


def table(report: BenchReport) -> list[list[str]]:
    """Returns a row for each engine and stage; see `COLUMNS`."""
    return [row for engine, one in report.figures.items() for row in _rows(engine, one)]


def _rows(engine: str, one: Figures) -> Iterator[list[str]]:
    for warmth, stages in (("cold", one.cold_ms), ("warm", one.warm_ms)):
        for stage in stages.__struct_fields__:
            ms: Latency = getattr(stages, stage)
            figures = [f"{value:.2f}" for value in (ms.p50, ms.p95, ms.p99)]
            yield [engine, warmth, stage, *figures, str(ms.runs)]


MEMORY_COLUMNS: Final = ("engine", "before MiB", "loaded MiB", "peak MiB", "the model's MiB")


def memory_table(report: BenchReport) -> list[list[str]]:
    """Returns engine, MiB before, loaded, at the peak, and what the model needs."""
    return [
        [engine, *(f"{mib:.1f}" for mib in (m.before, m.loaded, m.peak, m.session))]
        for engine, one in report.figures.items()
        if (m := one.memory_mib)
    ]


def write(report: BenchReport, path: Path) -> None:
    """Writes a report: Markdown for ``.md``, JSON for anything else.

    Raises:
        OSError: It can't be written.
    """
    from edge_signing.durable import write_durably

    is_text = path.suffix.lower() == ".md"
    write_durably(path, _markdown(report).encode() if is_text else _json(report))


def read(path: Path) -> BenchReport:
    """Reads the JSON of an earlier report.

    Raises:
        BadInputError: It can't be read, or isn't one.
    """
    try:
        data = read_regular(path, _MAX_FILE_BYTES)
    except OSError as error:
        raise BadInputError(f"can't be read: {error.strerror}", path=str(path)) from error
    if len(data) > _MAX_FILE_BYTES:
        raise BadInputError(f"is larger than {_MAX_FILE_BYTES} bytes", path=str(path))
    try:
        return msgspec.json.decode(data, type=BenchReport)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise BadInputError(
            f"is no report of a bench: {error}",
            path=str(path),
            hint="edge-agent bench --report FILE.json writes one",
        ) from error


def _json(report: BenchReport) -> bytes:
    return msgspec.json.format(msgspec.json.encode(report), indent=1) + b"\n"


def _markdown(report: BenchReport) -> str:
    device = report.device
    lines = [
        f"# {report.model.name} {report.model.version}",
        "",
        f"{device.board or device.cpu_model or device.arch} ({device.profile}), {device.cpus} "
        f"threads, kernel {device.kernel}, edge-agent {report.agent}",
        "",
        *_markdown_table(COLUMNS, table(report)),
        "",
        *_markdown_table(MEMORY_COLUMNS, memory_table(report)),
        "",
        *(f"- {one}" for one in told(report)),
    ]
    return "\n".join(lines) + "\n"


def _markdown_table(columns: tuple[str, ...], rows: list[list[str]]) -> Iterator[str]:
    for row in (columns, ("---",) * len(columns), *rows):
        yield "| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |"


def told(report: BenchReport) -> Iterator[str]:
    """Yields, a line each, what the figures say: failures, wrong answers, promises."""
    for one in report.engines:
        if one.error is not None:
            yield f"{one.engine}: {one.error}"
        elif one.figures and one.figures.wrong:
            yield f"{one.engine}: wrong answer to the golden input: {one.figures.wrong}"
    for promise in report.promises:
        verdict = "holds" if promise.holds else "is broken"
        yield (
            f"{promise.name} {promise.limit:g} {verdict} here: {promise.measured:.4g} on "
            f"{promise.engine}"
        )
