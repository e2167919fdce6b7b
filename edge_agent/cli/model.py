"""`edge-agent model`: what its author does with a model before it is a bundle, and to check one."""

from __future__ import annotations

import typer

from edge_agent.cli.model_quantize import quantize
from edge_agent.cli.model_verify import verify

model = typer.Typer(
    help="Make INT8 models, and check how far they lie from their FP32 reference.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
model.command()(quantize)
model.command()(verify)
