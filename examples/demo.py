"""The main job in small: learn which precisions a solver needs, then solve unseen systems faster.

First the study: every operation emulated, policies learn by replay which formats GMRES-IR needs,
and are compared with all-FP64 and other baselines on systems they have not seen. Then the use: a
policy learns from timed runs on this machine, and `roundwise.solve` solves unseen systems natively,
with it and with the policy that ships, beside NumPy. Figures: ``out/demo.png`` and
``out/demo-native.png``.
"""

import os
import time
from pathlib import Path

import numpy as np

import roundwise as rw
from roundwise.actions import monotone_space
from roundwise.commands.outputs import format_table
from roundwise.costs import GENERIC_AVX512_CPU
from roundwise.machine.identity import Machine
from roundwise.outcomes import OutcomeTable, fill, progress_bar
from roundwise.policies import FixedAction, TabularQ, TheoryRule, ThompsonSampling
from roundwise.problems import LinearSystem, randsvd
from roundwise.rewards import CostReward, ProblemFacts, StrictTarget
from roundwise.tuning import PAPER_CONTEXT, Tuner, view_contexts, view_rewards
from roundwise_studies.datasets import dense_set, mixed_dense
from roundwise_studies.evaluation import (
    accuracy_table,
    best_fixed_action,
    cost_matrix,
    met_matrix,
    modelled_speedup,
    regrets,
)

TAU = 1e-6
FORMATS = ("bf16", "tf32", "fp32", "fp64")
OUT = Path("out")


def main() -> None:
    start = time.perf_counter()
    OUT.mkdir(exist_ok=True)
    algorithm = rw.GmresIR.paper(TAU)
    space = monotone_space(algorithm.stages, FORMATS)
    data = dense_set(60, 40, seed=1, sizes=(50, 100))
    print(f"{len(data.train)} training and {len(data.test)} unseen dense systems, n = 50 to 100,")
    print(f"condition numbers 1e1 to 1e8; {len(space)} actions, every operation emulated")

    # Facts first: every action once on every system. They are kept, so that a second run of this
    # demo solves nothing again.
    table = OutcomeTable(OUT / "demo.sqlite")
    bar = progress_bar("outcomes")
    fill(table, algorithm, data.train + data.test, space, jobs=os.cpu_count(), progress=bar)
    learn, unseen = (table.view(algorithm, half, space) for half in (data.train, data.test))

    # Then learning: by replay, in a second. A good answer has nbe <= tau and a forward error
    # as FP64's, or below tau; a miss pays for its own failure and for FP64.
    target = StrictTarget(TAU)
    reward = CostReward(GENERIC_AVX512_CPU, target)
    fixed = best_fixed_action(view_rewards(learn, reward, space))
    policies = {
        "learned: Thompson sampling": ThompsonSampling(),
        "learned: the paper's table": TabularQ(),
        "best single action in training": FixedAction(fixed),
        "theory's limits on kappa": TheoryRule(target=TAU),
        "all-FP64": FixedAction(),
    }
    rewards = view_rewards(unseen, reward, space)
    contexts = view_contexts(unseen, PAPER_CONTEXT)
    kappas = 10 ** contexts[:, 0]
    facts = [
        ProblemFacts.from_stored(p, kappa) for p, kappa in zip(unseen.problems, kappas, strict=True)
    ]
    rows = [unseen.row(i) for i in range(len(facts))]
    costs, met = cost_matrix(reward.cost, rows), met_matrix(target, rows, facts, space)

    summary, chosen, tuners = [], {}, {}
    for name, policy in policies.items():
        tuners[name] = Tuner(algorithm, space=space, reward=reward, policy=policy)
        tuners[name].fit_view(learn, space)
        chosen[name] = tuners[name].policy_.predict(contexts)
        rng = np.random.default_rng(0)
        speedup = modelled_speedup(costs, met, chosen[name], space.safe, rng)
        summary.append(
            {
                "policy": name,
                "modelled speedup": str(speedup.speedup),
                "fallbacks %": 100 * speedup.fallback_rate,
                "regret": regrets(rewards, chosen[name]).mean(),
            }
        )
    print("\nOn the unseen systems, priced for one AVX-512 core. Fallbacks to FP64 are paid for;")
    print("the condition number, which the learned policies and theory look at, is not.\n")
    print(format_table(summary))
    print(f"\nThe oracle, which knows every outcome, reaches {speedup.oracle:.3g}.")

    best = "learned: Thompson sampling"
    picked = [rows[i][j] for i, j in enumerate(chosen[best])]
    baseline = [row[space.safe] for row in rows]
    print(f"\nWhat {best.split(': ')[1]} gives, before any fallback\n")
    print(format_table(accuracy_table(picked, baseline, kappas, TAU).to_rows()))

    problem = data.test[0]
    action = tuners[best].predict(problem)
    outcome = algorithm.run(problem, action)
    print(f"\nFor {problem.name} it picks {action}: nbe {outcome.nbe:.1e}, ")
    print(f"forward error {outcome.ferr:.1e}, {outcome.outer_iterations} refinement steps.")

    figure(tuners, chosen, kappas, space)
    print(f"\nFigure: {OUT / 'demo.png'}   ({time.perf_counter() - start:.0f} s)")
    native()
    print(f"\nAll of it took {time.perf_counter() - start:.0f} s. {NEXT}")


NEXT = """What to do next:
  roundwise calibrate                    measures this machine, for the policy that ships
  python examples/trained_policy.py      the same with systems of your own kind; saved, and loaded
  roundwise reproduce all --quick        the paper's experiments, in one HTML page
  docs/guide/start.md                    the guide"""

REST = 0.15
"""Seconds before a call at rest: the threads of NumPy's BLAS go on spinning for a tenth of one."""

SYSTEMS = 5
"""The first five of the systems that `make speed` takes for its row of n = 1000 to 1500, which the
README shows; making them takes longer than solving them."""


def native() -> None:
    """Learn from timed runs here; solve unseen, larger systems with what was learned."""
    rng = np.random.default_rng(0)
    seen = [randsvd(n, kappa, rng=rng) for n in (200, 400) for kappa in (1e1, 1e4, 1e8)]
    print(
        f"\nNow natively: {len(seen)} systems, n = 200 and 400, each method and format timed here"
    )
    tuner = rw.Tuner(rw.VerifiedSolve(), progress=progress_bar("timed runs")).fit(seen)
    tuner.save(OUT / "demo-policy.json")

    rows = []
    for name, problem in mixed_dense(SYSTEMS, (1000, 1500), seed=0):
        rows.append(
            {
                "system": name,
                "n": problem.n,
                "at rest": times_as_fast(problem, "default", REST),
                "in turns": times_as_fast(problem, "default", 0.0),
                "in turns, learned": times_as_fast(problem, tuner, 0.0),
            }
        )
    print("\nTimes as fast as numpy.linalg.solve on unseen systems; every answer was verified.")
    print(
        "At rest: a pause before each call. In turns: without pauses, NumPy's threads still spin."
    )
    print("Learned: by the policy that was trained just now; else by the one that ships.\n")
    print(format_table(rows))
    for column in ("at rest", "in turns", "in turns, learned"):
        ratios = [row[column] for row in rows]
        print(f"\n{column}: median {np.median(ratios):.2f}, worst {min(ratios):.2f}", end="")
    print(f"\n({Machine.this()})")
    native_figure(rows)


def times_as_fast(problem: LinearSystem, policy, pause: float) -> float:
    """NumPy's time over ours: medians of five calls of each, one after the other."""
    ours, theirs = [], []
    for _ in range(5):
        time.sleep(pause)
        start = time.perf_counter()
        np.linalg.solve(problem.A, problem.b)
        theirs.append(time.perf_counter() - start)
        time.sleep(pause)
        start = time.perf_counter()
        rw.solve(problem.A, problem.b, policy=policy)
        ours.append(time.perf_counter() - start)
    return float(np.median(theirs) / np.median(ours))


def native_figure(rows) -> None:
    """Times as fast as NumPy, by kind of system."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    fig, axes = plt.subplots(figsize=(7, 3.8), layout="constrained")
    places = np.arange(len(rows))
    for i, column in enumerate(("at rest", "in turns")):
        heights = [row[column] for row in rows]
        axes.barh(places + 0.4 * i, heights, height=0.4, label=column)
    axes.set_yticks(places + 0.2, [f"{row['system']}, n = {row['n']}" for row in rows])
    axes.axvline(1, color="gray", lw=0.8)
    axes.invert_yaxis()
    axes.set(xlabel="times as fast as numpy.linalg.solve", title="Unseen systems")
    axes.legend(loc="lower right")
    fig.savefig(OUT / "demo-native.png", dpi=150)
    print(f"Figure: {OUT / 'demo-native.png'}")


def figure(tuners, chosen, kappas, space) -> None:
    """Bits per stage that the learned policy picks, against kappa; and how it learned."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    fig, (left, right) = plt.subplots(1, 2, figsize=(10, 3.8), layout="constrained")
    colors = plt.colormaps["viridis"](np.linspace(0.85, 0.1, len(FORMATS)))
    exponents = np.round(np.log10(kappas)).astype(int)
    best = "learned: Thompson sampling"
    levels = np.arange(exponents.min(), exponents.max() + 1)
    bottom = np.zeros(len(levels))
    picked = {fmt.name for j in chosen[best] for fmt in space[j]}
    for fmt, color in zip(FORMATS, colors, strict=True):
        if fmt not in picked:
            continue  # the legend shows what occurs
        share = np.array(
            [
                np.mean(
                    [sum(f.name == fmt for f in space[j]) for j in chosen[best][exponents == level]]
                )
                for level in levels
            ]
        )
        left.bar(levels, share, bottom=bottom, color=color, label=fmt, width=0.8)
        bottom += share
    left.set(
        xlabel="log10 of the condition number",
        ylabel="stages (of 4) in this format",
        title="What the learned policy picks for unseen systems",
        ylim=(0, 4.8),
    )
    left.legend(ncols=4, frameon=False, loc="upper center")
    for name in ("learned: Thompson sampling", "learned: the paper's table"):
        right.plot(tuners[name].curves_.reward, label=name.split(": ")[1])
    right.axhline(0, color="gray", lw=0.8)
    right.annotate("all-FP64", (45, 0.05), color="gray")
    right.set(
        xlabel="episode", ylabel="mean reward: log2 of the speedup", title="Learning by replay"
    )
    right.legend(frameon=False, loc="lower right")
    fig.savefig(OUT / "demo.png", dpi=150)


if __name__ == "__main__":
    main()
