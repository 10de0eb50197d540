"""``python -m roundwise run script.py``: an unchanged program, faster where Roundwise is.

The program's processes are followed, too: those that it forks, and those that it starts with the
same Python. Each leaves its calls in a folder, and the first one writes the table, to stderr.
"""

from __future__ import annotations

import atexit
import json
import os
import runpy
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from types import ModuleType

from roundwise.integrations.calls import Ledger
from roundwise.integrations.replacing import AtImport, replacing_numpy

VARIABLE = "ROUNDWISE_RUN"
"""Tells a program's processes where to leave their calls, and whether to check answers."""

USAGE = """\
usage: python -m roundwise run [--check] script.py [arguments]
       python -m roundwise run [--check] -m module [arguments]

Run a program whose calls of NumPy's and SciPy's solvers go through Roundwise where that is expected
to be faster, and write a table of them to stderr at the end. --check compares every answer with the
original function's.

Example: python -m roundwise run --check simulate.py --steps 100
"""


def run(arguments: Sequence[str]) -> int:
    """What follows ``run``; returns the exit code, unless the program raises."""
    given = list(arguments)
    check = is_module = False
    while given and given[0].startswith("-"):
        option = given.pop(0)
        if option == "--check":
            check = True
        elif option == "-m":
            is_module = True
            break
        else:
            help_asked = option in ("-h", "--help")
            print(USAGE, end="", file=sys.stdout if help_asked else sys.stderr)
            return 0 if help_asked else 2
    if not given:
        print(USAGE, end="", file=sys.stderr)
        return 2
    if not is_module and not Path(given[0]).exists():
        print(f"roundwise: there is no file {given[0]}", file=sys.stderr)
        return 2
    first = os.getpid()
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        begin_at = Path(__file__).parent / "startup"
        before = os.environ.get("PYTHONPATH")
        os.environ[VARIABLE] = json.dumps({"folder": folder, "check": check})
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (str(begin_at), before)))
        ledger = stack.enter_context(replacing_numpy(check=check))
        _follow_forks(ledger, Path(folder))
        try:
            _execute(given, is_module)
        finally:
            if os.getpid() == first:
                del os.environ[VARIABLE]
                ledger.read(sorted(Path(folder).glob("*.json")))
                sys.stdout.flush()
                print(f"\n{ledger}", file=sys.stderr)
    return 0


def _execute(given: list[str], is_module: bool) -> None:
    sys.argv = given
    if is_module:
        sys.path.insert(0, os.getcwd())
        runpy.run_module(given[0], run_name="__main__", alter_sys=True)
    else:
        sys.path.insert(0, str(Path(given[0]).resolve().parent))
        runpy.run_path(given[0], run_name="__main__")


_FOR_LIFE = ExitStack()
"""What lasts as long as a process that was started."""


def begin_in_subprocess() -> None:
    """Replace in a process that a program under `run` has started."""
    asked = json.loads(os.environ[VARIABLE])
    folder = Path(asked["folder"])
    ledger = _FOR_LIFE.enter_context(replacing_numpy(check=asked["check"]))
    atexit.register(_save, ledger, folder)
    _follow_forks(ledger, folder)


def _save(ledger: Ledger, folder: Path) -> None:
    if ledger.places and folder.exists():
        ledger.save(folder / f"{os.getpid()}.json")


def _follow_forks(ledger: Ledger, folder: Path) -> None:
    """Processes forked by `multiprocessing` end without `atexit`, but with its finalizers."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=ledger.clear)

    def then(module: ModuleType) -> None:
        def begin(ledger: Ledger) -> None:
            module.Finalize(ledger, _save, (ledger, folder), exitpriority=0)

        module.register_after_fork(ledger, begin)

    name = "multiprocessing.util"
    if name in sys.modules:
        then(sys.modules[name])
    else:
        sys.meta_path.insert(0, AtImport([name], then))
