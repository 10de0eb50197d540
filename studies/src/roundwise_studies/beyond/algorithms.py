"""The paper's loop on what the paper did not try: other algorithms, formats and matrices.

Each row: fill a table of outcomes with every action, learn from training problems by the paper's
tabular Q, and judge on unseen problems. Two rewards: the paper's with W2, and the logarithm of the
modelled speedup over all-FP64, where each operation costs in proportion to the bits of its format
and a miss pays for FP64 besides. Arithmetic is emulated, every operation rounded.
"""

from __future__ import annotations

import gzip
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import scipy.io
import scipy.sparse as sp

from roundwise.actions import ActionSpace
from roundwise.algorithms import Algorithm, CgIR, GmresIR, LsIR, LuIR
from roundwise.algorithms.stopping import PaperRule
from roundwise.costs import BITS_PROPORTIONAL
from roundwise.exceptions import RoundwiseError
from roundwise.formats import FloatFormat, register_format
from roundwise.outcomes import OutcomeTable, OutcomeView, fill
from roundwise.policies import TabularQ
from roundwise.problems import LinearSystem, Problem, random_sparse_spd, randsvd
from roundwise.rewards import CostReward, Reward, StrictTarget
from roundwise.rewards.base import strict_success
from roundwise.rewards.paper import PAPER_W2
from roundwise.tuning import PAPER_CONTEXT, Tuner, view_contexts, view_rewards
from roundwise_studies.beyond.judging import TAU
from roundwise_studies.evaluation import regret_table
from roundwise_studies.least_squares import Settings as LeastSquaresSettings
from roundwise_studies.least_squares import drawn, with_reference
from roundwise_studies.tabulating import FlatRow

FP24 = FloatFormat("fp24", 17, -62, 63)
"""A format of no hardware here: 16 explicit bits of significand, 7 of exponent."""


@dataclass(frozen=True, eq=False)
class Task:
    """One algorithm with formats and problems, the first `training` of which are learned from."""

    name: str
    algorithm: Algorithm
    formats: Sequence[str | FloatFormat]
    problems: Sequence[Problem]
    training: int


def dense_problems(count: int, sizes: tuple[int, int], most: int, seed: int) -> list[LinearSystem]:
    """`randsvd`, mode 2, kappa = 10 to 10^most: the paper's dense systems, smaller."""
    made = []
    for i in range(count):
        rng = np.random.default_rng([seed, i])
        n, kappa = int(rng.integers(*sizes, endpoint=True)), 10.0 ** rng.integers(1, most + 1)
        made.append(randsvd(n, kappa, mode=2, rng=rng))
    return made


def definite_problems(count: int, sizes: tuple[int, int], seed: int) -> list[LinearSystem]:
    """The paper's random sparse systems, smaller, with shifts from 1e-6 to 1."""
    made = []
    for i in range(count):
        rng = np.random.default_rng([seed, i])
        n = int(rng.integers(*sizes, endpoint=True))
        made.append(random_sparse_spd(n, 0.03, 10.0 ** rng.uniform(-6, 0), rng=rng))
    return made


def least_squares_problems(count: int) -> list[Problem]:
    settings = LeastSquaresSettings()
    rng = np.random.default_rng(settings.seed)
    logs, sizes = rng.uniform(0, 7, count), 10.0 ** rng.uniform(-6, 0, count)
    return [
        with_reference(drawn(settings, 10.0**log, float(size), 1000 + i))
        for i, (log, size) in enumerate(zip(logs, sizes, strict=True))
    ]


def application_problems(folder: Path, largest: int) -> list[LinearSystem]:
    """Real square Matrix Market files up to an order, with a normal solution each."""
    made = []
    for path in sorted(folder.glob("*.mtx*")):
        with (gzip.open if path.suffix == ".gz" else open)(path, "rb") as file:
            A = sp.csr_array(scipy.io.mmread(file))
        if A.shape[0] == A.shape[1] and A.shape[0] <= largest and not np.iscomplexobj(A.data):
            rng = np.random.default_rng([7, A.shape[0], A.nnz])
            x = rng.standard_normal(A.shape[0])
            A = sp.csr_array(A.astype(np.float64))
            made.append(LinearSystem(A, A @ x, x_true=x, name=path.name.split(".")[0]))
    if not made:
        raise RoundwiseError(
            f"{folder}: no real square .mtx files up to n = {largest}; pass others"
        )
    order = np.random.default_rng(0).permutation(len(made))
    return [made[i] for i in order]


def tasks(count: int = 60) -> Iterator[Task]:
    """Those that need no files: two thirds of the problems train."""
    paper, half = ("bf16", "tf32", "fp32", "fp64"), 2 * count // 3
    dense = dense_problems(count, (40, 80), 8, 11)
    yield Task("GMRES-IR, the paper's formats", GmresIR.paper(TAU), paper, dense, half)
    eight = ("e5m2", "e4m3", "bf16", "fp32", "fp64")
    easy = dense_problems(count, (40, 80), 5, 12)
    yield Task("GMRES-IR with FP8", GmresIR.paper(TAU), eight, easy, half)
    custom = ("bf16", register_format(FP24), "fp64")
    yield Task("GMRES-IR with a custom fp24", GmresIR.paper(TAU), custom, dense, half)
    lu = LuIR(stop=PaperRule(0.5, max_steps=100))
    yield Task("LU-IR", lu, paper, dense, half)
    definite = definite_problems(count, (60, 120), 13)
    yield Task("CG-IR", CgIR(), paper, definite, half)
    squares = least_squares_problems(count)
    yield Task("least squares", LsIR(), ("bf16", "fp32", "fp64"), squares, half)


REWARDS: dict[str, Reward] = {
    "the paper's, W2": replace(PAPER_W2, lambda_iter=0.5),
    "modelled time": CostReward(BITS_PROPORTIONAL, StrictTarget(TAU)),
}


def learned(task: Task, cache: Path, seeds: int = 10, jobs: int | None = None) -> Iterator[FlatRow]:
    """Fill, learn and judge; the rows of a task, one for each reward."""
    space = task.algorithm.action_space(task.formats, task.problems)
    table = OutcomeTable(cache / "beyond.sqlite")
    fill(table, task.algorithm, task.problems, space, features=PAPER_CONTEXT.features, jobs=jobs)
    halves = task.problems[: task.training], task.problems[task.training :]
    views = [table.view(task.algorithm, half, space) for half in halves]
    for name, reward in REWARDS.items():
        row: FlatRow = {"task": task.name, "reward": name}
        yield row | _judged(task, reward, space, halves, views, seeds)


def _judged(
    task: Task,
    reward: Reward,
    space: ActionSpace,
    halves: tuple[Sequence[Problem], Sequence[Problem]],
    views: Sequence[OutcomeView],
    seeds: int,
) -> FlatRow:
    contexts = [view_contexts(view, PAPER_CONTEXT) for view in views]
    rewards = [view_rewards(view, reward, space) for view in views]
    chosen = []
    for seed in range(seeds):
        tuner = Tuner(
            task.algorithm, space=space, reward=reward, policy=TabularQ(), context=PAPER_CONTEXT,
            seed=seed,
        )  # fmt: skip
        chosen.append(tuner.fit_view(views[0], space).policy_.predict(contexts[1]))
    fixed = int(rewards[0].mean(axis=0).argmax())
    count = len(halves[1])
    choices: dict[str, Any] = {"learned": np.array(chosen), "fixed": np.full(count, fixed)}
    found = regret_table(rewards[1], choices, space.safe, np.random.default_rng(0))
    return {
        "actions": len(space),
        "training": len(halves[0]),
        "test": count,
        "regret": found["learned"].oracle.value,
        "low": found["learned"].oracle.low,
        "high": found["learned"].oracle.high,
        "regret FP64": found["all-FP64"].oracle.value,
        "regret fixed": found["fixed"].oracle.value,
        "fixed": space.names[fixed],
        **_used(views[1], space, np.array(chosen)),
    }


def _used(view: Any, space: ActionSpace, chosen: Any) -> FlatRow:
    """Strict success, stages below FP64 and the action chosen most often; of FP64, its success."""
    places = np.arange(chosen.shape[1])
    ferr, nbe = view.ferr[places, chosen], view.nbe[places, chosen]
    fp64 = view.ferr[:, space.safe]
    low = np.array([sum(fmt.name not in ("fp64", "fp64x2") for fmt in action) for action in space])
    counts = np.bincount(chosen.ravel(), minlength=len(space))
    strict = strict_success(ferr, nbe, np.broadcast_to(fp64, ferr.shape), TAU)
    safe = strict_success(fp64, view.nbe[:, space.safe], fp64, TAU)
    return {
        "strict %": 100 * float(strict.mean()),
        "strict % FP64": 100 * float(safe.mean()),
        "stages below FP64": float(low[chosen].mean()),
        "chosen most": space.names[int(counts.argmax())],
        "share %": 100 * float(counts.max() / counts.sum()),
    }


def application_task(folder: Path, largest: int) -> Task:
    """The paper's learner on application matrices: half of them train."""
    problems = application_problems(folder, largest)
    formats = ("bf16", "tf32", "fp32", "fp64")
    name = f"applications, n <= {largest}"
    return Task(name, GmresIR.paper(TAU), formats, problems, len(problems) // 2)
