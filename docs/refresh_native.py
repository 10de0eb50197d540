"""Put what `make native-docs` measured into docs/native.md.

Run by ``make native-docs``. A page has its numbers between two comments, ``<!-- begin NAME -->``
and ``<!-- end NAME -->``; the rest of it is left alone.
"""

import csv
import shutil
import sys
from pathlib import Path

import refresh_factorizations

from roundwise_studies.report import Table, format_markdown, replace_block

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "native.md"
IMAGES = ROOT / "docs" / "images"
LU = (
    "n", "fp64/ms", "fp32/ms", "bf16/ms", "dgetrf/fp64", "sgetrf/fp32", "dgetrf/bf16",
    "sgetrf/bf16", "dpotrf/fp64", "spotrf/fp32",
)  # fmt: skip
FORMATS = {
    "tau": ".0e",
    "speedup": ".2f", "with features": ".2f", "memory": ".2f", "peak": ".2f", "ms": ".1f",
    "ms FP64": ".1f", "ms features": ".1f", "ferr": ".1e", "nbe": ".1e", "median": ".2f",
    "worst": ".2f", "median, all costs": ".2f", "worst, all costs": ".2f", "times faster": ".2f",
    "peak MB": ".1f", "factor MB": ".1f", **dict.fromkeys(LU[1:], ".2f"),
}  # fmt: skip
VALIDATION = (
    "set", "policy", "source", "tau", "actions", "reduced", "success", "FP64 level", "speedup",
    "with features", "memory", "peak", "ms", "ms FP64", "ferr", "nbe",
)  # fmt: skip
RATIOS = (
    "set", "policy", "against", "median", "worst", "median, all costs", "worst, all costs",
    "missed",
)  # fmt: skip
SIZES = ("family", "n", "method", "ms", "times faster", "met", "steps", "peak MB")
FIGURES = {
    "native-figure": "![Times faster than numpy.linalg.solve on each validation system, all costs "
    "included](images/native.png)",
    "scaling-figure": "![Times faster than FP64, by size](images/scaling.png)",
}
LEARNED = ("RL(W1)", "RL(W2)", "time", "time, cheap state")


def rows_of(path: Path) -> list[dict[str, str]]:
    """A CSV file that the commands wrote."""
    if not path.exists():
        raise SystemExit(f"{path} is missing; run make native-docs")
    with path.open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


def bare(rows: list[dict[str, str]], columns: tuple[str, ...]) -> str:
    """Some columns as Markdown, without caption."""
    cells = [[_cell(row[column]) for column in columns] for row in rows]
    formats = {name: spec for name, spec in FORMATS.items() if name in columns}
    return format_markdown(Table("", columns, cells, formats=formats))


def _cell(text: str) -> str | int | float | None:
    if text.lstrip("-").isdecimal():
        return int(text)
    try:
        return float(text)
    except ValueError:
        return text or None


def blocks(native: Path, scaling: Path, lu: Path) -> dict[str, str]:
    """The generated parts of the page by name."""
    validation = rows_of(native / "tables" / "native-validation.csv")
    ratios = rows_of(native / "tables" / "native-ratios.csv")
    shown = [
        row
        for row in ratios
        if row["policy"] in LEARNED
        or (row["set"] == "references" and row["against"] in ("numpy.linalg.solve", "dgesv"))
    ]
    sizes = {name: rows_of(scaling / f"scaling-{name}.csv") for name in ("dense", "sparse")}
    learned = [row for row in validation if row["policy"] in LEARNED]
    return {
        "lu": bare(rows_of(lu), LU),
        "validation": bare(learned, VALIDATION),
        "ratios": bare(shown, RATIOS),
        "scaling-dense": bare(sizes["dense"], SIZES),
        "scaling-sparse": bare(sizes["sparse"], (*SIZES, "factor MB")),
        **FIGURES,
    }


def refresh(
    native: Path, scaling: Path, lu: Path, page: Path = PAGE, images: Path = IMAGES
) -> None:
    text = page.read_text(encoding="utf-8")
    for name, content in blocks(native, scaling, lu).items():
        text = replace_block(text, name, content)
    for source in (native / "figures" / "native.png", scaling / "scaling.png"):
        shutil.copyfile(source, images / source.name)
    page.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    paths = [Path(argument) for argument in sys.argv[1:]]
    out = ROOT / "out"
    refresh(*(paths or (out / "native", out / "scaling", out / "lu.csv")))
    refresh_factorizations.refresh()
