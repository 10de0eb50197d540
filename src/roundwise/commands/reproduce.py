"""``roundwise reproduce``: the paper's experiments, where roundwise-studies is installed."""

from __future__ import annotations

import click

try:
    from roundwise_studies.command import reproduce_command
except ModuleNotFoundError as error:
    if error.name != "roundwise_studies":
        raise

    @click.command(
        "reproduce", add_help_option=False, context_settings={"ignore_unknown_options": True}
    )
    @click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
    def reproduce_command(arguments: tuple[str, ...]) -> None:
        """Run the paper's experiments (install roundwise-studies first)."""
        raise click.ClickException(
            "the paper's experiments are a package of their own; pip install roundwise-studies, "
            "or, in a copy of the source, pip install ./studies"
        )
