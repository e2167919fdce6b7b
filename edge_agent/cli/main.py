"""Entry point of the command line.

What this imports is paid for by each command, the thin client's `infer` most of all: so it is next
to nothing, and nothing of ``typing``.
"""

from __future__ import annotations

import _signal  # what `signal` wraps in enumerations, which take 4 ms to import
import gc
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any, NoReturn

# Noun, and the file that has it; `infer` and `doctor` are commands, the others groups of them.
NOUNS = {
    "infer": "edge_agent.cli.infer",
    "bundle": "edge_agent.cli.bundle",
    "keys": "edge_agent.cli.keys",
    "models": "edge_agent.cli.models",
    "model": "edge_agent.cli.model",
    "serve": "edge_agent.cli.serve",
    "apply": "edge_agent.cli.apply",
    "cache": "edge_agent.cli.cache",
    "bench": "edge_agent.cli.bench",
    "doctor": "edge_agent.cli.doctor",
}


def main() -> None:
    """Runs the command line and exits with its code."""
    _signal.signal(_signal.SIGINT, _signal.SIG_DFL)  # see bars.tidy_interrupt
    _open_standard_streams()
    for stream in (sys.stdout, sys.stderr):
        reconfigure: Callable[..., None] | None = getattr(stream, "reconfigure", None)
        if reconfigure:  # file names needn't be UTF-8, and neither need the terminal be
            reconfigure(errors="backslashreplace")
    # Start-up makes many objects and no garbage: don't look for it every 700 objects.
    gc.set_threshold(50_000)
    _leave(guarded(sys.argv[1:]))


def _open_standard_streams() -> None:
    """Puts /dev/null where a stream was closed: no file of ours may take its number."""
    for number, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        if getattr(sys, name) is None:
            opened = os.open(os.devnull, os.O_RDWR)
            if opened != number:
                os.dup2(opened, number)
                os.close(opened)
            setattr(sys, name, open(number, mode, encoding="utf-8"))  # noqa: SIM115 - stays open


def _leave(code: int) -> NoReturn:
    """Ends the process without tearing the interpreter down, a tenth of a one-shot's time.

    Everything that must last is on the disk already (`edge_signing.durable`).
    """
    try:
        sys.stdout.flush()
    except OSError:
        code = code or 1
    try:  # noqa: SIM105 - contextlib takes a millisecond to import
        sys.stderr.flush()
    except OSError:
        pass
    os._exit(code)


def guarded(arguments: Sequence[str]) -> int:
    """Runs a command line and returns its exit code.

    What a user can cause ends in a sentence, never in a traceback.
    """
    try:
        code = run(arguments)
        sys.stdout.flush()
    except BrokenPipeError:
        # Whoever read the output has gone; nothing must be written at exit either.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except (KeyboardInterrupt, Exception) as error:  # noqa: BLE001 - `_told` raises faults again
        return _told(error, arguments)
    return code


def _told(error: BaseException, arguments: Sequence[str]) -> int:
    """Tells of what ended the command and returns the exit code."""
    from edge_agent.cli import failures

    if isinstance(error, failures.expected()):
        return failures.report(error, as_json_document="--json" in arguments)
    if isinstance(error, KeyboardInterrupt):
        return failures.INTERRUPTED
    if "EDGE_AGENT_DEBUG" in os.environ:
        raise error
    return failures.fault(error)


def run(arguments: Sequence[str]) -> int:
    """Runs one command line and returns its exit code."""
    if arguments[:1] == ["infer"] and "_EDGE_AGENT_COMPLETE" not in os.environ:
        from edge_agent.cli.infer_options import read_plainly

        options = read_plainly(arguments[1:])
        if options is not None:
            from edge_agent.cli.infer_run import run as infer

            return infer(options)
    if list(arguments) == ["serve"]:
        from edge_agent.cli.serve_run import run as serve

        return serve()  # a daemon keeps no Typer in its memory
    return _typer(arguments)


def _typer(arguments: Sequence[str]) -> int:
    import typer

    command = typer.main.get_command(application(arguments))
    try:
        command.main(list(arguments), prog_name="edge-agent")
    except SystemExit as leave:
        return leave.code if isinstance(leave.code, int) else int(leave.code is not None)
    return 0


def application(arguments: Sequence[str]) -> Any:
    """Builds the Typer application, importing only the noun that the arguments name."""
    from importlib import import_module

    import typer

    app = typer.Typer(
        name="edge-agent",
        help="Runs only signed model bundles: verify, pre-process, INT8 inference.",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
        rich_markup_mode=None,  # help texts have brackets of their own
    )
    named = arguments[0] if arguments and arguments[0] in NOUNS else None
    for noun, file in NOUNS.items():
        if named in (None, noun):
            part = getattr(import_module(file), noun)
            if isinstance(part, typer.Typer):
                app.add_typer(part, name=noun)
            else:
                app.command(noun)(part)
    _add_version(app)
    return app


def _add_version(app: Any) -> None:
    """Adds --version; the callback also keeps a lone command a subcommand."""
    from edge_agent.cli.version import version_option

    app.callback()(version_option)
