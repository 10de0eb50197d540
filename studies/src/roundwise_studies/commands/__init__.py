"""The commands of the laboratory, which `roundwise` has where this package is installed."""

import click

from roundwise_studies.commands.evaluate import evaluate_command
from roundwise_studies.commands.reproduce import reproduce_command
from roundwise_studies.commands.tables import fill_command, merge_command
from roundwise_studies.commands.train import train_command

COMMANDS: tuple[click.Command, ...] = (
    train_command,
    evaluate_command,
    reproduce_command,
    fill_command,
    merge_command,
)
