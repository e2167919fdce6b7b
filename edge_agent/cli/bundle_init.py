"""`edge-agent bundle init`."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated

import typer

from edge_agent import config as configuration
from edge_agent.app import Agent
from edge_agent.cli import bars, options, output
from edge_agent.cli.model_choices import Color, Layout, Preset, ResizeRule
from edge_agent.errors import BadInputError, ConfigError

if TYPE_CHECKING:
    from edge_agent.authoring.drafting.new_project import Looked, NewProject
    from edge_agent.authoring.drafting.parts import Wishes
    from edge_agent.authoring.drafting.questions import Question


def init(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="An .onnx or .tflite file.")],
    out: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Where to write.", show_default="the file's name"),
    ] = None,
    name: Annotated[
        str | None, typer.Option(help="Bundle name.", show_default="local/ and the file's name")
    ] = None,
    version: Annotated[str, typer.Option(help="Semantic version.")] = "0.1.0",
    task: Annotated[str | None, typer.Option(help="Its task, as object-detection.")] = None,
    labels: Annotated[
        Path | None,
        typer.Option(help="Class names: a JSON array, or one a line.", metavar="FILE"),
    ] = None,
    output_name: Annotated[
        str | None, typer.Option("--output", metavar="NAME", help="The output with the scores.")
    ] = None,
    preset: Annotated[Preset | None, typer.Option(help="Scaling of pixel values.")] = None,
    color: Annotated[Color | None, typer.Option(help="Order of the channels.")] = None,
    resize: Annotated[
        ResizeRule | None, typer.Option(help="How an image is brought to size.")
    ] = None,
    layout: Annotated[
        Layout | None, typer.Option(help="Order of axes, where the file leaves it open.")
    ] = None,
    size: Annotated[
        int | None,
        typer.Option(min=1, max=16384, help="Image side, where the file leaves it open."),
    ] = None,
    inputs: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Sample inputs, for quantising and the drift gate."),
    ] = None,
    summary: Annotated[str | None, typer.Option(help="One line for people.")] = None,
    license_text: Annotated[
        str | None, typer.Option("--license", metavar="SPDX", help="Licence of the weights.")
    ] = None,
    ask: Annotated[
        bool | None,
        typer.Option("--ask/--no-ask", help="Ask what is missing.", show_default="on a terminal"),
    ] = None,
    json: options.JsonOption = False,
) -> None:
    """Look at a model and write a project: a model.yaml that is right as far as the file tells.

    What the file can't know is asked on a terminal, or becomes a hole (???) that `bundle lint`
    lists.
    """
    from edge_agent.authoring import naming
    from edge_agent.authoring.drafting import new_project
    from edge_agent.authoring.drafting.parts import Wishes
    from edge_agent.authoring.source_files import read_labels
    from edge_agent.authoring.staging import require_free

    agent = Agent(configuration.load(), output.notice)
    naming.check_version(version)
    if task is not None:
        naming.check_task(task)
    _check_inputs(inputs)
    wishes = Wishes(
        naming.bundle_name(name, model.stem),
        version,
        task,
        read_labels(labels) if labels else None,
        preset.value if preset else None,
        layout.value if layout else None,
        size,
        color.value if color else None,
        resize.value if resize else None,
        output_name,
        summary,
        license_text,
    )
    require_free(out or Path(model.stem))
    looked = new_project.look(agent, model)
    if _is_terminal() if ask is None else ask:
        wishes = _ask_all(looked, wishes, name is None)
    made = new_project.write(looked, wishes, out, inputs)
    if json:
        output.document(_document(made))
        return
    _tell(made)


def _document(made: NewProject) -> dict[str, object]:
    return {
        "schema": "edge-agent/bundle-init/v1",
        "name": made.name,
        "version": made.version,
        "path": str(made.path),
        "holes": [{"key": key, "line": line} for key, line in made.holes],
    }


def _tell(made: NewProject) -> None:
    path = quote(str(made.path))
    output.line(f"wrote {made.path}/model.yaml for {made.name} {made.version}")
    for key, line in made.holes:
        output.line(f"  line {line}: {key} is a hole (???); the comment above it has the choices")
    if not made.holes:
        fed = ["IMAGE"] if made.takes_image else []
        fed += [f"--input {quote(name)}=FILE" for name in made.tensors]
        output.line(
            f"keep an input with its answer: edge-agent bundle golden {path} {' '.join(fed)}"
        )
    output.line(f"check it: edge-agent bundle lint {path}")


def _check_inputs(inputs: Path | None) -> None:
    if inputs is not None and not inputs.exists():
        raise BadInputError("there is no such folder", path=str(inputs))


def _is_terminal() -> bool:
    return sys.stdin.isatty() and sys.stderr.isatty()


def _ask_all(looked: Looked, wishes: Wishes, ask_name: bool) -> Wishes:
    """Asks until nothing is open; nothing is written before the last answer.

    Raises:
        KeyboardInterrupt: The author gave up.
    """
    from edge_agent.authoring.drafting.questions import open_question

    if ask_name:
        wishes = replace(wishes, name=_ask_name(wishes.name))
    asked: set[str] = set()
    while question := open_question(looked.facts, wishes, asked):
        asked.add(question.key)
        wishes = _ask(wishes, question)
    return wishes


def _ask_name(usual: str) -> str:
    """Asks for the bundle's name until it can be one; as with --name, a bare one gets `local/`."""
    from edge_agent.authoring import naming

    while True:
        given = _prompt("Bundle name, such as acme/camera", usual)
        try:
            return naming.bundle_name(given or usual, "")
        except ConfigError as error:
            output.notice(f"{error}; {error.hint}")


def _ask(wishes: Wishes, question: Question) -> Wishes:
    """Asks one question until its answer can be used; an empty answer leaves a hole."""
    from edge_agent.authoring.drafting.questions import answered

    choices = f" [{' | '.join(question.choices)}]" if question.choices else ""
    while True:
        answer = _prompt(question.text + choices, question.default)
        if not answer:
            return wishes
        try:
            return answered(wishes, question, answer)
        except (ConfigError, BadInputError) as error:
            output.notice(str(error))


def _prompt(text: str, default: str) -> str:
    from edge_signing.errors import printable

    try:
        with bars.tidy_interrupt():
            given: str = typer.prompt(
                printable(text), default=default, show_default=bool(default), err=True
            )
    except typer.Abort as error:
        raise KeyboardInterrupt from error
    except UnicodeDecodeError as error:
        raise ConfigError("the answer is not UTF-8 text") from error
    return given.strip()
