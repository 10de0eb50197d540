"""The programs of examples/programs, as they are and under ``python -m roundwise run``.

Run on an idle machine: ``python benchmarks/bench_programs.py`` (minutes; names of programs for
some). Whole processes are timed, from start to end, in turns. A program whose package is not
installed is left out.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

from timing import in_turns, timed

from roundwise.machine.identity import Machine
from roundwise_studies.report import Table, format_text

PROGRAMS = Path(__file__).parents[1] / "examples" / "programs"


def process(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "names", nargs="*", default=sorted(one.stem for one in PROGRAMS.glob("*.py"))
    )
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--calls", action="store_true", help="show each program's table of calls")
    arguments = parser.parse_args()
    print(Machine.this())
    rows = []
    for name in arguments.names:
        path = str(PROGRAMS / f"{name}.py")
        tried = process("-m", "roundwise", "run", path)
        if "ModuleNotFoundError" in tried.stderr:
            continue
        tried.check_returncode()
        if arguments.calls:
            print(f"\n{name}.py{tried.stderr}")
        plain, under = in_turns(
            arguments.repeats,
            lambda path=path: timed(lambda: process(path)),
            lambda path=path: timed(lambda: process("-m", "roundwise", "run", path)),
        )
        ratios = sorted(one / other for one, other in zip(plain, under, strict=True))
        told = [f"{sorted(taken)[len(taken) // 2]:.2f}" for taken in (plain, under)]
        spread = f"{ratios[0]:.2f} to {ratios[-1]:.2f}"
        rows.append((name, *told, f"{ratios[len(ratios) // 2]:.2f}", spread))
    columns = ("program", "as it is", "under run", "as it is / under run", "each turn")
    print(format_text(Table("Seconds", columns, rows)))


if __name__ == "__main__":
    main()
