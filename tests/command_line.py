"""Running the `roundwise` command, in this process or, to interrupt it, in another one."""

import re
import subprocess
import sys

from click.testing import CliRunner

from roundwise.cli import main
from roundwise.outcomes import OutcomeTable, OutcomeTableError


def roundwise(*args):
    return CliRunner().invoke(main, [str(arg) for arg in args], prog_name="roundwise")


def succeed(*args):
    result = roundwise(*args)
    # On a busy machine, a command may take so long that it tells how far it is.
    told = [line for line in result.stderr.splitlines() if not re.search(r"\d+ of \d+ done", line)]
    assert (result.exit_code, told) == (0, []), result.output
    return result.stdout


def fail(code, *args):
    """The one line that a failing command prints."""
    result = roundwise(*args)
    assert result.exit_code == code, result.output
    assert result.stdout == ""
    assert result.stderr.count("\n") == 1, result.stderr
    assert "Traceback" not in result.stderr
    return result.stderr


def refuse(arguments, complaint, folder, monkeypatch):
    """Wrong arguments are refused with a line about them, and leave an empty folder empty."""
    monkeypatch.chdir(folder)
    line = fail(2, *arguments.split())
    assert complaint in line
    assert "--help" in line
    assert list(folder.iterdir()) == []


def stored(path):
    """Outcomes in a table that another process may be making just now."""
    try:
        return len(OutcomeTable(path, must_exist=True))
    except OutcomeTableError:
        return 0


INTERRUPTED = """
import signal, sys
# Tests may run in the background, where SIGINT is ignored, and children inherit that.
signal.signal(signal.SIGINT, getattr(signal, sys.argv[1]))
from roundwise.cli import main
from roundwise.outcomes import OutcomeTable
write, writes = OutcomeTable.write, []

def interrupted(self, results):
    writes.append(results)
    if len(writes) == 2:
        signal.raise_signal(signal.SIGINT)
    return write(self, results)

OutcomeTable.write = interrupted
main(sys.argv[2:], prog_name="roundwise")
"""


def interrupt(*args, handler="default_int_handler"):
    """Run a command that gets SIGINT when it writes to a table for the second time.

    `handler` names what the command does about SIGINT when it starts: the default, or SIG_IGN.
    """
    command = [sys.executable, "-c", INTERRUPTED, handler, *map(str, args)]
    return subprocess.run(command, capture_output=True, text=True, timeout=300)
