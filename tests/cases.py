"""The formats, backends, engines, algorithms and policies that conformance checks run over."""

import ml_dtypes
import numpy as np
import pytest

import roundwise as rw
from roundwise import backends
from roundwise.actions import monotone_space
from roundwise.discretizer import FeatureDiscretizer
from roundwise.policies import (
    Escalation,
    FixedAction,
    LinearUCB,
    NeighbourPolicy,
    OnlinePolicy,
    Oracle,
    RegressionPolicy,
    TabularQ,
    TheoryRule,
    ThompsonSampling,
)

FORMATS = [
    fmt for fmt in rw.formats.NAMED_FORMATS.values() if fmt.p <= rw.FP64.p
]  # of float64 arrays

# Formats that try the corners of the definition.
ODD_FORMATS = [
    rw.FloatFormat("no_subnormals", 5, -6, 7, subnormals=False),
    rw.FloatFormat("saturating", 4, -6, 8, overflow="saturate", top_code_is_nan=True),
    rw.FloatFormat("saturating_ieee", 6, -10, 9, overflow="saturate"),
    rw.FloatFormat("nan_on_overflow", 3, -3, 3, overflow="nan"),
    rw.FloatFormat("two_bits", 2, -4, 4),
    rw.FloatFormat("wide", 7, -1001, 1023),
    rw.FloatFormat("p24", 24, -200, 300),
]

# Formats whose bit patterns can be listed, with a library that knows them.
PATTERNS = {
    "bf16": (ml_dtypes.bfloat16, np.uint16),
    "fp16": (np.float16, np.uint16),
    "e5m2": (ml_dtypes.float8_e5m2, np.uint8),
    "e4m3": (ml_dtypes.float8_e4m3fn, np.uint8),
}

MODES = ["nearest", "toward_zero", "up", "down"]

BACKENDS = list(backends.BACKENDS)
ENGINES = backends.KNOWN_ENGINES


def engine_methods(*suits):
    """Every engine with each of its orderings, of those that suit one of these kinds of matrix.

    Those that are not installed here are skipped with a reason.
    """
    return [
        pytest.param(
            engine,
            ordering,
            id=f"{engine.name}/{ordering}",
            marks=pytest.mark.skipif(
                not engine.installed, reason=f"{engine.package} is not installed: {engine.remedy}"
            ),
        )
        for engine in ENGINES
        for ordering in engine.orderings
        if not suits or engine.suits in suits
    ]


def supports(backend, fmt, is_sparse=False):
    """Whether the backend of that name runs the format, on this machine if it is native."""
    return rw.backends.get_backend(backend).supports(fmt, is_sparse)


ALGORITHMS = [
    *(rw.GmresIR.paper(), rw.LuIR(), rw.CgIR(), rw.LsIR(), rw.VerifiedSolve()),
    *(rw.algorithms.KrylovIR(), rw.algorithms.KrylovIR("cg", "cholesky")),
]


def all_values(name):
    """Every number of the format, by its bit pattern, as float64 (NaN included)."""
    dtype, bits = PATTERNS[name]
    patterns = np.arange(2 ** (8 * np.dtype(bits).itemsize)).astype(bits)
    with np.errstate(invalid="ignore"):  # signalling NaNs
        return patterns.view(dtype).astype(np.float64)


def same_bits(x, y):
    """Equal, the sign of zero included, NaN equal to NaN."""
    x, y = np.asarray(x, dtype=np.float64), np.asarray(y, dtype=np.float64)
    nan = np.isnan(x) & np.isnan(y)
    return x.shape == y.shape and bool(np.all(nan | ((x == y) & (np.signbit(x) == np.signbit(y)))))


def small_forest():
    ensemble = pytest.importorskip("sklearn.ensemble")
    return ensemble.ExtraTreesRegressor(n_estimators=5)


# The paper's 35 actions. Policies see contexts of two features, log10 kappa first.
POLICY_SPACE = monotone_space(rw.GmresIR.stages, ["bf16", "tf32", "fp32", "fp64"])
LEARNERS = [
    TabularQ,
    lambda: TabularQ(alpha="1/N", generalise="nearest"),
    lambda: TabularQ(FeatureDiscretizer((4, 3)), generalise="monotone"),
    LinearUCB,
    lambda: LinearUCB(model="hybrid", knots=1),
    ThompsonSampling,
    lambda: RegressionPolicy(small_forest()),
]

BASELINES = [
    FixedAction,
    lambda: FixedAction("bf16-fp32-fp64-fp64"),
    TheoryRule,
    lambda: TheoryRule(1e-7, "three-precision", 1),
    Escalation,
    lambda: Oracle(np.random.default_rng(5).normal(size=(40, len(POLICY_SPACE)))),
]

# All kinds of policies for the front door's actions. They see `PROBE_CONTEXT`; none of its features
# is a condition number, so the theory's rule takes the coherence for one.
FRONT_DOOR_POLICIES = {
    "neighbours": NeighbourPolicy,
    "online": OnlinePolicy,
    "tabular": lambda: TabularQ(alpha="1/N", generalise="nearest"),
    "linear": LinearUCB,
    "thompson": ThompsonSampling,
    "regression": lambda: RegressionPolicy(small_forest()),
    "fixed": lambda: FixedAction("lu:fp32-fp64-fp64-fp64"),
    "theory": lambda: TheoryRule(kappa_feature=6),
    "escalation": Escalation,
}
