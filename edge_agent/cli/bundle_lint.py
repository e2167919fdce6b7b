"""`edge-agent bundle lint`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from edge_agent import config as configuration
from edge_agent.app import Agent
from edge_agent.cli import failures, options, output


def lint(
    folder: Annotated[
        Path, typer.Argument(metavar="PROJECT", help="A project, or a bundle's folder.")
    ],
    strict: Annotated[bool, typer.Option("--strict", help="Let warnings fail as well.")] = False,
    json: options.JsonOption = False,
) -> None:
    """Check a project before it is built: one line a finding, exit code 4 with any error.

    A line reads `path:line: level code message — hint`. It tries every engine installed here.
    """
    from edge_agent.authoring.lint.run import lint as run

    report = run(Agent(configuration.load(), output.notice), folder)
    failed = bool(report.errors or (strict and report.findings))
    if json:
        output.document(
            {
                "schema": "edge-agent/bundle-lint/v1",
                "path": str(folder),
                "ok": not failed,
                "findings": [
                    {
                        "level": one.level,
                        "code": one.code,
                        "path": one.path,
                        "line": one.line,
                        "message": one.message,
                        "hint": one.hint,
                    }
                    for one in report.findings
                ],
                "notes": list(report.notes),
            }
        )
    else:
        for finding in report.findings:
            output.line(f"{finding} — {finding.hint}" if finding.hint else str(finding))
        for note in report.notes:
            output.notice(note)
    if failed:
        raise typer.Exit(failures.BAD_INPUT)
