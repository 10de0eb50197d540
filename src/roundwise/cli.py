"""The `roundwise` command.

Errors are one line on stderr. Exit codes: 0 success, 1 an error of the library or an answer that
was not accepted, 2 wrong arguments, 130 interrupted. A command that is started with SIGINT ignored
(in the background of a script) goes on ignoring it, as POSIX wants: Python sets no handler then.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Any

from roundwise import RoundwiseError, __version__

try:
    import click
except ModuleNotFoundError:
    # Only the command imports this module, and its user expects a line, not a traceback.
    raise SystemExit("roundwise: the command needs click; pip install roundwise[cli]") from None

LIBRARY = {
    "run": ("run:run_command", "Run a program whose solves go through Roundwise."),
    "solve": ("solve:solve_command", "Solve A x = b in as little precision as it takes."),
    "compare": ("compare:compare_command", "Time roundwise.solve on this machine, beside NumPy."),
    "calibrate": (
        "calibrate:calibrate_command",
        "Measure what native arithmetic costs on this machine.",
    ),
    "info": ("info:info_command", "Tell what is installed, or what a table holds."),
}
"""The commands of the library: where each is, and the line about it. A command is imported when it
is called: the list of them is shown at once."""

LABORATORY = {
    "train": ("train:train_command", "Train a policy: which systems need which precisions."),
    "evaluate": (
        "evaluate:evaluate_command",
        "Judge a saved policy on systems that it has not seen.",
    ),
    "reproduce": (
        "reproduce:reproduce_command",
        "Run the paper's experiments, our numbers beside its own.",
    ),
    "fill": ("tables:fill_command", "Run GMRES-IR with every action on the paper's systems."),
    "merge": ("tables:merge_command", "Merge tables of outcomes, say those of shards."),
}
"""The commands of roundwise-studies."""


def refusal(name: str) -> click.Command:
    """The command that stands for one of the laboratory where that is not installed."""

    @click.command(name, add_help_option=False, context_settings={"ignore_unknown_options": True})
    @click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
    def refuse(arguments: tuple[str, ...]) -> None:
        raise click.ClickException(
            f"{name} is in a package of its own; pip install roundwise-studies, or, in a copy "
            "of the source, pip install ./studies"
        )

    return refuse


def loaded(package: str, home: str) -> click.Command:
    module, _, name = home.partition(":")
    command: click.Command = getattr(import_module(f"{package}.{module}"), name)
    return command


class OneLineErrors(click.Group):
    """A group of commands whose errors are one line and never a traceback."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)  # in the order of the lists above, not alphabetic

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name in LIBRARY:
            return loaded("roundwise.commands", LIBRARY[cmd_name][0])
        if cmd_name not in LABORATORY:
            return None
        try:
            return loaded("roundwise_studies.commands", LABORATORY[cmd_name][0])
        except ModuleNotFoundError as error:
            if error.name != "roundwise_studies":
                raise
            return refusal(cmd_name)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for title, listed in (("Commands", LIBRARY), ("With roundwise-studies", LABORATORY)):
            with formatter.section(title):
                formatter.write_dl([(name, about) for name, (_, about) in listed.items()])

    def main(  # type: ignore[override]  # click's overloads tell return types apart
        self, args: Sequence[str] | None = None, prog_name: str | None = None, **extra: Any
    ) -> Any:
        extra["standalone_mode"] = False  # click would print the usage before each error
        try:
            code = super().main(args, prog_name, **extra)
        except click.UsageError as error:
            path = error.ctx.command_path if error.ctx else self.name
            complain(f"{path}: {error.format_message().rstrip('.')}; see {path} --help")
            code = error.exit_code
        except click.ClickException as error:
            complain(f"roundwise: {error.format_message()}")
            code = error.exit_code
        except click.Abort:
            complain("roundwise: interrupted")
            code = 130
        except (RoundwiseError, ImportError, OSError) as error:
            complain(f"roundwise: {error}")
            code = 1
        sys.exit(code if isinstance(code, int) else 0)


def complain(message: str) -> None:
    click.echo(" ".join(message.split()), err=True)


@click.group(
    cls=OneLineErrors,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(__version__, message="%(prog)s %(version)s")
@click.pass_context
def main(ctx: click.Context) -> None:
    """Learn how little floating-point precision each step of a solver needs.

    \b
    Examples
      roundwise run script.py
      roundwise solve A.mtx b.mtx -o x.mtx
      roundwise compare
      roundwise train dense -o policy.json --train 30 --jobs -1
      roundwise evaluate policy.json dense --test 20 --jobs -1
      roundwise solve A.mtx --policy policy.json

    Each command explains itself: roundwise COMMAND --help.
    """
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


for known in (*LIBRARY, *LABORATORY):
    main.commands[known] = click.Command(known)  # its name alone: `get_command` imports it


if __name__ == "__main__":
    main(prog_name="roundwise")
