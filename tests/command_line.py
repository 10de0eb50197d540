"""Running the `roundwise` command in this process."""

from click.testing import CliRunner

from roundwise.cli import main
from roundwise.outcomes import OutcomeTable, OutcomeTableError


def roundwise(*args):
    return CliRunner().invoke(main, [str(arg) for arg in args], prog_name="roundwise")


def succeed(*args):
    result = roundwise(*args)
    assert (result.exit_code, result.stderr) == (0, ""), result.output
    return result.stdout


def fail(code, *args):
    """The one line that a failing command prints."""
    result = roundwise(*args)
    assert result.exit_code == code, result.output
    assert result.stdout == ""
    assert result.stderr.count("\n") == 1, result.stderr
    assert "Traceback" not in result.stderr
    return result.stderr


def stored(path):
    """Outcomes in a table that another process may be making just now."""
    try:
        return len(OutcomeTable(path, must_exist=True))
    except OutcomeTableError:
        return 0
