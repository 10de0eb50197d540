# ruff: noqa: E501 (paragraphs of the page)
"""What the paper left for later: docs/beyond-the-paper.md.

python -m roundwise_studies.beyond             # writes out/beyond/*.json
python docs/refresh_beyond.py store            # these into docs/paper/beyond.json
python docs/refresh_beyond.py                  # the page, from that file; a test makes it again
"""

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from refresh_paper import load, markdown, origin, plain, rows_of, save

from roundwise_studies.simulated.tables import METHODS

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "out" / "beyond"

Rows = list[dict[str, Any]]


def store(folder: Path) -> None:
    """Every part that was run; parts that were not keep what is stored."""
    try:
        parts = load("beyond")["parts"]
    except FileNotFoundError:
        parts = {}
    for file in sorted(folder.glob("*.json")):
        found = json.loads(file.read_text(encoding="utf-8"))
        kept = {name: found[name] for name in ("machine", "processor_seconds")}
        parts[file.stem] = {**kept, "rows": plain(found["rows"])}
    save("beyond", {"origin": origin(), "parts": parts})


def number(value: float | None, digits: int = 2) -> str:
    return "-" if value is None else f"{value:.{digits}f}"


def regret(row: dict[str, Any]) -> str:
    return f"{row['regret']:.2f} [{row['low']:.2f}, {row['high']:.2f}]"


def wide(rows: Rows, keys: Sequence[str], header: str) -> str:
    """A line for each setting: W1's numbers, then W2's."""
    found: dict[tuple[Any, ...], dict[str, dict[str, Any]]] = {}
    for row in rows:
        found.setdefault(tuple(row[key] for key in keys), {})[row["weights"]] = row
    columns = [header, "regret W1", "low W1", "regret W2", "low W2", "strict % W2"]
    cells = []
    for key, by_weight in found.items():
        line: list[Any] = [", ".join(part for part in map(str, key) if part)]
        for weight in ("W1", "W2"):
            line += [regret(by_weight[weight]), number(by_weight[weight]["stages below FP64"])]
        cells.append([*line, number(by_weight["W2"]["strict %"], 1)])
    return markdown(columns, cells)


def literature(rows: Rows) -> str:
    cells = [
        [r["configuration"], f"`{r['action']}`", number(r["strict %"], 1), f"{r['median ferr']:.1e}",
         f"{r['median nbe']:.1e}", number(r["GMRES"], 1), number(r["regret W1"]), number(r["regret W2"])]
        for r in rows
    ]  # fmt: skip
    header = [
        "configuration",
        "u_f, u, u_g, u_r",
        "strict %",
        "median ferr",
        "median nbe",
        "GMRES",
        "regret W1",
        "regret W2",
    ]
    return markdown(header, cells)


def tasks(rows: Rows) -> str:
    cells = [
        [r["task"], r["reward"], r["actions"], f"{r['training']} + {r['test']}", regret(r), number(r["regret FP64"]),
         number(r["regret fixed"]), f"`{r['fixed']}`", number(r["strict %"], 1), number(r["stages below FP64"])]
        for r in rows
    ]  # fmt: skip
    header = [
        "task",
        "reward",
        "actions",
        "problems",
        "regret",
        "of FP64",
        "of the best fixed",
        "best fixed action",
        "strict %",
        "low",
    ]
    return markdown(header, cells)


def patience(rows: Rows) -> str:
    def shown(row: dict[str, Any], name: str) -> str:
        value = row[name]
        if value is None:
            return "-"
        return f"{value:.1e}" if name in ("ferr", "nbe") else f"{value:.2f}"

    names = ("success", "ferr", "nbe", "outer", "gmres")
    cells = [
        [f"{r['tau']:.0e}", METHODS[r["policy"]], r["kappa"], r["source"], *(shown(r, n) for n in names)]
        for r in rows
    ]  # fmt: skip
    return markdown(
        ["tau", "policy", "kappa", "source", "success %", "ferr", "nbe", "outer", "GMRES"], cells
    )


def page() -> str:
    stored = load("beyond")
    parts = {name: rows_of(part["rows"]) for name, part in stored["parts"].items()}
    seconds = ", ".join(
        f"`{name}` {part['processor_seconds']:.0f}" for name, part in stored["parts"].items()
    )
    machine = next(iter(stored["parts"].values()))["machine"].split(";")[0]

    def trainings(part: str) -> str:
        return f"{max(row['seeds'] for row in parts[part])} trainings a row."

    text = [
        "# What the paper left for later",
        "Carson & Chen name what they did not try: other features, other settings, continuous states, other algorithms, real "
        "matrices, energy. Here each is measured with their own learner, on the outcomes of the dense experiment where nothing "
        "else is said, and judged under their reward.",
        "```sh\nroundwise reproduce dense --actions 35   # the outcomes; resumable\n"
        "python -m roundwise_studies.beyond       # all parts but two\n"
        "python -m roundwise_studies.beyond applications --matrices FOLDER\n"
        "python -m roundwise_studies.beyond energy\n```",
        f"Processor seconds on {machine}, what was missing of the outcomes included: {seconds}. *Regret*: mean reward "
        "given away on test systems that are no training systems, against the best of all 35 actions of each system, with a 95 % "
        "bootstrap interval; *strict %*: nbe <= 1e-6 and ferr <= max(1e-6, 10 ferr of FP64); *low*: stages "
        "(of 4) below FP64. Under this reward all-FP64 is nearly the best action everywhere "
        "([why](policies.md#under-the-papers-reward-all-fp64-is-the-best-policy)), so that a low regret mostly means less luck.",
    ]
    if "sensitivity" in parts:
        text += [
            "## Settings of the learner",
            "One setting changed at a time. In the row *actions, 35* all policies may choose among all 35 monotone actions, in the "
            f"others among the paper's 25. {trainings('sensitivity')}",
            wide(parts["sensitivity"], ("parameter", "value"), "setting"),
            NOTES["sensitivity"],
        ]
    if "features" in parts:
        text += [
            "## What each feature is worth",
            "The paper's state with a feature left out, and with one more; ten bins each. Fill and pivot growth come from factors; "
            "dominance, density, and what the rows tell of the spectrum (their cosines, their range) from the entries. "
            f"{trainings('features')}",
            wide(parts["features"], ("state",), "state"),
            NOTES["features"],
        ]
    if "learners" in parts:
        text += [
            "## Continuous states, and a library of deep reinforcement learning",
            "DQN and PPO are those of Stable-Baselines3 (`pip install 'roundwise-studies[rl]'`), on `roundwise.env.PrecisionEnv`: "
            "10 000 steps, as many as the paper's learner makes, features scaled to [-1, 1], gamma = 0, networks of two layers "
            f"of 64, {min(row['seeds'] for row in parts['learners'] if 'Stable' in row['learner'])} training(s) each. "
            f"{trainings('learners')}",
            wide(parts["learners"], ("learner",), "learner"),
            NOTES["learners"],
        ]
    if "literature" in parts:
        text += [
            "## Fixed configurations of the literature",
            "One action for all systems: three precisions (Carson & Higham, SIAM J. Sci. Comput. 40, 2018) and five (Amestoy, "
            "Buttari, Higham, L'Excellent, Mary & Vieublé, SIAM J. Matrix Anal. Appl. 45, 2024; the products inside GMRES in its "
            "own format), bf16 for their half, FP64 for what would be FP128.",
            literature(parts["literature"]),
            NOTES["literature"],
        ]
    if "patience" in parts:
        text += [
            "## Stagnation at the first step, or after three",
            "The paper's equation ends a run at the first stagnating step, its prose speaks of three in a row. The first 20 systems "
            "of each half, five trainings; the paper's numbers are of its 100.",
            patience(parts["patience"]),
            NOTES["patience"],
        ]
    if "algorithms" in parts:
        text += [
            "## Other algorithms, formats and matrices",
            "The whole loop on small problems (n = 40 to 120; least squares 60 x 20): every action on every problem, tabular Q, "
            "unseen problems. *Modelled time* is the logarithm of the speedup over all-FP64 where an operation costs in proportion "
            "to the bits of its format, and a miss of tau = 1e-6 pays for FP64 besides. fp24 is a format of no hardware: 17 bits of "
            "significand. The applications are the 34 matrices up to n = 300 of a selection of the SuiteSparse collection (Davis & "
            "Hu, 2011), half of them for training.",
            tasks([*parts["algorithms"], *parts.get("applications", [])]),
            NOTES["algorithms"],
        ]
    text += ["## Energy", NOTES["energy"]]
    return "\n\n".join(part.strip() for part in text if part.strip()) + "\n"


NOTES = {
    "sensitivity": "What counts is how often each action of a state is tried. Values start at 0, and a step of 0.5 leaves an action that "
    "was tried once at half of its reward: alpha = 1 or 1/N, more episodes, exploring throughout (least epsilon 1) and five bins "
    "bring the regret down towards that of all-FP64; alpha = 0.1, fewer episodes and 35 actions raise it. With 20 and 40 bins more "
    "test systems fall into states that training never met, which get FP64. Which actions the greedy choice runs over changes "
    "nothing that can be seen beside the spread.",
    "features": "With one feature, or with none, the learner finds all-FP64, which is hardly to be beaten under this reward. Each feature that "
    "splits the systems further leaves fewer tries for each state: the paper's two together are worse than either alone. With a "
    "third, many test systems fall into states that training never met and get FP64: less regret, and no learning. So no feature "
    "earns anything here; density is constant for dense systems and changes nothing, and so is fill.",
    "learners": "Learners that share what they learn between states (a linear model, a network) find all-FP64, which is within a few "
    "thousandths of the oracle here; PPO does as well as linear UCB, DQN nearly. The table with the paper's step is the only one that "
    "loses, by what its cells have not learned yet. One training each of DQN and PPO tells nothing about their spread.",
    "literature": "Every configuration with GMRES in FP64 meets the strict criterion on all systems, up to kappa = 1e8, whatever the format of "
    "its factors; with GMRES in FP32 a half and two thirds do. The paper's reward ranks all of them below all-FP64: it pays for digits "
    "beyond tau. Where four stages do not tell two configurations apart, their rows are the same.",
    "patience": "All-FP64 takes two outer steps with patience 1, as in the paper's tables, and four with patience 3: its numbers come from "
    "the equation. More steps gain no accuracy that the means would show.",
    "algorithms": "Under the modelled time the learner is ahead of all-FP64 in every task; but the best single action of the training "
    "problems is ahead of the learner in every task, too: a table of a hundred bins and a constant step learns less from forty "
    "problems than one mean over all of them ([how policies compare](policies.md) has learners that do better). Under the paper's "
    "reward all-FP64 is hardly beaten, whatever the algorithm; FP8 factors leave room only because systems up to kappa = 1e5 "
    "alone were drawn for them.",
    "energy": "`python -m roundwise_studies.beyond energy` reads the joules of native runs from the processor's RAPL counters and learns from "
    "log2 of FP64's joules over an action's. Where there is none, as on the virtual machine of this page, or it may be read by root "
    "alone, it refuses and says why: no number stands in for one.",
}

if __name__ == "__main__":
    if sys.argv[1:2] == ["store"]:
        store(Path(sys.argv[2]) if sys.argv[2:] else FOLDER)
    (ROOT / "docs" / "beyond-the-paper.md").write_text(page(), encoding="utf-8")
