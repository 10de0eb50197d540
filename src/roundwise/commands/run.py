"""`roundwise run`: an unchanged program, faster where Roundwise is."""

from __future__ import annotations

import click

from roundwise.integrations.running import run


@click.command(name="run", add_help_option=False, context_settings={"ignore_unknown_options": True})
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
@click.pass_context
def run_command(ctx: click.Context, arguments: tuple[str, ...]) -> None:
    """Run a program whose solves go through Roundwise."""
    ctx.exit(run(arguments))
