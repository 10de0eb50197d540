"""The `roundwise` command.

Errors are one line on stderr. Exit codes: 0 success, 1 an error of the library or an answer that
was not accepted, 2 wrong arguments, 130 interrupted. A command that is started with SIGINT ignored
(in the background of a script) goes on ignoring it, as POSIX wants: Python sets no handler then.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from roundwise import RoundwiseError, __version__

try:
    import click
except ModuleNotFoundError:
    # Only the command imports this module, and its user expects a line, not a traceback.
    raise SystemExit("roundwise: the command needs click; pip install roundwise[cli]") from None

from roundwise.commands.calibrate import calibrate_command
from roundwise.commands.compare import compare_command
from roundwise.commands.info import info_command
from roundwise.commands.run import run_command
from roundwise.commands.solve import solve_command

try:
    from roundwise_studies.commands import COMMANDS as LABORATORY
except ModuleNotFoundError as error:
    if error.name != "roundwise_studies":
        raise

    def refusal(name: str) -> click.Command:
        """What stands for a command of the laboratory where that is not installed."""

        @click.command(
            name, add_help_option=False, context_settings={"ignore_unknown_options": True}
        )
        @click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
        def refuse(arguments: tuple[str, ...]) -> None:
            """Needs roundwise-studies."""
            raise click.ClickException(
                f"{name} is in a package of its own; pip install roundwise-studies, or, in a copy "
                "of the source, pip install ./studies"
            )

        return refuse

    LABORATORY = tuple(map(refusal, ("train", "evaluate", "reproduce", "fill", "merge")))


class OneLineErrors(click.Group):
    """A group of commands whose errors are one line and never a traceback."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)  # in the order of the list below, not alphabetic

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


for command in (
    run_command,
    solve_command,
    compare_command,
    calibrate_command,
    info_command,
    *LABORATORY,
):
    main.add_command(command)


if __name__ == "__main__":
    main(prog_name="roundwise")
