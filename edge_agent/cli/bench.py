"""`edge-agent bench`: how fast a model is on this machine, and whether it was faster before."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from edge_agent import __version__
from edge_agent import config as configuration
from edge_agent.app import Agent
from edge_agent.cli import bars, options, output
from edge_agent.errors import EngineUnavailableError, ThresholdError
from edge_agent.references import DEMO_NAME

if TYPE_CHECKING:
    from edge_agent.bench.comparison import Change
    from edge_agent.bench.report import BenchReport, Device
    from edge_agent.bench.runner import Plan
    from edge_agent.bundles import Contents


class Engine(StrEnum):
    """Choices of --engine."""

    onnx = "onnx"
    tflite = "tflite"


def bench(
    sample: Annotated[
        Path | None,
        typer.Argument(
            metavar="SAMPLE",
            help="An image, or a .npy, .npz or .json file.",
            show_default="the golden input, or else a blank one",
        ),
    ] = None,
    model: Annotated[
        str, typer.Option(metavar="BUNDLE", help="A bundle, an installed name, or a project.")
    ] = DEMO_NAME,
    engine: Annotated[
        list[Engine] | None,
        typer.Option(
            metavar="onnx|tflite",
            help="Only this engine; may be given again.",
            show_default="all that it has",
        ),
    ] = None,
    runs: Annotated[int, typer.Option(min=1, max=100_000, help="Warm answers an engine.")] = 100,
    trials: Annotated[int, typer.Option(min=1, max=100, help="Cold starts an engine.")] = 3,
    timeout: Annotated[
        float,
        typer.Option(
            min=1, max=86_400, metavar="SECONDS", help="The longest that one trial may take."
        ),
    ] = 120,
    report: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write the figures: .md as a table, else as JSON."),
    ] = None,
    compare: Annotated[
        Path | None, typer.Option(metavar="FILE", help="An earlier report, in JSON.")
    ] = None,
    threshold: Annotated[
        float, typer.Option(min=0, metavar="PERCENT", help="What a median may have grown by.")
    ] = 10,
    enforce: Annotated[
        bool, typer.Option("--enforce", help="Exit with 6 where the contract doesn't hold here.")
    ] = False,
    json: options.JsonOption = False,
) -> None:
    """Measure latency and memory of a model on each engine, cold and warm.

    Every trial is a process of its own. Exits with 6 where a figure is worse than in the report to
    compare with by more than the threshold.
    """
    from edge_agent.bench import comparison, runner
    from edge_agent.bench import report as reports

    if report is not None:
        options.require_folder(report)
    earlier = reports.read(compare) if compare else None
    agent = Agent(configuration.load(), output.notice)
    chosen = tuple(dict.fromkeys(one.value for one in engine or ()))
    plan = runner.Plan(
        model, chosen, None if sample is None else str(sample), trials, runs, timeout_s=timeout
    )
    made = _measured(agent, plan, earlier)
    changes = comparison.compare(earlier, made, threshold) if earlier else []
    losses = list(comparison.losses(earlier, made)) if earlier else []
    if not json:
        _print(made, changes)
    if report is not None:
        reports.write(made, report)
    if json:
        output.document(_as_json(made, changes, losses))
    if earlier:
        for difference in comparison.differences(earlier, made):
            output.notice(difference)
    _conclude(made, changes, losses, threshold, enforce)


def _measured(agent: Agent, plan: Plan, earlier: BenchReport | None) -> BenchReport:
    from edge_agent.authoring.subjects import open_subject
    from edge_agent.bench import comparison, promises, runner
    from edge_agent.bench.report import SCHEMA, BenchReport

    # Opened here as well, so that what is wrong with it ends in its own error and exit code.
    with (
        bars.progress(f"verifying {plan.model}") as hashed,
        open_subject(agent, plan.model, hashed) as it,
    ):
        plan = msgspec.structs.replace(plan, engines=plan.engines or _usable(agent, it))
        ref, contract = it.ref, it.description.contract
        called = _try_sample(agent, it, plan.sample)
    if earlier:
        comparison.require_comparable(earlier, ref.name, called)
    with bars.counter(f"measuring {ref.name}") as progress:
        figures = runner.run(plan, progress)
    profile = agent.profile
    held = promises.judge(contract, figures, profile.max_latency_ms, profile.max_memory_mib)
    made = BenchReport(SCHEMA, __version__, ref, _device(agent), tuple(figures), held)
    if not made.figures and not earlier:
        reasons = "; ".join(f"{one.engine}: {one.error}" for one in made.engines)
        raise EngineUnavailableError(f"no engine gave a figure ({reasons})")
    return made


def _usable(agent: Agent, contents: Contents) -> tuple[str, ...]:
    found = tuple(part.engine for part in agent.loader.usable_engines(contents))
    if not found:
        raise EngineUnavailableError(
            f"no engine for {contents.ref.name} is installed here",
            hint="edge-agent doctor shows what is missing",
        )
    return found


def _try_sample(agent: Agent, contents: Contents, sample: str | None) -> str:
    """Refuses a sample that no engine could be given, before any is measured; returns its name."""
    if sample is None:
        return "golden" if contents.description.golden else "blank"
    from edge_agent import samples
    from edge_signing.errors import printable

    request = samples.request(contents, Path(sample), agent.limits)
    agent.loader.pipeline(contents).prepare(request, None)
    return printable(Path(sample).name)  # a report is UTF-8


def _device(agent: Agent) -> Device:
    from edge_agent.bench.report import Device
    from edge_profiles.detect import detect

    machine = detect()
    return Device(
        agent.profile.name,
        machine.board,
        machine.arch,
        machine.cpu_model,
        machine.cpus,
        machine.memory_mib,
        machine.kernel,
    )


def _print(made: BenchReport, changes: list[Change]) -> None:
    from edge_agent.bench import report as reports

    for one in list(made.figures.values())[:1]:
        title = f"{made.model.name} {made.model.version} on {one.sample}, {one.threads} threads"
        output.table(title, reports.COLUMNS, reports.table(made))
        output.table("Memory", reports.MEMORY_COLUMNS, reports.memory_table(made))
    for told in reports.told(made):
        output.line(told)
    if changes:
        output.table(
            "Then and now",
            ["engine", "", "then", "now", "ratio", ""],
            [_row(one) for one in changes],
        )


def _row(one: Change) -> list[str]:
    figures = [f"{one.before:.2f}", f"{one.now:.2f}", _times(one)]
    return [one.engine, one.figure, *figures, "worse" if one.is_regression else ""]


def _times(one: Change) -> str:
    return "from 0" if one.ratio is None else f"x {one.ratio:.2f}"


def _as_json(made: BenchReport, changes: list[Change], losses: list[str]) -> dict[str, object]:
    document: dict[str, object] = msgspec.to_builtins(made)
    return document | {"changes": msgspec.to_builtins(changes), "losses": losses}


def _conclude(
    made: BenchReport, changes: list[Change], losses: list[str], threshold: float, enforce: bool
) -> None:
    """Raises what the figures call for."""
    worse = [f"{one.engine} {one.figure} {_times(one)}" for one in changes if one.is_regression]
    if worse or losses:
        grown = f"by more than {threshold:g} %: {', '.join(worse)}" if worse else ""
        raise ThresholdError(f"worse than before {'; '.join(filter(None, [grown, *losses]))}")
    broken = [one.name for one in made.promises if not one.holds]
    if enforce and all(one.wrong for one in made.figures.values()):
        raise ThresholdError("no engine here answers the golden input rightly")
    if enforce and broken:
        raise ThresholdError(f"{', '.join(broken)} can't be kept on this device")
