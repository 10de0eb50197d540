"""A small slice of the native study as published: its systems, runs, rules, switches, tables."""

import json
import math

import numpy as np
import pytest
from command_line import succeed
from scipy.linalg import lu_factor

from roundwise.algorithms import GmresIR, PaperRule
from roundwise.backends import get_backend
from roundwise.machine import blas
from roundwise_studies import departures, paper
from roundwise_studies.native import published, trajectories
from roundwise_studies.native import published_systems as systems
from roundwise_studies.native.published import Published
from roundwise_studies.native.published_tables import PublishedStudy
from roundwise_studies.protocol import reproduce
from roundwise_studies.writing import write

SLICE = Published(train=6, test=9, sizes=(30, 50), repeats=2, seeds=2)
STUDY = PublishedStudy(SLICE)
needs_openblas = pytest.mark.skipif(
    blas.bundled("scipy") is None, reason="SciPy's BLAS is not the wheel's OpenBLAS"
)


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return tmp_path_factory.mktemp("native-paper")


@pytest.fixture(scope="module")
def result(cache):
    return reproduce(STUDY, cache)


# Systems


@pytest.mark.parametrize("reverse", [False, True])
def test_the_released_generator_is_nearly_diagonal(reverse):
    rng = np.random.default_rng(0)
    A = systems.released_matrix(60, 1e6, reverse, rng)
    diagonal = A.diagonal()[::-1] if reverse else A.diagonal()
    assert diagonal == pytest.approx(np.geomspace(1, 1e-6, 60), rel=0.05)
    made = np.geomspace(1, 1e-6, 60)
    perturbation = A - np.diag(made[::-1] if reverse else made)
    assert np.linalg.matrix_rank(perturbation, tol=1e-12) == 8
    assert np.linalg.norm(perturbation, 2) < 0.05e-6
    assert np.linalg.cond(A) == pytest.approx(1e6, rel=0.1)


def test_the_harder_variant_has_one_small_singular_value():
    A = systems.randsvd_matrix(40, 1e5, False, np.random.default_rng(0))
    values = np.linalg.svd(A, compute_uv=False)
    assert values[:-1] == pytest.approx(1.0)
    assert values[-1] == pytest.approx(1e-5, rel=1e-6)


def test_splits_are_those_of_the_text_and_of_the_code():
    counts = {
        (split, half): [recipe[2] for recipe in systems.recipes("released", split, half, 12)]
        for split in systems.SPLITS
        for half in ("train", "test")
    }
    assert counts["text", "train"] == counts["released", "test"] == ["low", "medium"] * 6
    assert counts["text", "test"] == counts["released", "train"] == ["low", "medium", "high"] * 4
    for generator in systems.GENERATORS:
        assert len(set(systems.recipes(generator, "text", "test", 100))) == 100
    one, two = (systems.recipes("randsvd", split, "test", 6) for split in ("text", "released"))
    assert set(one) & set(two)  # our harder variant is measured once for both splits


def test_the_papers_own_systems_are_drawn():
    """Orders and condition numbers are in the names of its released result files."""
    known = [(1246, 2.106277340649), (1065, 2205.005738778), (1184, 26480348.39567)]
    recipes = systems.recipes("released", "text", "test", 3)
    for recipe, (n, kappa) in zip(recipes, known, strict=True):
        drawn = systems.released_draw(recipe, (1000, 1500), 20260912)
        assert drawn[0] == n
        assert drawn[1] == pytest.approx(kappa, rel=1e-12)
    with pytest.raises(ValueError, match="50 training systems"):
        systems.released_draw(("text", "train", "low", 50), (1000, 1500), 20260912)


@pytest.mark.parametrize("generator", systems.GENERATORS)
def test_systems_are_in_their_regimes(generator):
    for regime, (low, high) in systems.REGIMES.items():
        number = list(systems.REGIMES).index(regime)
        recipe = ("text", "test", regime, number)
        made, again = (systems.system(generator, recipe, (20, 30), 7) for _ in range(2))
        assert made.fingerprint == again.fingerprint
        assert low <= math.log10(made.meta["kappa"]) <= high
        assert 20 <= made.n <= 30
        assert np.array_equal(made.b, made.A @ made.x_true)


# Runs


@needs_openblas
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_the_unblocked_lu_is_an_lu(dtype):
    A = np.random.default_rng(0).standard_normal((37, 37))
    mine = np.asfortranarray(A, dtype=dtype)
    pivots = trajectories.factorize_unblocked(mine)
    LU, rows = lu_factor(A)
    assert np.array_equal(pivots, rows)
    assert np.abs(mine - LU).max() < 1e3 * np.finfo(dtype).eps


def test_the_condition_estimate_is_that_of_the_one_norm():
    A = np.diag([1.0, 1e-3, 1e-5])
    assert trajectories.one_norm_condition(A) == pytest.approx(1e5)
    assert trajectories.one_norm_condition(np.zeros((2, 2))) == math.inf


def test_a_trajectory_is_what_the_algorithm_does():
    """Ended by the text's rule, it has the errors and iterations of `GmresIR` with that rule."""
    problem = systems.system("randsvd", ("", "train", "medium", 0), (40, 40), 3)
    space, backend = SLICE.space, get_backend("native")
    found = trajectories.measured(problem, space, backend, 1)
    # Of fp32-fp64-fp64-fp64 GMRES ends after one iteration or two, as BLAS happens to round.
    for name in ("fp32-fp64-fp32-fp64", "fp64-fp64-fp64-fp64"):
        roundoff = space[space.names.index(name)][1].unit_roundoff
        end = published.ended(found.actions[name], 1e-6, False, roundoff)
        rule = PaperRule(1e-6, max_steps=10)
        run = GmresIR(tolerance=1e-4, restart=30, cycles=1, stop=rule).run(problem, name, "native")
        assert end.gmres == run.inner_iterations
        assert end.ferr == pytest.approx(run.ferr, rel=1e-6)
        assert end.nbe == pytest.approx(run.nbe, rel=1e-6)


def test_the_released_rule_stops_at_the_first_small_error():
    steps = [trajectories.Step(e, e, e, k, 1.0, float(k)) for k, e in enumerate([1e-3, 1e-7, 1e-9])]
    run = trajectories.Trajectory(tuple(steps))
    assert published.ended(run, 1e-6, True, 1e-16) is steps[1]
    assert published.ended(run, 1e-8, True, 1e-16) is steps[2]
    assert published.ended(run, 1e-12, True, 1e-16) is steps[2]
    assert published.ended(trajectories.Trajectory((), "ZERO_PIVOT"), 1e-6, True, 1e-16) is None


def test_a_second_gathering_measures_nothing(result, cache):
    file = cache / "native-paper.jsonl"
    before = file.read_text()
    again = reproduce(STUDY, cache)
    assert file.read_text() == before
    for first, second in zip(result.cases, again.cases, strict=True):
        assert np.array_equal(first.chosen, second.chosen)
    with file.open("a") as lines:
        lines.write('["broken')  # a run that was interrupted while it wrote
    assert reproduce(STUDY, cache).cases[0].chosen.shape == (2, 9)


# Switches


def test_zero_iterations_cost_what_32_do(result):
    case = result.case("text", "released", "W1", 1e-6)
    on, off = (
        published.rewards(case.systems, case.found, SLICE.space, "W1", switches)
        for switches in (published.RELEASED, published.RELEASED - {"zero"})
    )
    zero = case.found.gmres == 0
    assert zero[:, SLICE.space.safe].all()  # x_0 of all-FP64 is accepted
    assert on[zero] == pytest.approx(off[zero] - 2.5)
    assert np.array_equal(on[~zero], off[~zero])


def test_a_missed_tau_earns_a_failure(result):
    case = result.case("text", "released", "W1", 1e-8)
    on, off = (
        published.rewards(case.systems, case.found, SLICE.space, "W1", switches)
        for switches in (published.RELEASED, published.RELEASED - {"missed"})
    )
    missed = ~(case.found.ferr2 <= 1e-8)
    assert missed.any()
    assert (on[missed] <= off[missed]).all()
    assert (on[missed] < 0).all()
    assert np.array_equal(on[~missed], off[~missed])


def test_its_stream_is_one_training_with_its_own_numbers(result):
    stream = result.case("text", "released, its stream", "W1", 1e-6)
    assert len(stream.chosen) == 1
    space, on = SLICE.space, frozenset({"updates", published.STREAM})
    seen, earned = np.arange(6.0)[:, None], np.ones((6, len(space)))
    runs = [published.learned(seen, earned, space, 20, on, seed) for seed in (0, 1)]
    assert np.array_equal(runs[0].counts, runs[1].counts)


def test_learning_truncates_bins():
    space, contexts = SLICE.space, [[0.0], [0.9], [9.0]]
    for on, same in ((frozenset({"learning"}), True), (frozenset(), False)):
        policy = published.NativeQ(on)
        policy.start(contexts, space)
        states = list(policy.encode(contexts))
        assert (states[0] == states[1]) == same


def test_single_updates_are_few():
    space = SLICE.space
    seen, earned = np.arange(6.0)[:, None], np.ones((6, len(space)))
    few = published.learned(seen, earned, space, 20, frozenset({"updates"}), 0)
    many = published.learned(seen, earned, space, 20, frozenset(), 0)
    assert few.counts.sum() == 20
    assert many.counts.sum() == 120


@pytest.mark.parametrize(
    ("on", "unseen"), [((), "fp64-fp64-fp64-fp64"), (("lowest",), "fp16-fp16-fp16-fp16")]
)
def test_ties_decide_unseen_states(on, unseen):
    space = SLICE.space
    policy = published.NativeQ(frozenset(on))
    policy.start([[0.0], [9.0]], space)
    assert space.names[policy.predict([[5.0]])[0]] == unseen


def test_there_are_four_policies_for_each_variant_and_split(result):
    keys = {(c.split, c.variant, c.weight, c.tau) for c in result.cases}
    assert len(keys) == len(result.cases) == 2 * len(published.VARIANTS) * 4
    left_out = [name for name in published.VARIANTS if "without" in name]
    assert len(left_out) == len(published.SWITCHES)


# Tables and command


def test_tables(result, tmp_path):
    written = write(STUDY, result, tmp_path)
    stored = json.loads((tmp_path / "results.json").read_text())
    rows = stored["numbers"]
    fp64 = [row for row in rows if row["policy"] == "FP64"]
    assert {row["mean"] for row in fp64 if row["metric"] == "reduced"} == {0}
    assert {row["mean"] for row in fp64 if row["metric"] == "speedup, ours"} == {1}
    paid = [row["mean"] for row in fp64 if row["metric"] == "features paid, ours"]
    assert max(paid) < 1
    theirs = [row["paper"] for row in rows if row["metric"] == "reduced" and row["paper"]]
    assert set(theirs) == {53, 28, 29}
    text = (tmp_path / "report.md").read_text()
    assert "all-FP64" in text
    assert "| paper | 1e-6 | RL(W1) |" in text
    assert len(written.parts) == 1
    for title, _ in departures.NATIVE_PAPER:
        assert title in text
    assert len(paper.NATIVE) == 4


def test_the_command(tmp_path):
    folders = ["--cache", tmp_path / "cache", "--out", tmp_path / "out"]
    text = succeed(
        "reproduce",
        "native",
        "--systems",
        3,
        "--sizes",
        20,
        30,
        "--seeds",
        1,
        *folders,
        "--verbose",
    )
    assert "NATIVE CPU VALIDATION" in text
    assert (tmp_path / "out" / "results.json").exists()


@pytest.mark.parametrize("wrong", [{"train": 0}, {"sizes": (9, 5)}, {"generator": "none"}])
def test_wrong_settings_are_refused(wrong):
    with pytest.raises(ValueError, match="choose"):
        Published(**wrong)
