# ruff: noqa: E501 (paragraphs of the page)
"""The departure study beyond the dense systems: docs/departures-others.md.

    python docs/refresh_departures.py solve pde     # resumable; also sparse, ablation
    python docs/refresh_departures.py store         # what out/ has, into docs/paper/departures.json
    python docs/refresh_departures.py               # the page, from that file; a test makes it again

`solve` and `store` take the variants and the numbers of systems in `PLANS`: the variants without and
with all departures on all of the paper's systems, and every variant on its first ones.
"""

import math
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

from refresh_paper import load, made_on, markdown, origin, plain, rows_of, save, shown

from roundwise.outcomes import progress_bar
from roundwise_studies import paper
from roundwise_studies.protocol import reproduce
from roundwise_studies.released.study import DepartureStudy
from roundwise_studies.released.tables import METRICS, mean_distances
from roundwise_studies.released.tables import usage as usage_rows
from roundwise_studies.released.variants import DEPARTURES, variants
from roundwise_studies.simulated import Settings, numbers
from roundwise_studies.simulated.tables import METHODS

ROOT = Path(__file__).parents[1]
CACHE = ROOT / "out"
MAIN = ("storage", "all", "all, its stream")
PLANS: dict[str, tuple[int, int]] = {"sparse": (100, 12), "pde": (100, 20), "ablation": (100, 12)}
"""Systems of each half: of the main variants, and of all variants; 0 leaves that part out."""
SIZES = Settings().sizes
TITLES = {
    "sparse": "Random sparse systems (Tables 4 and 5)",
    "pde": "PDE systems (Tables 7 and 8)",
    "ablation": "Dense systems without the iteration penalty (Table 9)",
}


def studies(experiment: str) -> dict[str, DepartureStudy]:
    """The main variants on many systems, and every variant on a few."""
    many, few = PLANS[experiment]
    every = variants(experiment)
    main = tuple(variant for variant in every if variant.name in MAIN)
    found = {}
    if many:
        found["main"] = DepartureStudy(Settings(systems=many, sizes=SIZES), experiment, main)
    if few:
        found["each"] = DepartureStudy(Settings(systems=few, sizes=SIZES), experiment, every)
    return found


def solve(experiment: str) -> None:
    for study in studies(experiment).values():
        study.gather(CACHE, 1, progress_bar)


def store() -> None:
    content: dict[str, Any] = {"origin": origin(), "experiments": {}}
    for experiment in PLANS:
        kept: dict[str, Any] = {}
        for part, study in studies(experiment).items():
            results = reproduce(study, CACHE, 1)
            rows = [
                {"variant": name, **{k: v for k, v in row.items() if k != "experiment"}}
                for name, result in results.items()
                for row in numbers.performance(result)
                if row["range"] in result.reported_ranges
            ]
            distances = [{"variant": n, **found} for n, found in mean_distances(results).items()]
            used = [row for row in usage_rows(results) if not math.isnan(float(row["paper"] or 0))]
            kept[part] = {
                "settings": asdict(study.settings),
                "distances": plain(distances),
                "performance": plain(rows) if part == "main" else None,
                "usage": plain(used) if part == "main" else None,
            }
        content["experiments"][experiment] = kept
    save("departures", content)


def distance_table(stored: dict[str, Any]) -> str:
    header = ["variant", *(f"{metric} ({unit})" for metric, unit in METRICS.items())]
    rows = [[row["variant"], *(row[metric] for metric in METRICS)] for row in rows_of(stored)]
    return markdown(header, rows, dict.fromkeys(header[1:], ".2f"))


def comparison(kept: dict[str, Any], experiment: str) -> str:
    """The paper's numbers beside those with and without all departures."""
    metrics = ("success", "ferr", "nbe", "outer", "gmres")
    formats = ("bf16", "tf32", "fp32", "fp64")
    found = {
        (r["variant"], r["tau"], r["method"], r["range"], r["metric"]): r["mean"]
        for r in rows_of(kept["performance"])
    }
    used = {
        (r["variant"], r["tau"], r["method"], r["range"], r["format"]): r["mean"]
        for r in rows_of(kept["usage"])
    }
    ranges = list(dict.fromkeys(r["range"] for r in rows_of(kept["performance"])))
    rows: list[list[Any]] = []
    for tau in (1e-6, 1e-8):
        for method in ("W1", "W2", "FP64"):
            for where in ranges:
                lead = [f"{tau:.0e}".replace("e-0", "e-"), METHODS[method], where]
                theirs = [paper.reported(experiment, tau, method, where, m) for m in metrics]
                stages = paper.stages(experiment, tau, method, where) if method != "FP64" else {}
                cells = [
                    "-" if math.isnan(v) else shown(v, m)
                    for v, m in zip(theirs, metrics, strict=True)
                ]
                shares = [f"{stages[fmt]:.2f}" if stages else "-" for fmt in formats]
                rows.append([*lead, "paper", *cells, *shares])
                for variant in MAIN:
                    mine = [shown(found[variant, tau, method, where, m], m) for m in metrics]
                    key = (variant, tau, method, where)
                    shares = [
                        f"{used[(*key, fmt)]:.2f}" if (*key, fmt) in used else "-"
                        for fmt in formats
                    ]
                    rows.append([*lead, variant, *mine, *shares])
    names = ["success %", "ferr", "nbe", "outer", "GMRES", *formats]
    return markdown(["tau", "method", "kappa", "source", *names], rows)


def page() -> str:
    stored = load("departures")
    parts = [
        "# Where the other tables come from",
        "The [departure study](departures.md) of the dense experiment, for the sparse, the PDE and the ablation experiment. The "
        "released code solves all of them with one solver and one learner, so that the departures are the same; "
        "[text, code, ours](text-code-ours.md) has the three columns. The systems are the paper's own, made again from its "
        "seeds: orders, densities and condition numbers agree with the released files.",
        "```sh\nroundwise reproduce departures --of sparse     # every variant on all systems: hours; resumable\n"
        "roundwise reproduce departures --of pde\nroundwise reproduce departures --of ablation   # solves nothing that --of dense has solved\n```",
        f"{made_on(stored).replace('refresh_paper', 'refresh_departures')}",
        "`storage` is the text followed in the code's kind of arithmetic, `+ x` has departure x alone, `all - x` has all but x, "
        "`all, its stream` has all of them and the random numbers of the code: one training, the paper's own as far as rounding "
        "allows. Means over ten trainings else. Distances are those of the [dense page](departures.md#what-was-run).",
    ]
    for experiment, kept in stored["experiments"].items():
        if not kept:
            continue
        parts.append(f"## {TITLES[experiment]}")
        if "main" in kept:
            count = kept["main"]["settings"]["systems"]
            parts += [
                f"With and without all departures, on {count} training and {count} test systems.",
                comparison(kept["main"], experiment),
                distance_table(kept["main"]["distances"]),
            ]
        if "each" in kept:
            count = kept["each"]["settings"]["systems"]
            parts += [
                f"One at a time, added and left out, on the first {count} systems of each half (the distances are to the paper's "
                "numbers on all of its systems, so that they compare with each other, not with the table above).",
                distance_table(kept["each"]["distances"]),
            ]
    parts.append(
        "## What each departure is\n\n" + "\n".join(f"- `{n}`: {t}." for n, t in DEPARTURES.items())
    )
    return "\n\n".join(part.strip() for part in parts) + "\n"


if __name__ == "__main__":
    if sys.argv[1:2] == ["solve"]:
        for name in sys.argv[2:] or PLANS:
            solve(name)
        sys.exit()
    if sys.argv[1:] == ["store"]:
        store()
    (ROOT / "docs" / "departures-others.md").write_text(page(), encoding="utf-8")
