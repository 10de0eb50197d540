"""What docs/architecture.md says is true: how to add things, each done here, and the files passed.

Every Python block of its section "How to add" stands in this file, word for word, and is run.
"""

import os
import pkgutil
import re
import sys
import tomllib
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
from scipy import sparse

import roundwise as rw
from roundwise.algorithms.accuracy import ErrorMeasure
from roundwise.backends import BACKENDS, ENGINES, Analysis, NativeBackend, OperationBackend
from roundwise.backends.engines import Engine, Symbolic
from roundwise.costs import Shape, Work, current_prices
from roundwise.features import FEATURES, Feature
from roundwise.methods import METHODS, Method
from roundwise.outcomes import OutcomeTable, fill
from roundwise.policies import POLICIES, FixedAction, NeighbourPolicy, Policy, shipped_facts
from roundwise.problems import laplace_3d, poisson_2d, randsvd
from roundwise.problems.pde import convection_diffusion_3d
from roundwise.rewards import Reward
from roundwise.solver.decide import ladder_from
from roundwise.solver.policy_argument import parse_policy
from roundwise.solver.prepare import prepare
from roundwise.tuning import PROBE_CONTEXT, Context, TunerFileError

PACKAGE = Path(rw.__file__).parent
ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "architecture.md"
DOCUMENT = PAGE.read_text(encoding="utf-8")
FORMATS = ("bf16", "fp32", "fp64")


def training_systems():
    rng = np.random.default_rng(0)
    return [randsvd(30, 10.0**k, rng=rng) for k in (1, 2, 4, 6)]


@pytest.fixture(scope="module")
def problems():
    return training_systems()


# A format


FP24 = rw.FloatFormat("fp24", p=17, emin=-62, emax=63)


def test_a_format(monkeypatch, problems):
    monkeypatch.setitem(rw.formats.NAMED_FORMATS, "fp24", FP24)  # forgotten after the test
    assert rw.register_format(FP24) is FP24
    outcome = rw.GmresIR.paper().run(problems[0], "fp24-fp32-fp64-fp64")
    assert outcome.converged
    assert ("factor", "fp24") in outcome.operations
    tuner = rw.Tuner(rw.GmresIR.paper(), ("fp24", "fp64"), episodes=5).fit(problems)
    assert "fp24-fp64-fp64-fp64" in tuner.space_.names


# A reward


@dataclass(frozen=True)
class FewBits(Reward):
    """1 for an accurate answer, less a price for each bit of a significand."""

    name: ClassVar[str] = "few bits"
    needs_kappa: ClassVar[bool] = False
    price: float = 0.001

    def components(self, outcome, facts, action):
        bits = sum(fmt.p for fmt in action)
        return {"answer": float(outcome.nbe < 1e-10), "bits": -self.price * bits}


def test_a_reward(tmp_path, problems):
    tuner = rw.Tuner(rw.GmresIR.paper(), FORMATS, reward=FewBits(0.002)).fit(problems)
    tuner.save(tmp_path / "tuner.json")
    loaded = rw.Tuner.load(tmp_path / "tuner.json", rewards=[FewBits])
    assert loaded.reward == FewBits(0.002)
    assert [loaded.predict(p) for p in problems] == [tuner.predict(p) for p in problems]
    with pytest.raises(TunerFileError, match="class of your own"):
        rw.Tuner.load(tmp_path / "tuner.json")


# A policy


class MeanReward(Policy):
    """Ranks the actions by their mean reward over all problems."""

    name = "mean"

    def begin(self, contexts):
        self.sums, self.counts = np.zeros((2, len(self.space)))

    def expected(self, state):
        means = self.sums / np.maximum(self.counts, 1)
        return np.where(self.counts > 0, means, -np.inf)

    def update(self, state, action, reward):
        mean = self.sums[action] / max(self.counts[action], 1)
        self.sums[action] += reward
        self.counts[action] += 1
        return reward - mean

    def arrays(self):
        return {"sums": self.sums, "counts": self.counts}

    def restore(self, settings, arrays):
        self.sums, self.counts = arrays["sums"].copy(), arrays["counts"].copy()


def test_a_policy(monkeypatch, tmp_path, problems):
    path = tmp_path / "tuner.json"
    tuner = rw.Tuner(rw.VerifiedSolve(), policy=MeanReward(), reward=FewBits()).fit(problems)
    tuner.save(path)
    loaded = rw.Tuner.load(path, rewards=[FewBits], policies=[MeanReward])
    problem = problems[1]
    chosen = loaded.predict(problem)
    assert chosen == tuner.predict(problem)
    assert chosen.method == "lu"
    assert chosen[0] != rw.FP64
    for policy in (tuner, loaded):
        solution = rw.solve(problem.A, problem.b, policy=policy, full_output=True)
        assert solution.attempts[0].action == str(chosen)
        assert solution.backward_error <= np.sqrt(problem.n) * rw.FP64.unit_roundoff
    # With its line in the list, a file is enough.
    monkeypatch.setitem(POLICIES, MeanReward.name, MeanReward)
    rw.Tuner(rw.VerifiedSolve(), policy=MeanReward()).fit(problems).save(path)
    x = rw.solve(problem.A, problem.b, policy=path)
    np.testing.assert_allclose(x, problem.x_true, rtol=1e-9)


# An algorithm


@dataclass(frozen=True)
class Richardson(rw.Algorithm):
    """x = x + omega (b - A x), for A near the identity."""

    stages: ClassVar[tuple[str, ...]] = ("residual", "update")
    omega: float = 1.0
    steps: int = 40

    def execute(self, problem, stages, shared):
        residual, update = stages["residual"], stages["update"]
        A, x = residual.matrix(problem.A), np.zeros(problem.n)
        for _ in range(self.steps):
            r = residual.axpy(-1.0, residual.matvec(A, x), problem.b)
            x = update.axpy(self.omega, r, x)
        nbe = ErrorMeasure(problem).backward(x)
        return rw.Outcome(rw.OutcomeStatus.ITERATION_LIMIT, x, nbe=nbe, outer_iterations=self.steps)


def test_an_algorithm(tmp_path):
    rng = np.random.default_rng(0)
    matrices = [np.eye(20) + s * rng.standard_normal((20, 20)) for s in (0.01, 0.05)]
    systems = [rw.LinearSystem(A, A @ np.ones(20), np.ones(20)) for A in matrices]
    table = OutcomeTable(tmp_path / "outcomes.sqlite")
    actions = ("bf16-fp64", "fp32-fp64", "fp64-fp64")
    assert fill(table, Richardson(), systems, actions) == 6
    errors = table.view(Richardson(), systems, actions).nbe
    units = [rw.get_format(name).unit_roundoff for name in FORMATS]
    assert (errors <= 20 * np.array(units)).all()  # the residual's format limits the accuracy
    assert (errors[:, 0] > 1e-5).all()
    tuner = rw.Tuner(Richardson(), FORMATS, reward=FewBits(), table=table).fit(systems)
    assert tuner.predict(systems[0])[0] != rw.BF16
    tuner.save(tmp_path / "tuner.json")
    loaded = rw.Tuner.load(tmp_path / "tuner.json", Richardson(), rewards=[FewBits])
    assert loaded.predict(systems[1]) == tuner.predict(systems[1])


# A sparse engine


class DenseEngine(Engine):
    """LU of the matrix as a dense array: nothing is learned from the pattern."""

    name, orderings, formats = "dense", ("natural",), (rw.FP32, rw.FP64)

    def analyse(self, pattern, ordering):
        return DensePattern(pattern)


class DensePattern(Symbolic):
    def __init__(self, pattern):
        self.pattern = pattern

    def factorize(self, values, fmt):
        places = self.pattern.indices, self.pattern.indptr
        A = sparse.csr_array((values, *places), self.pattern.shape)
        return NativeBackend().matrix(A.toarray(), fmt).lu()


def dense_price(rates, shape, fmt):
    """As LU of a dense matrix of that size."""
    return METHODS["lu"].price(rates, Shape(shape.n, shape.n**2, shape.columns), fmt)


DENSE = Method(
    "dense/natural", True, DenseEngine.formats, then=("superlu/colamd",), price=dense_price
)


def test_a_sparse_engine(monkeypatch):
    monkeypatch.setitem(ENGINES, DenseEngine.name, DenseEngine())
    monkeypatch.setitem(METHODS, DENSE.name, DENSE)
    system = poisson_2d(9)
    action = "dense/natural:fp32-fp64-fp64-fp64"
    outcome = rw.VerifiedSolve().run(system, action, "native")
    assert outcome.converged
    assert outcome.action == action
    tuner = rw.Tuner(rw.VerifiedSolve(), policy=FixedAction(action)).fit([system])
    assert {"superlu/colamd", "dense/natural"} <= set(tuner.space_.methods)
    solution = rw.solve(system.A, system.b, policy=tuner, full_output=True)
    assert (solution.status, solution.action) == ("accepted", action)
    # It has a price, which is that of LU.
    prices, work = current_prices(), Work(1, 1)
    dense = prices.seconds(Shape(81, 81**2), "lu", "fp32", work)
    assert prices.seconds(Shape(81, 369), "dense/natural", "fp32", work) == dense
    # Where its factors fail, the climb turns to the next format, then to the next method.
    ladder = ladder_from(rw.Action.parse(action), prepare(system.A))
    assert [rung.method for rung in ladder] == ["dense/natural"] * 2 + ["superlu/colamd"]


# A backend


class FusedBackend(OperationBackend):
    """The operation model with fused multiply-adds: y + alpha x is rounded once."""

    arithmetic = "fused"

    def axpy(self, alpha, x, y, fmt):
        alpha, x, y = rw.rounding.round_scalar(alpha, fmt), rw.round_to(x, fmt), rw.round_to(y, fmt)
        return rw.round_to(super().axpy(alpha, x, y, rw.FP64), fmt)


def test_a_backend(monkeypatch, tmp_path, problems):
    alpha, x, y = 1 + 2.0**-7, np.array([1 + 2.0**-7]), np.array([-1 - 2.0**-6])
    assert FusedBackend().axpy(alpha, x, y, "bf16") == 2.0**-14  # what rounding twice loses
    assert OperationBackend().axpy(alpha, x, y, "bf16") == 0
    algorithm, actions = rw.LuIR(), ("bf16-fp32-fp64", "fp32-fp64-fp64")
    outcome = algorithm.run(problems[0], actions[1], FusedBackend())
    assert outcome.nbe < 1e-15
    assert outcome.arithmetic == "fused"
    table = OutcomeTable(tmp_path / "outcomes.sqlite")
    assert fill(table, algorithm, problems, actions, arithmetic=FusedBackend()) == 8
    assert table.arithmetics() == ["fused"]
    assert table.view(algorithm, problems, actions, FusedBackend()).shape == (4, 2)
    # With its line in the list, its name is enough, in saved files too.
    monkeypatch.setitem(BACKENDS, "fused", FusedBackend)
    tuner = rw.Tuner(algorithm, FORMATS, arithmetic="fused", table=table).fit(problems)
    tuner.save(tmp_path / "tuner.json")
    assert rw.Tuner.load(tmp_path / "tuner.json").arithmetic_ == "fused"


# A method


class Blockwise(Analysis):
    """Two diagonal blocks, each by LU: exact where A has no others, else a preconditioner."""

    method = "blockwise"

    def __init__(self, backend, A):
        self.backend = backend

    def factorize(self, A, fmt):
        half = len(A) // 2
        blocks = np.zeros_like(A)
        blocks[:half, :half], blocks[half:, half:] = A[:half, :half], A[half:, half:]
        return self.backend.matrix(blocks, fmt).lu()


def blockwise_price(rates, shape, fmt):
    """Seconds of a factorization, of a correction and of a GMRES iteration."""
    whole = METHODS["lu"].price(rates, shape, fmt)
    return whole and whole._replace(factor=whole.factor / 4)


BLOCKWISE = Method(
    "blockwise",
    sparse=False,
    formats=(rw.FP32, rw.FP64),
    then=("lu",),
    price=blockwise_price,
    prepare=Blockwise,
)


def test_a_method(monkeypatch, tmp_path):
    monkeypatch.setitem(METHODS, BLOCKWISE.name, BLOCKWISE)
    policy = NeighbourPolicy(shipped_facts())
    policy.start(np.empty((0, len(PROBE_CONTEXT.features))), rw.VerifiedSolve().starts((False,)))
    rng, n = np.random.default_rng(0), max(800, policy.express_below)
    coupled = rng.standard_normal((n, n))
    apart = coupled + n * np.eye(n)
    apart[: n // 2, n // 2 :] = apart[n // 2 :, : n // 2] = 0.0
    for A, last in ((apart, "blockwise"), (coupled, "lu")):
        solution = rw.solve(A, np.ones(n), policy=policy, full_output=True)
        assert solution.attempts[0].action.startswith("blockwise:")
        assert solution.action.startswith(f"{last}:")
        assert solution.backward_error <= np.sqrt(n) * rw.FP64.unit_roundoff
    table = OutcomeTable(tmp_path / "outcomes.sqlite")
    system, action = rw.LinearSystem(apart, np.ones(n)), "blockwise:fp64-fp64-fp64-fp64"
    fill(table, rw.VerifiedSolve(), [system], [action], arithmetic="native", repeats=1)
    assert table.view(rw.VerifiedSolve(), [system], [action], "native").outcome(0, 0).converged


# A feature


SPREAD = Feature("spread", lambda problem: np.ptp(problem.b), "max(b) - min(b)")


def test_a_feature(monkeypatch, problems):
    monkeypatch.setitem(FEATURES, SPREAD.name, SPREAD)
    context = Context(("spread", "norm_inf"), (None, 1.0))
    tuner = rw.Tuner(rw.GmresIR.paper(), FORMATS, context=context, episodes=5).fit(problems)
    assert tuner.contexts_[0, 0] == np.ptp(problems[0].b)
    assert tuner.features(problems[0])["spread"].seconds > 0


# The document


def section(title):
    """The text below a heading, down to the next one of its level."""
    heading = re.search(rf"^(#+) {re.escape(title)}$", DOCUMENT, re.MULTILINE)
    level = len(heading[1])
    return re.split(rf"^#{{1,{level}}} ", DOCUMENT[heading.end() :], flags=re.MULTILINE)[0]


def test_the_blocks_of_the_document_are_run_here():
    blocks = re.findall(r"```python\n(.*?)```", section("How to add"), re.DOTALL)
    assert len(blocks) == 9
    here = Path(__file__).read_text(encoding="utf-8")
    for block in blocks:
        assert block in here


LAYERS = re.findall(r"^  (\S.*?)(?:  .*)?$", section("Layers").partition("```")[2], re.MULTILINE)


def test_the_layers_are_those_that_are_checked():
    pyproject = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    contract = tomllib.loads(pyproject)["tool"]["importlinter"]["contracts"][0]
    assert [names.replace("roundwise.", "") for names in contract["layers"]] == LAYERS


def layer(file):
    """How far down a file lies; the document lists the layers from top to bottom."""
    room = file.partition("/")[0].removesuffix(".py")
    return next(i for i, names in enumerate(LAYERS) if room in names.replace("|", " ").split())


def passed(call):
    """The files of the package in the order in which a call first enters them; calls upward."""
    files, upward = {}, set()
    root = f"{PACKAGE}{os.sep}"

    def profile(frame, event, argument):
        if event != "call" or not frame.f_code.co_filename.startswith(root):
            return
        file = Path(frame.f_code.co_filename).relative_to(PACKAGE).as_posix()
        files.setdefault(file, frame.f_code.co_qualname)
        caller = frame.f_back
        while caller is not None and not caller.f_code.co_filename.startswith(root):
            caller = caller.f_back
        if caller is not None:
            above = Path(caller.f_code.co_filename).relative_to(PACKAGE).as_posix()
            if layer(file) < layer(above):
                upward.add(frame.f_code.co_qualname)

    call()  # once before, so that what is read once in a process is read
    before = sys.getprofile()
    sys.setprofile(profile)
    try:
        call()
    finally:
        sys.setprofile(before)
    return list(files), upward


HANDED_DOWN = {"System", "Factored", "_tried", "_Watched", "_rival", "Stage", "timed", "gmres"}
HANDED_DOWN |= {"Multigrid", "DirectWay", "Pace"}
"""What of upper layers lower ones are given; the document names their files."""


CEILINGS = {
    "A dense system": (25, 14),
    "A sparse system": (33, 22),
    "A large definite sparse system": (42, 23),
    "A small system": (3, 0),
    "A least squares problem": (32, 13),
    "Tuner(VerifiedSolve()).fit": (57, 35),
}
"""The most files that a call may pass, and the most changes of room, in the order of the files."""


def calls():
    """The calls whose path the document lists, by the title of the section."""
    rng = np.random.default_rng(0)
    n = max(700, parse_policy("default").express_below)  # large enough to be looked at
    dense = rng.standard_normal((n, n)), rng.standard_normal(n)
    grid, flow = laplace_3d(22), convection_diffusion_3d(22, 10.0)
    small = np.eye(50) + 0.01, np.ones(50)
    systems, tuner = training_systems(), rw.Tuner(rw.VerifiedSolve())
    passing = (
        lambda: rw.solve(*dense),
        lambda: rw.solve(flow, flow @ np.ones(flow.shape[0])),
        lambda: rw.solve(grid, grid @ np.ones(grid.shape[0])),
        lambda: rw.solve(*small),
        lambda: rw.lstsq(dense[0][:, :100], dense[1]),
        lambda: tuner.fit(systems),
    )
    return dict(zip(CEILINGS, passing, strict=True))


def by_room(files):
    """Files in turn as pairs: a room, and the files that are entered in it before the next one."""
    rooms = [(file.partition("/")[0], file.partition("/")[2]) for file in files]
    return [(room, [name for _, name in part]) for room, part in groupby(rooms, itemgetter(0))]


@pytest.mark.parametrize("title", CEILINGS)
def test_a_call_passes_few_files_and_rooms(title):
    files, upward = passed(calls()[title])
    most_files, most_changes = CEILINGS[title]
    assert len(files) <= most_files
    assert len(by_room(files)) - 1 <= most_changes
    assert {name.partition(".")[0] for name in upward} <= HANDED_DOWN


def written_walk(files):
    """A walk as the document shows it: a line for each room."""
    lines = (f"{room:<24}{', '.join(names)}".rstrip() for room, names in by_room(files))
    return "text\n" + "\n".join(lines) + "\n"


def write_walks():
    """Put the files that the calls pass through into the document."""
    text = DOCUMENT
    for title, call in calls().items():
        place = text.index("```text\n", text.index(f"### {title}\n")) + 3
        text = text[:place] + written_walk(passed(call)[0]) + text[text.index("```", place) :]
    PAGE.write_text(text, encoding="utf-8")


def walked():
    """The files of the walks that the document shows."""
    for title in CEILINGS:
        for line in section(title).split("```")[1].splitlines()[1:]:
            room, *names = line.replace(",", " ").split()
            yield from (f"{room}/{name}" for name in names) if names else (room,)


ROOTS = (ROOT, PACKAGE, ROOT / "src", ROOT / "cpp")


@pytest.mark.parametrize("page", sorted(PAGE.parent.glob("*.md")), ids=lambda page: page.stem)
def test_every_path_that_a_page_names_exists(page):
    text = page.read_text(encoding="utf-8")
    outside = text.replace(section("Walks"), "")  # there, names follow their room
    named = {*re.findall(PATH, text), *re.findall(BARE_PATH, outside)}
    if page == PAGE:
        named |= {*walked()}
        assert len(named) > 70
    tests = {path.name for path in (ROOT / "tests").rglob("*.py")}
    lost = {path for path in named if not any((root / path).exists() for root in ROOTS)}
    assert lost - tests <= {"out/"}  # results, which come when commands are run


@pytest.mark.parametrize("page", sorted(PAGE.parent.glob("*.md")), ids=lambda page: page.stem)
def test_every_name_that_a_page_shows_exists(page):
    text = page.read_text(encoding="utf-8")
    for dotted in re.findall(r"(?<![\w./-])(?:rw|roundwise)((?:\.[A-Za-z]\w*)+)", text):
        library = re.match(r"\.integrations\.(torch|jax|lineax)", dotted)
        if library and find_spec(library[1]) is None:
            continue
        pkgutil.resolve_name(f"roundwise{dotted}")


PATH = r"`((?:[\w-]+/)+(?:[\w-]+\.(?:py|json|hpp|cpp|toml|txt|yaml))?|\w+\.py)`"
"""A file or a folder: it ends with a slash, or it names a kind of file and its folder."""

BARE_PATH = r"(?<![\w./-])(?:[\w-]+/)+\w+\.py\b"
"""A file in a picture, or in a command."""


def test_every_folder_and_file_of_the_package_is_listed():
    rooms = set(re.findall(r"`(\w+)[/`]", section("Folders")))
    found = {path.stem for path in PACKAGE.iterdir() if path.is_dir() or path.suffix == ".py"}
    assert {name for name in found if not name.startswith("_")} <= rooms


if __name__ == "__main__":
    write_walks()
