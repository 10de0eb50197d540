"""What each sparse method takes on each system: measured once, kept in a file, resumed.

A line of the file is one system: its features and what they cost, and for every method and format
that the policy may choose for it the seconds of analysis and factorization, of a solve, and whether
refinement passed the gate, with how many steps. Our own engines are timed as the front door runs
them: the order that was found to count the fill serves to factorize, and is not found again. An
attempt is priced from these parts, so that a busy machine disturbs it little: with one thread
(``ROUNDWISE_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1``) processor time counts. Of what a plain `solve`
tries before it looks the same parts are measured, and what counting takes after it. Verifying the
answer is not counted, for nobody.

A library that cannot be stopped may take minutes on a matrix that does not suit it. So methods that
the policy would never choose for a system are not tried on it, and a line is begun before a system
is measured: one that hung is passed over by the next run.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from time import perf_counter, thread_time
from typing import Any, SupportsFloat, TextIO

import numpy as np
from scipy import sparse

from roundwise.actions import Action
from roundwise.algorithms import VerifiedSolve
from roundwise.backends import ArithmeticFailure, NativeBackend
from roundwise.backends.engines.orderings import Orders
from roundwise.backends.native import small_sparse
from roundwise.backends.native.sparse import EngineAnalysis
from roundwise.features import PROBE, compute_features
from roundwise.formats import FP64, FloatFormat
from roundwise.machine.identity import Machine
from roundwise.policies.neighbours import SPARSE_CROSSOVER
from roundwise.policies.profile import Profile
from roundwise.problems import LinearSystem
from roundwise.problems.pde import convection_diffusion_3d, laplace_3d, poisson_2d
from roundwise.solver import default_policy
from roundwise.solver.express import ExpressAnswer
from roundwise.solver.express_sparse import attempt_sparse
from roundwise.solver.prepare import Wanted
from roundwise.tuning import PROBE_CONTEXT
from roundwise_studies.default_policy.gallery import FAMILIES, System, policy_systems
from roundwise_studies.default_policy.matrices import saddle_point

ENOUGH_SECONDS, REPEATS, SLOW = 0.3, 5, 1.0
"""A call is repeated so often, or until it has taken so long; the least time counts. The first call
finds nothing in the cache, so there is a second one unless the first took longer than SLOW."""

HARDEST = 4e9
"""Systems whose factorization takes more flops, by the least estimate, are left out."""

OWN = ("cholesky", "ldl", "lu")
"""Our own engines, which take the order that was found for counting."""

VERSION = 4
"""Of what a line means: our own engines begin with what was found for counting (2), which is the
whole symbolic analysis (3); with the attempt at once, and with ranking as part of the look (4)."""

COUNTS = ("static_pivots", "factor_entries", "factor_flops", "nd_flops")
BACKEND, ALGORITHM = NativeBackend(), VerifiedSolve()


@dataclass(frozen=True)
class Attempt:
    """One method in one format on one system."""

    factor: float  # seconds of analysis and factorization, once the features are known
    solve: float
    met: bool  # whether the answer passed the gate
    steps: int
    iterations: int
    alone: float  # seconds of analysis and factorization by one who looks at nothing

    def seconds(self, matvec: float) -> float:
        """Of the whole attempt."""
        return self.factor + (1 + self.steps + self.iterations) * (self.solve + matvec)


@dataclass(frozen=True)
class Timed:
    """One system and all attempts, by the text ``method:format``."""

    name: str
    family: str
    features: Mapping[str, float]
    look: float  # seconds of the features but the symbolic counts, and of ranking the actions
    counting: float  # seconds of these counts
    at_once: float  # seconds of the attempt of a plain solve to do without a look
    met_at_once: bool  # whether that gave an answer
    counting_then: float  # if it did not: seconds of counting with the orders that it has found
    matvec: float
    attempts: Mapping[str, Attempt]

    @property
    def seen(self) -> Profile:
        return seen(self.features)


def seen(features: Mapping[str, float]) -> Profile:
    of_dense = dict.fromkeys(("banded", "triangular", "diagonals"), 0.0)
    return Profile.of(PROBE_CONTEXT.vector(of_dense | dict(features)).tolist())


def clock() -> tuple[Callable[[], float], str]:
    machine = Machine.this()
    one = machine.threads == machine.blas_threads == 1
    return (thread_time, "processor time") if one else (perf_counter, "wall-clock time")


def least(call: Callable[[], Any]) -> tuple[float, Any]:
    """The least seconds of some calls, and the last result."""
    now, _ = clock()
    spent, best, result = 0.0, np.inf, None
    for run in range(REPEATS):
        start = now()
        result = call()
        taken = now() - start
        spent, best = spent + taken, min(best, taken)
        if spent > (ENOUGH_SECONDS if run else SLOW):
            break
    return float(best), result


def sparse_systems(seed: int, matrices: Path | None, every: int) -> Iterator[System]:
    """Those of the gallery, of the folder, and some of kinds that the gallery lacks."""
    for system in policy_systems(seed, matrices)[::every]:
        if system.family == "file" or FAMILIES[system.family].kind not in ("dense", "structured"):
            yield system
    made: dict[str, Callable[[int, np.random.Generator], Any]] = {
        "convection-3d": lambda m, rng: convection_diffusion_3d(m, rng.uniform(0, 30)),
        "laplace-3d-large": lambda m, rng: laplace_3d(m),
        "saddle-point": saddle_point,
        "stiffness": badly_scaled_frame,
        "circuit": lambda m, rng: circuit(40 * m, rng),
    }
    for k, (family, make) in enumerate(made.items()):
        for i, m in enumerate((12, 16, 20, 24, 28)):
            size = m if family.endswith(("3d", "large")) else 4 * m
            seed_of = seed, 10_000 + 100 * k + i
            yield System(f"{family}-{size}", family, partial(make, size), seed_of)


def badly_scaled_frame(m: int, rng: np.random.Generator) -> Any:
    """Symmetric positive definite, three unknowns a node, in units that differ by up to 1e6."""
    blocks = sparse.kron(poisson_2d(m // 2).A, np.ones((3, 3)) + 3 * np.eye(3))
    units = sparse.diags_array(10.0 ** rng.uniform(-3, 3, blocks.shape[0]))
    A = sparse.csr_array(units @ blocks @ units)
    return sparse.csr_array((A + A.T) / 2)


def circuit(n: int, rng: np.random.Generator) -> Any:
    """Conductances between random nodes, few of them with very many neighbours; unsymmetric."""
    count = 3 * n
    first = np.minimum((n * rng.random(count) ** 4).astype(int), n - 1)
    second = rng.integers(0, n, count)
    values = 10.0 ** rng.uniform(-2, 2, count)
    G = sparse.csr_array((values, (first, second)), shape=(n, n))
    G = G + G.T
    controlled = sparse.csr_array((values[:n], (second[:n], first[n : 2 * n])), shape=(n, n))
    degree = np.asarray(abs(G).sum(axis=1)).ravel() + 1e-3
    return sparse.csr_array(sparse.diags_array(degree) - G + 0.1 * controlled)


def gather(
    systems: Sequence[System], path: Path, progress: Callable[[int, int], None]
) -> list[Timed]:
    """Measure the systems that the file at `path` lacks; those of all lines that are asked for."""
    path.parent.mkdir(parents=True, exist_ok=True)
    where = f"{Machine.this().key}, {clock()[1]}, with {', '.join(installed())}"
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    saved = [row for row in map(json.loads, lines) if row["version"] == VERSION]
    known = {(row["name"], row["where"]): row for row in saved}
    found = []
    with path.open("a", encoding="utf-8") as stream:
        for done, system in enumerate(systems):
            progress(done, len(systems))
            row = known.get((system.name, where))
            if row is None:
                row = {"version": VERSION, "name": system.name, "where": where, "timed": None}
                _append(stream, row)  # should it hang, the next run goes on with the next one
                row["timed"] = timed(system)
                _append(stream, row)
            if (facts := row["timed"]) is not None:
                attempts = {name: Attempt(**values) for name, values in facts["attempts"].items()}
                found.append(Timed(**(facts | {"attempts": attempts})))
    progress(len(systems), len(systems))
    return found


def _append(stream: TextIO, row: Mapping[str, Any]) -> None:
    stream.write(json.dumps(row) + "\n")
    stream.flush()


def installed() -> list[str]:
    """The sparse engines that run here."""
    return sorted({name.split("/")[0] for name in BACKEND.methods(sparse=True)})


def timed(system: System) -> dict[str, Any] | None:
    """What is stored of one system; None if it is dense, or too small or too hard to learn from."""
    problem = system.problem()
    if not problem.is_sparse or problem.A.size < SPARSE_CROSSOVER:
        return None
    rest = [name for name in PROBE if name not in COUNTS]
    look, features = least(lambda: compute_features(problem, rest))
    counting, orders = least(lambda: counted(problem.A, features))
    values = {name: feature.value for name, feature in features.items()} | orders.counts
    if values["factor_flops"] > HARDEST:
        return None
    policy = default_policy()
    ranking, _ = least(lambda: policy.rank(seen(values)))
    matvec, _ = least(lambda: problem.A @ problem.b)
    at_once, found = attempted_at_once(problem)
    counting_then, _ = least(lambda: counted(problem.A, features, found))
    attempts = {
        f"{method.name}:{fmt}": asdict(attempt)
        for method in seen(values).methods
        if not method.name.endswith("/nd")
        for fmt in method.formats
        if BACKEND.runs(method.name, fmt, sparse=True)
        if (attempt := attempted(problem, method.name, fmt, orders)) is not None
    }
    family = system.family
    if family == "file":
        family = re.match(r"\d+-([A-Za-z]*)", system.name).group(1)  # type: ignore[union-attr]
    tried = at_once.seconds(matvec), at_once.met, counting_then
    before = look + ranking, counting, *tried
    row = Timed(system.name, family, values, *before, matvec, {})
    return asdict(row) | {"attempts": attempts}


def attempted_at_once(problem: LinearSystem) -> tuple[Attempt, Orders | None]:
    """What a plain `solve` tries before it looks, and the orders that it hands on."""
    A, b = sparse.csr_array(problem.A), problem.b
    if A.nnz > small_sparse.LARGEST:
        return Attempt(0.0, 0.0, False, 0, 0, 0.0), None
    seconds, found = least(lambda: attempt_sparse(A, b, Wanted()))
    met = isinstance(found, ExpressAnswer)
    orders = found if isinstance(found, Orders) else None
    return Attempt(seconds, 0.0, met, 0, 0, seconds), orders


def counted(A: Any, features: Mapping[str, SupportsFloat], found: Orders | None = None) -> Orders:
    """The orders of a matrix once its fill was counted, as the front door does it."""
    symmetric, strong = (bool(float(features[name])) for name in ("symmetric", "strong_diagonal"))
    orders = Orders(A, not symmetric, strong)
    if found is not None and (symmetric or strong):
        orders.know_of(found)
    assert orders.counts
    return orders


def attempted(
    problem: LinearSystem, method: str, fmt: FloatFormat, orders: Orders
) -> Attempt | None:
    """None if the matrix is singular by this method."""
    A = problem.A

    def factorize() -> Any:
        return EngineAnalysis(BACKEND, A, method, orders).factorize(A, fmt)

    try:
        factor, factors = least(factorize)
        solve, _ = least(lambda: factors.solve(problem.b))
    except ArithmeticFailure:
        start = clock()[0]()
        outcome = ALGORITHM.run(problem, Action((fmt, FP64, FP64, FP64), method), BACKEND)
        seconds = clock()[0]() - start
        return Attempt(seconds, 0.0, outcome.converged, 0, 0, seconds)
    outcome = ALGORITHM.run(problem, Action((fmt, FP64, FP64, FP64), method), BACKEND)
    work = outcome.outer_iterations, outcome.inner_iterations
    alone = factor
    if method.split("/")[0] in OWN:
        alone, _ = least(lambda: EngineAnalysis(BACKEND, A, method).factorize(A, fmt))
    return Attempt(factor, solve, outcome.converged, *work, alone)
