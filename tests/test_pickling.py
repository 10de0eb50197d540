"""Every public exception, result and setting survives copying, and the way to another process."""

import copy
import dataclasses
import enum
import importlib
import inspect
import math
import multiprocessing
import pickle
import pkgutil
import threading
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from cases import BASELINES, LEARNERS

import roundwise as rw
from roundwise import (
    actions,
    algorithms,
    costs,
    discretizer,
    features,
    machine,
    outcomes,
    policies,
    problems,
    rewards,
    solver,
    tuning,
)
from roundwise.backends import UnsupportedFormat
from roundwise.backends.cuda.device import DeviceUnavailable
from roundwise.backends.engines.contract import EngineError
from roundwise.costs.rates import ProfileMissingError
from roundwise.solver.memory_forecast import InsufficientMemory
from roundwise.solver.places import CaptureError, DeviceMemoryError
from roundwise.solver.trust.knowledge import SystemChanged
from roundwise_studies.datasets import Dataset

PUBLIC = (
    *(rw, actions, algorithms, costs, discretizer, features, machine, outcomes, policies),
    *(problems, rewards, solver, tuning),
)
LEFT_OUT = {
    problems.Problem,  # a base class without fields
    *(rw.Factorization, rw.solver.StackedFactorization),  # tested below
    # Kernels, counters and callbacks of one run, which never leave it:
    *(algorithms.Shared, algorithms.Stage, algorithms.Stages, algorithms.Tally, solver.Plan),
    features.Feature,  # an entry of `FEATURES`, which every process has; it is known by its name
}


def all_errors():
    """`RoundwiseError` and its children, of all modules of the library."""
    for module in pkgutil.walk_packages(rw.__path__, "roundwise."):
        if not module.name.endswith("__main__"):
            try:
                importlib.import_module(module.name)
            except ModuleNotFoundError as missing:
                if "integrations" not in module.name:  # which may lack the library they are for
                    raise missing
    found, children = set(), [rw.RoundwiseError]
    while children:
        kind = children.pop()
        children += kind.__subclasses__()
        if kind.__module__.startswith("roundwise."):
            found.add(kind)
    return found


def public_classes():
    """The classes in the public packages whose objects a user may hold, exceptions aside."""
    found = [getattr(module, name) for module in PUBLIC for name in dir(module)]
    classes = {value for value in found if is_class(value)}
    return {
        kind
        for kind in classes - LEFT_OUT
        if kind.__module__.startswith("roundwise.")
        and not kind.__module__.startswith("roundwise._")
        and not inspect.isabstract(kind)
        and not getattr(kind, "_is_protocol", False)
        and not issubclass(kind, Exception)
    }


def is_class(value):
    return isinstance(value, type) and not value.__name__.startswith("_")


def an_outcome():
    return rw.GmresIR.paper().run(problems.randsvd(8, 1e3, rng=0), "fp32-fp64-fp64-fp64")


ERRORS = {
    type(error): error
    for error in (
        rw.RoundwiseError("a message"),
        rw.UnknownNameError("policy", "defualt", ["default", "fp64"]),
        rw.backends.ArithmeticFailure(rw.backends.Status.ZERO_PIVOT, "lu", rw.BF16, 3),
        rw.SolveFailed("A is singular", np.arange(3.0), 0.5, (an_outcome(),)),
        SystemChanged(),
        UnsupportedFormat("native runs no e4m3; choose fp32"),
        costs.ProfileError("no profile"),
        ProfileMissingError("no profile at all"),
        outcomes.OutcomeTableError("no table"),
        outcomes.WorkersLost("no workers"),
        policies.FactsError("no facts"),
        policies.MemoryFileError("no memory"),
        tuning.TunerFileError("no tuner"),
        EngineError("no engine"),
        DeviceUnavailable("no GPU"),
        DeviceMemoryError("no memory"),
        InsufficientMemory("no memory", {"lu:fp32": 4e9}),
        CaptureError("no graph"),
    )
}


@pytest.fixture(scope="module")
def samples(tmp_path_factory):
    """An object of every public class, by class."""
    table = outcomes.OutcomeTable(tmp_path_factory.mktemp("samples") / "outcomes.sqlite")
    system, second = problems.randsvd(12, 1e3, rng=1), problems.randsvd(9, 1e6, rng=2)
    tuner = rw.Tuner(rw.GmresIR.paper(), ["bf16", "fp64"], table=table, episodes=2)
    tuner.fit([system, second])
    view = table.view(tuner.algorithm, None, tuner.space_)
    here = machine.Machine.this()
    learner = policies.OnlinePolicy(policies.NeighbourPolicy(), policies.Memory(), 0.02)
    steps = []
    watched = {"callback": steps.append, "full_output": True}
    made = [
        *(rw.solve(np.diag([1.0, 2.0, 4.0]), np.ones(3), **watched), steps[0]),
        algorithms.ErrorMeasure(system),
        *(rw.Action.parse("cholesky:fp32-fp64-fp64-fp64"), tuner.space_, rw.FP64),
        *(rw.GmresIR.paper(), rw.LuIR(), rw.CgIR(), rw.LsIR(), rw.VerifiedSolve()),
        algorithms.KrylovIR(),
        problems.random_least_squares(6, 2, kappa=10.0, residual=1.0, rng=0),
        rw.lstsq(np.eye(4, 2), np.ones(4), full_output=True),
        *(algorithms.StoppingRule(), rw.algorithms.PaperRule(), rw.algorithms.DeploymentRule()),
        *(rw.OutcomeStatus.CONVERGED, rw.backends.Status.OVERFLOW),
        *(system, Dataset("two", 1, (system,), (second,)), an_outcome()),
        *(rw.solve(system.A, system.b, full_output=True), rw.Solver()),
        rw.solve(np.stack([system.A] * 2), system.b, full_output=True),
        *(tuner, tuner.deployed, tuner.context_, tuner.curves_),
        *(table, view, view.problems[0]),
        *(learner, learner.memory, policies.shipped_facts(), policies.NeighbourPolicy()),
        *(policies.Ranking((1, 0), (0.5, math.nan), "a reason"), discretizer.FeatureDiscretizer(4)),
        *(
            here,
            costs.H200_LIKE,
            costs.Rate(1e9, 2e9),
            costs.MeasuredTime(),
            costs.current_prices(),
        ),
        *(
            costs.Shape(100, 10_000),
            costs.Work(1, 2, 3),
            costs.calibration.Calibration(here, {}, {}),
        ),
        *(rewards.PAPER_W1, rewards.CostReward(costs.H200_LIKE), rewards.ClimbReward()),
        *(rewards.StrictTarget(), rewards.BackwardErrorTarget()),
        *(
            rewards.ProblemFacts.from_problem(system, 1e3),
            features.definitions.FeatureValue("n", 3.0, 0.1),
        ),
    ]
    made += [make() for make in (*LEARNERS, *BASELINES)]
    return {type(one): one for one in made}


def copies(one):
    yield copy.copy(one)
    yield copy.deepcopy(one)
    for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1):
        yield pickle.loads(pickle.dumps(one, protocol))


def same(one, other):
    """Whether two objects have the same content, NaN being equal to NaN."""
    if type(one) is not type(other):
        return False
    if sp.issparse(one):
        return one.shape == other.shape and (one != other).nnz == 0
    if isinstance(one, np.ndarray):
        return one.shape == other.shape and same(one.tolist(), other.tolist())
    if isinstance(one, float):
        return one == other or (math.isnan(one) and math.isnan(other))
    if isinstance(one, Mapping):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, tuple | list):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, policies.Memory):  # a connection to a database
        return one.path == other.path and one.cells() == other.cells()
    if isinstance(one, type(threading.RLock())):
        return True
    if isinstance(one, enum.Enum | Path) or not state(one):
        # Without attributes, an object of a class that defines no equality is like all others.
        return one == other or type(one).__eq__ is object.__eq__
    return same(state(one), state(other))


def state(one):
    """The attributes of an object, those in slots too; of a dataclass only its fields."""
    if dataclasses.is_dataclass(one):
        return {field.name: getattr(one, field.name) for field in dataclasses.fields(one)}
    if type(one).__getstate__ is not object.__getstate__:  # it says what it consists of
        return one.__getstate__()
    slots = [name for kind in type(one).__mro__ for name in getattr(kind, "__slots__", ())]
    named = {name: getattr(one, name) for name in slots if hasattr(one, name)}
    return named | getattr(one, "__dict__", {})


@pytest.mark.parametrize("kind", sorted(all_errors(), key=lambda kind: kind.__name__))
def test_errors_keep_their_message_and_attributes(kind):
    assert kind in ERRORS, f"add a {kind.__name__} to ERRORS"
    error = ERRORS[kind]
    error.add_note("a note")
    for twin in copies(error):
        assert type(twin) is kind
        assert str(twin) == str(error)
        assert same(twin.args, error.args)
        assert same(vars(twin), vars(error))


def test_errors_with_an_init_of_their_own_need_nothing_else():
    error = TwoWords("one", two="two")
    for twin in copies(error):
        assert (str(twin), twin.two) == ("one two", "two")


class TwoWords(rw.RoundwiseError):
    def __init__(self, one, *, two):
        super().__init__(f"{one} {two}")
        self.two = two


@pytest.mark.parametrize("kind", sorted(public_classes(), key=lambda kind: kind.__name__))
def test_results_and_settings_survive(samples, kind):
    assert kind in samples, f"add a {kind.__name__} to samples"
    for twin in copies(samples[kind]):
        assert same(twin, samples[kind])


def test_copies_work_as_their_originals_do(samples):
    system = samples[rw.LinearSystem]
    for tuner in copies(samples[rw.Tuner]):
        assert tuner.predict(system) == samples[rw.Tuner].predict(system)
    for one in copies(samples[rw.Solver]):
        assert np.array_equal(one.solve(system.A, system.b), rw.solve(system.A, system.b))


@pytest.mark.parametrize("form", [np.asarray, sp.csr_array])
@pytest.mark.parametrize("accuracy", ["backward", "forward"])
def test_a_factorization_makes_its_factors_anew(samples, form, accuracy):
    system = samples[rw.LinearSystem]
    method, residual = "lu", "fp64x2" if accuracy == "forward" else "fp64"
    if form is sp.csr_array:
        method = "superlu/colamd"
    policy = f"{method}:fp32-fp64-fp64-{residual}"
    F = rw.factor(form(system.A), accuracy=accuracy, policy=policy)
    solution = F.solve(system.b, full_output=True)
    for twin in copies(F):
        again = twin.solve(system.b, full_output=True)
        assert twin.action == F.action  # on the rung that it had reached
        assert again.backward_error <= again.tolerance == solution.tolerance
        assert again.accuracy == solution.accuracy
        assert np.array_equal(again.x, solution.x)
        assert np.array_equal(twin.solve(system.b, "T"), F.solve(system.b, "T"))


def test_a_stack_of_factorizations_does_too(samples):
    A, b = np.stack([samples[rw.LinearSystem].A] * 2), samples[rw.LinearSystem].b
    F = rw.factor(A)
    for twin in copies(F):
        assert np.array_equal(twin.solve(b), F.solve(b))


def misspelled(_):
    return rw.solve(np.eye(2), np.ones(2), policy="defualt")


def singular(_):
    return rw.solve(np.zeros((2, 2)), np.ones(2))


# A pool asks the resource tracker of multiprocessing for semaphores. If garbage is collected just
# then, the finalizers of semaphores that other tests left (joblib's) ask it again, of which Python
# 3.12 warns. Nothing of ours causes that, and nothing leaks.
@pytest.mark.filterwarnings("ignore:ResourceTracker called reentrantly:UserWarning")
@pytest.mark.parametrize(
    ("work", "error"), [(misspelled, rw.UnknownNameError), (singular, rw.SolveFailed)]
)
def test_a_pool_of_processes_hands_on_what_a_worker_raised(work, error):
    with pytest.raises(error) as here:
        work(None)
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        task = pool.map_async(work, [None])
        with pytest.raises(type(here.value)) as there:
            task.get(timeout=300)  # an error that cannot be unpickled leaves the pool waiting
    assert str(there.value) == str(here.value)
