"""The one refinement loop, over blocks of columns; stopping rules that see each column."""

import numpy as np
import pytest
from exact import passes

import roundwise as rw
from roundwise.algorithms import Stage
from roundwise.algorithms.refinement import Correction, by_columns, refine, with_unit_columns
from roundwise.algorithms.scaling import equilibrated, plain_columns, scaled_columns, scaled_down
from roundwise.algorithms.stopping import BudgetRule, HalvingRule, Progress, StoppingRule
from roundwise.backends import ArithmeticFailure, get_backend
from roundwise.problems import randsvd

CONVERGED, STAGNATED = rw.OutcomeStatus.CONVERGED, rw.OutcomeStatus.STAGNATED
HOPELESS, LIMIT = rw.OutcomeStatus.HOPELESS, rw.OutcomeStatus.ITERATION_LIMIT
N = 30
A = randsvd(N, 1e3, 3, rng=0).A
B = np.random.default_rng(0).standard_normal((N, 4)) * [1.0, 1e-3, 1e5, 1.0]


def refined(B, rule, backend="operation", factor="fp32", matrix=None, columns=None):
    """LU refinement of a block, with FP64 in residual and update."""
    backend = get_backend(backend)
    scaled = scaled_down(A, *backend.sizes(A)) if matrix is None else matrix
    columns = plain_columns(B) if columns is None else columns
    factors = backend.matrix(scaled.A, factor).lu()
    stages = {name: Stage(name, rw.FP64, backend) for name in ("residual", "update")}

    def solve(R):
        return Correction(factors.solve(R))

    residual, update = stages["residual"], stages["update"]
    return refine(
        (scaled, columns),
        solve,
        solve,
        residual,
        update,
        rule,
        lambda stage: stage.matrix(scaled.A),
    )


class Steps(StoppingRule):
    """So many corrections."""

    def __init__(self, steps):
        self.steps = steps

    def after_update(self, progress):
        return LIMIT if progress.steps >= self.steps else None


@pytest.mark.parametrize("steps", [1, 3])
@pytest.mark.parametrize("backend", ["operation", "storage"])
def test_columns_of_a_block_are_refined_as_if_alone(backend, steps):
    """Bit by bit, in emulated arithmetic."""
    block = refined(B, Steps(steps), backend)
    assert block.X.shape == B.shape
    for j in range(B.shape[1]):
        alone = refined(B[:, [j]], Steps(steps), backend)
        np.testing.assert_array_equal(block.X[:, [j]], alone.X)
        np.testing.assert_array_equal(
            [errors[j] for errors in block.progress.backward_errors],
            [errors[0] for errors in alone.progress.backward_errors],
        )
        np.testing.assert_array_equal(
            [norms[j] for norms in block.progress.z_norms],
            [norms[0] for norms in alone.progress.z_norms],
        )
    assert len(block.history) == steps == block.progress.steps


def test_each_column_is_good_and_the_best_iterate_is_kept():
    rule = HalvingRule(2 * 2.0**-53)
    found = refined(B, rule)
    X = np.linalg.solve(A, B)
    sizes = np.abs(X).max(axis=0)
    np.testing.assert_allclose(found.best / sizes, X / sizes, atol=1e-12)
    errors = np.array(found.progress.backward_errors)
    np.testing.assert_array_equal(found.errors, np.nanmin(errors, axis=0))


def test_scaled_systems_are_refined_to_the_same_backward_error():
    scaled = equilibrated(A)
    columns = scaled_columns(B, scaled)
    found = refined(B, HalvingRule(N**0.5 * 2.0**-53), matrix=scaled, columns=columns)
    assert found.status is CONVERGED
    assert passes(A, columns.solution(found.X), B)


def test_a_failure_ends_the_loop_with_what_there_is():
    def fails(R):
        raise ArithmeticFailure(rw.backends.Status.OVERFLOW, "test", rw.FP64)

    backend = get_backend("operation")
    scaled = scaled_down(A, *backend.sizes(A))
    stage = Stage("residual", rw.FP64, backend)
    arguments = stage, stage, Steps(3), lambda stage: stage.matrix(A)
    nothing = refine((scaled, plain_columns(B)), fails, fails, *arguments)
    assert (nothing.status, nothing.X) == (rw.OutcomeStatus.OVERFLOW, None)
    assert nothing.reason
    start = np.linalg.solve(A, B)
    something = refine((scaled, plain_columns(B)), start, fails, *arguments)
    assert something.status is rw.OutcomeStatus.OVERFLOW
    np.testing.assert_array_equal(something.best, start)


def test_a_start_need_not_be_a_solver():
    backend = get_backend("operation")
    scaled = scaled_down(A, *backend.sizes(A))
    stage = Stage("residual", rw.FP64, backend)
    X = np.linalg.solve(A, B)
    rule = HalvingRule(1e-10)
    found = refine(
        (scaled, plain_columns(B)), X, None, stage, stage, rule, lambda stage: stage.matrix(A)
    )
    assert found.status is CONVERGED
    assert found.progress.steps == 0


def test_solvers_see_columns_of_unit_size():
    sizes = []

    def solve(R):
        sizes.append(np.abs(R).max(axis=0))
        return Correction(3 * R, 2, 0.25)

    R = np.array([[1e-300, 5.0, 0.0], [3e-301, -7.0, 0.0]])
    found = with_unit_columns(solve, R)
    np.testing.assert_array_equal(found.Z, 3 * R)
    assert (found.iterations, found.residual) == (2, 0.25)
    assert ((sizes[0][:2] >= 1) & (sizes[0][:2] < 2)).all()
    assert not with_unit_columns(None, np.zeros((2, 3))).Z.any()
    with pytest.raises(ArithmeticFailure, match="overflow"):
        with_unit_columns(lambda R: Correction(1e300 * R), np.full((2, 1), 1e300))


def test_a_corrector_of_vectors_works_column_by_column():
    correct = by_columns(lambda r: Correction(2 * r, len(r), float(r[0])))
    found = correct(np.array([[1.0, 3.0], [2.0, 4.0]]))
    np.testing.assert_array_equal(found.Z, [[2, 6], [4, 8]])
    assert (found.iterations, found.residual) == (4, 3.0)


# Rules, by hand; each tuple is one number per column


def progress(errors, z=(), x=None, inner_iterations=0, inner_residual=0.0):
    columns = len(errors[0])
    x = [np.ones(columns)] * len(errors) if x is None else [np.array(v) for v in x]
    arrays = [[np.array(v, dtype=float) for v in values] for values in (z, errors)]
    return Progress(5, rw.FP64, x, *arrays, inner_iterations, inner_residual)


def test_paper_rule_waits_for_every_column():
    rule, u = rw.algorithms.PaperRule(tau=0.5), rw.FP64.unit_roundoff
    assert rule.after_update(progress([(1, 1)], [(u, u)])) is CONVERGED
    assert rule.after_update(progress([(1, 1)], [(u, 1.0)])) is None
    two = [(1, 1)] * 2
    # The column that converged may stand still; one that did not stagnates.
    assert rule.after_update(progress(two, [(u, 1.0), (u, 0.1)])) is None
    assert rule.after_update(progress(two, [(u, 1.0), (u, 0.9)])) is STAGNATED


def test_deployment_rule_waits_for_every_column():
    rule = rw.algorithms.DeploymentRule(tolerance=1e-8, max_steps=5)
    assert rule.after_residual(progress([(1e-9, 1e-9)])) is CONVERGED
    assert rule.after_residual(progress([(1e-9, 1e-7)])) is None
    falling = [(1e-9, 1e-1), (1e-9, 1e-2), (1e-9, 1e-4)]
    assert rule.after_residual(progress(falling, [(1, 1), (1, 1)])) is None
    standing = [(1e-9, 1e-1), (1e-9, 1e-2), (1e-9, 1e-2)]
    assert rule.after_residual(progress(standing, [(1, 1), (1, 1)])) is HOPELESS


def test_halving_rule_by_hand():
    rule = HalvingRule(1e-8, max_steps=4)
    assert rule.after_residual(progress([(1e-9, 1e-8)])) is CONVERGED
    assert rule.after_residual(progress([(1e-9, np.nan)])) is None
    assert rule.after_residual(progress([(1e-9, 1e-2)])) is None
    # The first correction is compared with x itself.
    assert rule.after_residual(progress([(1, 1)] * 2, [(0.1, 0.5)])) is None
    assert rule.after_residual(progress([(1, 1)] * 2, [(0.1, 0.6)])) is STAGNATED
    assert rule.after_residual(progress([(1, 1e-9)] * 2, [(0.1, 0.6)])) is None  # good enough
    halving = [(0.5,), (0.25,), (0.125,), (0.0625,)]
    assert rule.after_residual(progress([(1,)] * 4, halving[:3])) is None
    assert rule.after_residual(progress([(1,)] * 5, halving)) is LIMIT
    patient = HalvingRule(1e-8, least_steps=2)
    assert patient.after_residual(progress([(1e-9,)])) is None
    assert patient.after_residual(progress([(1e-9,)] * 3, [(0.5,), (0.4,)])) is CONVERGED


def test_budget_rule_by_hand():
    rule = BudgetRule(1e-8, budget=40, slow=1e-3)
    assert rule.after_residual(progress([(1e-8,)])) is CONVERGED
    assert rule.after_residual(progress([(1e-2,)])) is None
    step = {"errors": [(1e-2,)] * 2, "z": [(1.0,)]}
    assert rule.after_residual(progress(**step, inner_residual=1e-2)) is HOPELESS
    assert rule.after_residual(progress(**step, inner_residual=1e-4)) is None
    assert rule.after_residual(progress(**step, inner_iterations=40)) is LIMIT
    free = BudgetRule(1e-8, budget=None, slow=1e-3)
    assert free.after_residual(progress(**step, inner_iterations=400, inner_residual=1.0)) is None
    standing = {"errors": [(1e-2,), (1e-2,), (0.9e-2,)], "z": [(1.0,), (0.9,)]}
    assert rule.after_residual(progress(**standing)) is STAGNATED
    for halved in ({"z": [(1.0,), (0.4,)]}, {"errors": [(1e-2,), (1e-2,), (0.5e-2,)]}):
        assert rule.after_residual(progress(**standing | halved)) is None
