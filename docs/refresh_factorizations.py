"""Put the rates of LU and Cholesky into docs/native.md: a table and a figure of all machines.

Run by itself or by docs/refresh_native.py. Reads docs/factorizations/*.json, which
benchmarks/factorization_rates.py writes, one file for each machine; measures nothing.
"""

import json
import re
from pathlib import Path
from typing import Any

import matplotlib as mpl

from roundwise_studies.report import Table, format_markdown, replace_block

mpl.use("agg")
from matplotlib import pyplot as plt

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "native.md"
FOLDER = ROOT / "docs" / "factorizations"
FIGURE = ROOT / "docs" / "images" / "factorizations.png"
BY = ("ours", "OpenBLAS", "MKL")
FORMATS = ("fp64", "fp32", "bf16")
STYLES = {"ours": "o-", "OpenBLAS": "s--", "MKL": "^:"}


def records() -> list[dict[str, Any]]:
    """What each machine left, fewest threads first."""
    files = sorted(FOLDER.glob("*.json"))
    found = [json.loads(path.read_text(encoding="utf-8")) for path in files]
    return sorted(found, key=lambda record: max(rate["threads"] for rate in record["rates"]))


def table(machines: list[dict[str, Any]]) -> Table:
    """Gflop/s with all threads, and times as fast as the peers."""
    rows = []
    for record in machines:
        most = max(rate["threads"] for rate in record["rates"])
        last = [rate for rate in record["rates"] if rate["threads"] == most]
        by_case: dict[tuple[str, str, int], dict[str, float]] = {}
        for rate in last:
            case = rate["what"], rate["format"], rate["n"]
            by_case.setdefault(case, {})[rate["by"]] = rate["rate"]
        for (what, fmt, n), rates in by_case.items():
            found = [rates.get(by) for by in BY]
            rows.append([record["machine"], most, what, fmt, n, *found])
    header = ("machine", "threads", "operation", "format", "n", *BY)
    return Table("", header, rows, formats=dict.fromkeys(BY, ".0f"))


def draw(machines: list[dict[str, Any]], path: Path) -> None:
    """Strong scaling of LU: a row for each machine, a column for each format."""
    figure, grid = plt.subplots(
        len(machines), len(FORMATS), figsize=(10, 3.2 * len(machines)), squeeze=False
    )
    for row, record in zip(grid, machines, strict=True):
        lu = [rate for rate in record["rates"] if rate["what"] == "lu"]
        size = min(
            rate["n"] for rate in lu
        )  # the one that was measured with every number of threads
        for axes, fmt in zip(row, FORMATS, strict=True):
            for by in BY:
                points = [r for r in lu if (r["format"], r["by"], r["n"]) == (fmt, by, size)]
                if points:
                    threads = [r["threads"] for r in points]
                    axes.plot(threads, [r["rate"] for r in points], STYLES[by], label=by)
            axes.set_xscale("log", base=2)
            axes.set_yscale("log", base=2)
            axes.xaxis.set_major_formatter("{x:.0f}")
            axes.yaxis.set_major_formatter("{x:.0f}")
            name = re.sub(r" ?\([^)]*\)", "", record["machine"])  # the table has it in full
            axes.set_title(f"{fmt}, n = {size}\n{name}", fontsize=8)
            axes.set_xlabel("threads")
            axes.set_ylabel("Gflop/s")
            axes.legend(fontsize=8)
    figure.tight_layout()
    figure.savefig(path, dpi=110)
    plt.close(figure)


def refresh(page: Path = PAGE, figure: Path = FIGURE) -> None:
    machines = records()
    text = replace_block(
        page.read_text(encoding="utf-8"), "factorizations", format_markdown(table(machines))
    )
    draw(machines, figure)
    page.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    refresh()
