"""Put numbers and figures of the experiments into README.md and the pages here.

    python docs/refresh.py speed           # what `make speed` has written
    python docs/refresh.py dense           # the dense experiment of the paper
    python docs/refresh.py learning        # what benchmarks/bench_learning.py has written
    python docs/refresh.py accuracy        # what benchmarks/bench_accuracy.py has written
    python docs/refresh.py sparse          # what benchmarks/bench_sparse.py has written
    python docs/refresh.py large           # what benchmarks/bench_iterative.py has written
    python docs/refresh.py decisions       # how policies compare, from the shipped facts
    python docs/refresh.py departures      # the departure study
    python docs/refresh.py scale           # what `make scale` has written
    python docs/refresh.py gpu             # the study and the benchmark on a GPU
    python docs/refresh.py machines        # what docs/machines/ has of each machine
    python docs/refresh.py envelope        # what benchmarks/envelope.py has written

What an experiment has solved is taken from ``out/``. A page has its numbers between two comments,
``<!-- begin NAME -->`` and ``<!-- end NAME -->``; the rest of it is left alone.
"""

import csv
import json
import shutil
import sys
from dataclasses import replace
from pathlib import Path

from roundwise.machine import lu_threads
from roundwise.outcomes import progress_bar
from roundwise.policies.facts import shipped_facts
from roundwise_studies import paper
from roundwise_studies.default_policy.sparse_methods import COMPARED
from roundwise_studies.protocol import reproduce
from roundwise_studies.released import figures as departure_figures
from roundwise_studies.released.study import DepartureStudy
from roundwise_studies.released.tables import all_tables
from roundwise_studies.report import Figure, Table, format_markdown, replace_block, write_figure
from roundwise_studies.simulated import SimulatedStudy
from roundwise_studies.simulated.figures import usage
from roundwise_studies.simulated.running import Result, range_metric
from roundwise_studies.simulated.tables import METHODS

ROOT = Path(__file__).parents[1]
IMAGES = ROOT / "docs" / "images"
CACHE = ROOT / "out"
TAU = 1e-6

MAIN_VARIANTS = ("paper", "operation", "storage", "all", "all, its stream")
FP64_VARIANTS = ("paper", "operation", "storage", "+ scipy", "all")
GPU_FIGURE = (
    "![Times faster than cupy.linalg.solve by kind and size of system, with all costs]"
    "(images/native-gpu.png)"
)


def update(path: Path, blocks: dict[str, str]) -> None:
    page = path.read_text(encoding="utf-8")
    for name, content in blocks.items():
        page = replace_block(page, name, content)
    path.write_text(page, encoding="utf-8")


def performance_table(result: Result) -> Table:
    """The paper's numbers and ours at one tau, by range."""
    metrics = {"ferr": "ferr", "gmres": "GMRES"}
    rows = []
    for method, label in METHODS.items():
        for kappa_range in result.ranges:
            if method == "FP64":
                table = result.baselines[TAU]
                means = {m: range_metric(table, kappa_range, m) for m in (*metrics, "strict")}
            else:
                case = result.case(method, TAU)
                means = {m: case.metric(kappa_range, m).mean for m in (*metrics, "strict")}
            row = [label, kappa_range]
            for metric in metrics:
                row += [paper.reported("dense", TAU, method, kappa_range, metric), means[metric]]
            rows.append([*row, means["strict"]])
    pairs = [f"{label}, {who}" for label in metrics.values() for who in ("paper", "ours")]
    return Table(
        "",
        ["policy", "kappa", *pairs, "strict success %"],
        rows,
        formats={pairs[2]: ".2f", pairs[3]: ".2f", "strict success %": ".1f"},
    )


def bare(table: Table) -> str:
    """The rows of a table in Markdown, without caption and note."""
    text = format_markdown(replace(table, caption="", note=""))
    return "\n".join(line for line in text.splitlines() if line.startswith("|"))


def only(table: Table, variants: tuple[str, ...]) -> Table:
    """The rows of some variants, which the second column names."""
    return replace(table, rows=[row for row in table.rows if row[1] in variants])


def draw(figure: Figure, name: str = "") -> None:
    written = write_figure(replace(figure, name=name or figure.name), IMAGES, "png")
    print(f"{written.relative_to(ROOT)}: {written.stat().st_size / 1000:.0f} kB")


def dense() -> None:
    study = SimulatedStudy(experiments=("dense",))
    result = reproduce(study, CACHE, jobs=-1, bars=progress_bar)["dense"]
    draw(usage(result), "reproduce")
    update(ROOT / "docs" / "reproduction.md", {"reproduction": bare(performance_table(result))})


def _ratio(median: str, solved: str) -> str:
    return f"{float(median):.2f} ({solved})" if median else ""


def speed_tables(head: list[str], rows: list[list[str]]) -> tuple[Table, Table]:
    """The summary of `make speed` in full, and what README.md shows of it.

    README.md leaves out means, the solver beside ours, and the group that joins two others.
    """
    shown = [[cell if i < 3 else float(cell) for i, cell in enumerate(row[:-1])] for row in rows]
    full = Table("", head[:-1], shown, formats=dict.fromkeys(head[3:-1], ".2f"))
    told = "median", "worst", "in turns: median", "in turns: worst"
    kept = [head.index(name) for name in ("systems", "count", "peer", *told)]
    few = [[row[i] for i in kept] for row in shown if ", and " not in str(row[0])]
    columns = ["systems", "count", "compared with", "at rest: median", "worst", *told[2:]]
    return full, Table("", columns, few, formats=dict.fromkeys(columns[3:], ".2f"))


def speed() -> None:
    with (CACHE / "solve-summary.csv").open(encoding="utf-8") as file:
        head, *rows = csv.reader(file)
    full, few = speed_tables(head, rows)
    with (CACHE / "solve-peers.csv").open(encoding="utf-8") as file:
        head, *rows = csv.reader(file)
    # Columns in pairs: a ratio, and how many systems it is the median of.
    shown = [[row[0], row[1], *map(_ratio, row[2::2], row[3::2])] for row in rows]
    peers = Table("", [*head[:2], *head[2::2]], shown)
    update(ROOT / "README.md", {"speed": bare(few)})
    page = ROOT / "docs" / "benchmarks.md"
    update(page, {"speed-in-full": bare(full), "peers": bare(peers)})
    shutil.copyfile(CACHE / "solve.png", IMAGES / "solve.png")


def learning() -> None:
    with (CACHE / "learning-summary.csv").open(encoding="utf-8") as file:
        head, *rows = csv.reader(file)
    shown = [[row[0], *map(float, row[1:])] for row in rows]
    table = Table("", head, shown, formats=dict.fromkeys(head[1:-1], ".2f") | {head[-1]: ".3f"})
    verdicts = (CACHE / "learning.txt").read_text(encoding="utf-8").strip()
    blocks = {"learning": f"{bare(table)}\n\n{verdicts}"}
    update(ROOT / "docs" / "how-it-decides.md", blocks)
    shutil.copyfile(CACHE / "learning.png", IMAGES / "learning.png")


def accuracy() -> None:
    measured = (CACHE / "accuracy.md").read_text(encoding="utf-8").strip()
    update(ROOT / "docs" / "accuracy.md", {"forward": measured})


def sparse() -> None:
    blocks = {"sparse-speed": "sparse.md", "sparse-sequences": "sequences.md"}
    measured = {name: (CACHE / file).read_text(encoding="utf-8") for name, file in blocks.items()}
    found = {name: text.strip() for name, text in measured.items()}
    update(ROOT / "docs" / "sparse-engines.md", found)


def large() -> None:
    measured = (CACHE / "iterative.md").read_text(encoding="utf-8").strip()
    update(ROOT / "docs" / "large-systems.md", {"large": measured})


def scale() -> None:
    measured = (CACHE / "scale.md").read_text(encoding="utf-8").strip()
    update(ROOT / "docs" / "cluster.md", {"scale": measured})


def decisions() -> None:
    compared = shipped_facts().provenance["comparison"]
    table = Table("", compared["columns"], compared["rows"])
    sparse = json.loads(COMPARED.read_text(encoding="utf-8"))
    methods = bare(Table("", sparse["columns"], sparse["rows"]))
    blocks = {"decisions": bare(table), "sparse-methods": f"{methods}\n\n{sparse['source']}."}
    update(ROOT / "docs" / "how-it-decides.md", blocks)


def departures() -> None:
    results = reproduce(DepartureStudy(), CACHE, jobs=-1, bars=progress_bar)
    draw(departure_figures.usage(results))
    draw(departure_figures.numbers(results, ["ferr", "gmres"]))
    tables = all_tables(results)
    few = {"fp64": FP64_VARIANTS, "w1-1e-6": MAIN_VARIANTS, "w2-1e-6": MAIN_VARIANTS}
    blocks = {name: bare(only(tables[name], variants)) for name, variants in few.items()}
    update(ROOT / "docs" / "departures.md", {"distances": bare(tables["distances"]), **blocks})


def gpu(out: Path = CACHE, page: Path = ROOT / "docs" / "gpu.md", images: Path = IMAGES) -> None:
    """What `reproduce native --device cuda` and bench_gpu.py have written; one may be missing."""
    study, bench, blocks = out / "native-gpu", out / "gpu.md", {}
    if (study / "results.json").exists():
        results = json.loads((study / "results.json").read_text(encoding="utf-8"))
        tables = (
            (study / "tables" / f"native-gpu-{name}.md").read_text(encoding="utf-8").strip()
            for name in ("policies", "sizes")
        )
        summary = "\n".join(f"- {line}" for line in results["summary"])
        blocks["gpu-study"] = "\n\n".join([summary, *tables, GPU_FIGURE])
        shutil.copyfile(study / "figures" / "native-gpu.png", images / "native-gpu.png")
    if bench.exists():
        blocks["gpu-benchmark"] = bench.read_text(encoding="utf-8").strip()
    if not blocks:
        raise SystemExit(f"neither {study} nor {bench} is there; run make gpu-docs")
    update(page, blocks)


def machines(folder: Path = ROOT / "docs" / "machines") -> None:
    """The tables of bench_solve.py --dense and bench_stages.py, one machine after the other.

    A machine's files are copied there from its out/, and named by it.
    """
    blocks = {}
    for block, pattern, parts in (
        ("dense-peers", "solve-dense-*.json", ("",)),
        ("stages", "stages-*.json", ("stages", "beside", "together")),
    ):
        told = []
        for path in sorted(folder.glob(pattern)):
            saved = json.loads(path.read_text(encoding="utf-8"))
            tables = [_machine_table(saved[part] if part else saved) for part in parts]
            missing = "".join(f" Without {reason}." for reason in saved.get("absent", []))
            told.append("\n\n".join([f"{saved['machine']}.{missing}", *tables]))
        blocks[block] = "\n\n".join(told)
    blocks["lu-threads"] = _threads_taken()
    update(ROOT / "docs" / "native.md", blocks)


def _threads_taken() -> str:
    """The threads of a small LU with all cores granted, by order, on each machine of the prices."""
    machines = lu_threads.shipped()
    orders = sorted(machines[0].prices[8])
    rows = []
    for machine in machines:
        name = machine.source.partition(" on ")[2].partition(f", {machine.cores} cores")[0]
        for size, fmt in ((8, "fp64"), (4, "fp32")):
            taken = [lu_threads.lu_threads(n, size, machine.cores) for n in orders]
            rows.append([f"{name}, {machine.cores} cores", fmt, *taken])
    return bare(Table("", ("machine", "format", *(f"n = {n}" for n in orders)), rows))


def _machine_table(saved: dict | list) -> str:
    """Columns and rows, or a list of rows by name."""
    if isinstance(saved, list):
        saved = {"columns": list(saved[0]), "rows": [list(row.values()) for row in saved]}
    cells = [[round(x, 2) if isinstance(x, float) else x for x in row] for row in saved["rows"]]
    return bare(Table("", saved["columns"], cells))


CONDITIONS = {
    "envelope.json": "In turns with its peers, on an idle machine",
    "envelope-beside-load.json": "Beside as many busy processes as there are cores",
    "envelope-after-numpy.json": "Each call just after a product of NumPy",
    "envelope-first-call.json": "First calls of a process and of a size",
    "envelope-joblib-threads.json": "As many calls at a time as there are cores, in threads",
}
SHOWN = ("solve, k <= 32", "sparse", "stacks", "lstsq", "F.solve, k < n/4")
"""The kinds of drawn calls in README.md."""


def envelope(out: Path = CACHE) -> None:
    """Drawn calls: all kinds into docs/benchmarks.md, a few into README.md."""
    told = []
    for name, condition in CONDITIONS.items():
        if not (out / name).exists():
            continue
        saved = json.loads((out / name).read_text(encoding="utf-8"))
        drawn = f"{len(saved['rows'])} calls, seed {saved['options']['seed']}"
        largest = f"at most {saved['options']['largest']} unknowns"
        told.append(f"**{condition}**: {drawn}, {largest}. {saved['machine']}.")
        if saved["control"]:
            low, middle, high = (f"{ratio:.2f}" for ratio in saved["control"])
            told[-1] += f" A peer against itself: {middle} (5 to 95 %: {low} to {high})."
        told += _drawn_tables(saved)
    if not told:
        raise SystemExit(f"{out / 'envelope.json'} is not there; run make envelope-docs")
    update(ROOT / "docs" / "benchmarks.md", {"envelope": "\n\n".join(told)})
    if (out / "envelope.json").exists():
        saved = json.loads((out / "envelope.json").read_text(encoding="utf-8"))
        rows = [row[:4] for row in saved["long"] if row[0] in SHOWN]
        columns = ("calls", "count", "median", "worst")
        table = Table("", columns, rows, formats={"median": ".2f", "worst": ".2f"})
        update(ROOT / "README.md", {"envelope": bare(table)})


def _drawn_tables(saved: dict) -> list[str]:
    """Ratios of the calls that take long, differences of the others."""
    shares = ["< 0.9", "< 0.8", "< 0.7"]
    long = [[*row[:4], *(f"{share:.0%}" for share in row[4:])] for row in saved["long"]]
    columns = ["calls of 0.2 ms and more", "count", "median ratio", "worst", *shares]
    formats = {"median ratio": ".2f", "worst": ".2f"}
    ratios = bare(Table("", columns, long, formats=formats))
    columns = ["shorter calls, ours minus the best peer's", "count", "median, us", "worst, us"]
    formats = dict.fromkeys(columns[2:], ".1f")
    return [ratios, bare(Table("", columns, saved["short"], formats=formats))]


COMMANDS = (
    speed,
    dense,
    accuracy,
    learning,
    sparse,
    large,
    decisions,
    departures,
    scale,
    gpu,
    machines,
    envelope,
)

if __name__ == "__main__":
    {f.__name__: f for f in COMMANDS}[sys.argv[1]]()
