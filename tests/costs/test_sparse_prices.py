"""Prices of sparse work: how they are calibrated and stored."""

import json
import math
from dataclasses import asdict, replace

import numpy as np
import pytest
from calibrated import calibration

from roundwise.backends import NativeBackend
from roundwise.costs import ProfileWarning, Shape, current_prices, rates, save_profile
from roundwise.costs.calibration import Calibration, least_seconds
from roundwise.costs.prices import _prices_of, dense_threads, generic_prices
from roundwise.costs.rates import SparsePrices, generic_sparse_prices
from roundwise.costs.sparse_calibration import (
    STIFFNESS,
    SYSTEMS,
    SparseTimes,
    arrow,
    multipliers,
    scaled,
    scattered,
    timed_methods,
)
from roundwise.machine.identity import Machine
from roundwise.methods import AMOUNTS, METHODS, SAFE, SAME_PRICE
from roundwise.problems import poisson_2d

NATIVE = NativeBackend()
CHOLESKY, NESTED, KLU = "cholesky/amd", "cholesky/nd", "klu/amd"
SHAPE = Shape(100, 500, 1, 1000.0, 20_000.0, 0.0, 2500.0)
PRICES = SparsePrices(
    factor={
        CHOLESKY: {"fp32": [1.0, 0, 0, 0, 0, 0], "fp64": [0, 1.0, 0, 0, 0.005, 0]},
        NESTED: {"fp32": [1.0, 0, 0, 0, 0, 0], "fp64": [0, 1.0, 0, 0, 0.005, 0]},
        KLU: {"fp64": [0, 0, 1.0, 1.0, 1.0, 1.0]},
    },
    solve={
        CHOLESKY: {"fp32": 1.0, "fp64": 2.0},
        NESTED: {"fp32": 1.0, "fp64": 2.0},
        KLU: {"fp64": 3.0},
    },
    matvec=1.0,
    conversion=4.0,
    reference={"grid": {CHOLESKY: {"fp32": [7.0, 1.0], "fp64": [9.0, 2.0]}}},
)


def slower(factor, solve=1.0, matvec=1.0):
    """What a machine measures on which the reference took so many times less."""
    there = PRICES.reference["grid"][CHOLESKY]
    times = {fmt: (factor * f, solve * s) for fmt, (f, s) in there.items()}
    return {"grid": SparseTimes(SHAPE, matvec * SHAPE.entries, {CHOLESKY: times})}


# Calibration


def test_the_machine_of_the_prices_is_priced_as_they_are():
    found = scaled(PRICES, slower(1.0))
    for method, formats in PRICES.factor.items():
        for fmt, numbers in formats.items():
            assert found.factor[method][fmt] == pytest.approx(numbers)
            assert found.solve[method][fmt] == pytest.approx(PRICES.solve[method][fmt])
    assert (found.matvec, found.conversion) == (1.0, 4.0)


def test_a_machine_that_is_slower_at_all_is_dearer_at_all():
    """What is not installed there is scaled as the others are; nested dissection as AMD's order."""
    found = scaled(PRICES, slower(3.0, solve=5.0, matvec=2.0))
    for method, formats in PRICES.factor.items():
        for fmt, numbers in formats.items():
            assert found.factor[method][fmt] == pytest.approx([3 * price for price in numbers])
            assert found.solve[method][fmt] == pytest.approx(5 * PRICES.solve[method][fmt])
    assert (found.matvec, found.conversion) == (2.0, 8.0)
    assert "grid" in found.source


def test_nothing_measured_nothing_changed():
    assert scaled(PRICES, {}) is PRICES
    unknown = {"a system that has no reference": slower(3.0)["grid"]}
    assert scaled(PRICES, unknown) is PRICES
    assert Calibration(Machine.this(), {}, {}).sparse_prices() == generic_sparse_prices()


def test_flops_and_the_rest_are_scaled_apart_by_hand():
    """One system without flops, twice as slow, and one of flops alone, eight times as slow.

    The sum of squares ``(x - log 2)^2 + (y - log 8)^2 + s^2 ((x - log 4)^2 + (y - log 4)^2)`` is
    least at ``x = (log 2 + s^2 log 4) / (1 + s^2)``, and y alike.
    """
    found = multipliers(np.array([[5.0, 0.0], [0.0, 3.0]]), np.array([10.0, 24.0]))
    pull = STIFFNESS**2 / (1 + STIFFNESS**2)
    assert found == pytest.approx((2 * 2**pull, 8 / 2**pull))


def test_multipliers_are_found_from_far_away():
    parts = np.array([[1.0, 2.0], [3.0, 1.0], [1e-3, 5.0]])
    assert multipliers(parts, 1e-6 * parts.sum(axis=1)) == pytest.approx((1e-6, 1e-6))
    others, flops = multipliers(parts, parts @ [50.0, 1.0])
    assert others > 5 * flops


def test_every_method_that_runs_here_is_timed_with_a_fake_timer():
    timed = []

    def timer(call):
        timed.append(call)
        return float(len(timed)), call()

    A = poisson_2d(12).A
    found = timed_methods(A, NATIVE, timer)
    symmetric = {
        f"{name}:{fmt}"
        for name, method in METHODS.items()
        if method.sparse and name not in SAME_PRICE
        for fmt in method.formats
        if NATIVE.runs(name, fmt, sparse=True)
    }
    assert {f"{m}:{fmt}" for m, formats in found.methods.items() for fmt in formats} == symmetric
    assert {"superlu/colamd:fp32", "cholesky/amd:fp64", "ldl/amd:fp64", "lu/amd:fp32"} <= symmetric
    numbers = [s for formats in found.methods.values() for pair in formats.values() for s in pair]
    assert numbers == list(range(1, len(timed)))  # factor, solve, factor, solve, ...
    assert found.matvec == len(timed)
    assert (found.shape.n, found.shape.entries, found.shape.columns) == (144, A.nnz, 1)
    assert 144 < found.shape.filled < found.shape.flops


def test_methods_that_do_not_fit_are_not_timed():
    found = timed_methods(scattered(60), NATIVE, lambda call: (1.0, call()))
    assert not {"cholesky/amd", "ldl/amd"} & set(found.methods)
    assert {"lu/amd", SAFE} <= set(found.methods)


def test_the_systems_of_the_calibration():
    """Their names say their sizes; some have few flops for each entry of L, some have many."""
    ratios = []
    for name, make in SYSTEMS.items():
        A = make()
        assert name.endswith(f"n = {A.shape[0]}")
    for A in (arrow(300), scattered(300)):
        shape = timed_methods(A, NATIVE, lambda call: (1.0, call())).shape
        ratios.append(shape.flops / shape.filled)
    assert ratios[0] < 3 < ratios[1]
    # Eliminated last, the first row and column fill nothing in: L has 2 n - 1 entries.
    assert timed_methods(arrow(300), NATIVE, lambda call: (1.0, call())).shape.filled == 599


def test_the_shipped_reference_has_the_systems_that_calibrate_times():
    prices = generic_sparse_prices()
    assert set(prices.reference) == set(SYSTEMS)
    for methods in prices.reference.values():
        assert SAFE in methods


def test_the_least_of_a_fake_clock():
    ticks = iter([0.0, 5.0, 10.0, 11.0, 20.0, 22.0])
    calls = []
    seconds, last = least_seconds(lambda: calls.append(1) or len(calls), 8.0, lambda: next(ticks))
    assert (seconds, last) == (1.0, 3)  # 5 and 1 are below the budget of 8; with 2 it is reached
    ticks = iter([0.0, 9.0, 9.0, 12.0])
    assert least_seconds(lambda: 7, 0.0, lambda: next(ticks)) == (3.0, 7)  # at least two


# Stored


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("ROUNDWISE_CACHE", str(tmp_path))
    _prices_of.cache_clear()
    yield tmp_path
    _prices_of.cache_clear()


def calibrated():
    """A machine on which every sparse method took twice the reference."""
    generic = generic_sparse_prices()
    shape = replace(SHAPE)
    sparse = {
        name: SparseTimes(
            shape,
            2 * generic.matvec * shape.entries,
            {m: {f: (2 * s[0], 2 * s[1]) for f, s in fs.items()} for m, fs in methods.items()},
        )
        for name, methods in generic.reference.items()
    }
    return replace(calibration(), sparse=sparse)


def test_sparse_prices_are_stored_and_decide(cache):
    save_profile(calibrated())
    prices = current_prices()
    assert prices.source == "measured on this machine"
    generic = generic_prices().sparse
    for method, formats in generic.factor.items():
        for fmt, numbers in formats.items():
            assert prices.sparse.factor[method][fmt] == pytest.approx([2 * x for x in numbers])


def test_an_older_profile_warns_once_and_generic_prices_decide(cache, recwarn):
    path = save_profile(calibrated())
    saved = json.loads(path.read_text(encoding="utf-8"))
    del saved["sparse_prices"]
    path.write_text(json.dumps(saved | {"version": 2}), encoding="utf-8")
    with pytest.warns(ProfileWarning, match="its version is 2 and this Roundwise reads") as told:
        assert current_prices() == generic_prices(dense_threads(Machine.this()))
    assert "run `roundwise calibrate`" in str(told[0].message)
    assert current_prices() == generic_prices(dense_threads(Machine.this()))
    assert len(recwarn) == 0


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        ({"matvec": -1.0}, "matvec"),
        ({"matvec": math.inf}, "matvec"),
        ({"solve": {}}, "no prices of sparse work"),
        ({"factor": {SAFE: {"fp64": [1.0]}}}, "for each of"),
        ({"factor": {SAFE: {"fp64": ["1"] * len(AMOUNTS)}}}, "no finite number"),
        ({"extra": 1}, "no prices of sparse work"),
        ({"reference": {"grid": {SAFE: {"fp64": [1.0]}}}}, "not enough values"),
    ],
)
def test_damaged_prices_are_refused(damage, reason):
    whole = asdict(generic_sparse_prices())
    assert SparsePrices.from_dict(whole) == generic_sparse_prices()
    with pytest.raises(ValueError, match=reason):
        SparsePrices.from_dict(whole | damage)
    with pytest.raises(ValueError, match="no prices of sparse work"):
        SparsePrices.from_dict(None)


def test_a_profile_with_damaged_prices_names_the_remedy(cache):
    path = save_profile(calibrated())
    saved = json.loads(path.read_text(encoding="utf-8"))
    saved["sparse_prices"]["matvec"] = "fast"
    path.write_text(json.dumps(saved), encoding="utf-8")
    with pytest.raises(rates.ProfileError, match=r"damaged.*matvec.*run `roundwise calibrate`"):
        rates.load_profile(path)
