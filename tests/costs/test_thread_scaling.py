"""Prices with another number of threads than they were measured with."""

import dataclasses
import json

import numpy as np
import pytest

from roundwise.costs import Shape, Work, calibrate, save_profile
from roundwise.costs import prices as pricing
from roundwise.costs.machines import MachineProfile, Rate
from roundwise.costs.prices import current_prices, dense_threads, generic_prices
from roundwise.costs.rates import ThreadScaling, shipped_scaling
from roundwise.exceptions import RoundwiseError
from roundwise.formats import FP64
from roundwise.machine.identity import Machine

N = (100, 500, 1000, 2000, 4000)
MADE = ThreadScaling(
    {
        count: MachineProfile(
            str(count),
            {"fp64": Rate(1e9)},
            sizes={100: {"fp64": Rate(1e9 * count, 1e9 * count**0.5)}},
        )
        for count in (1, 4, 16)
    },
    "made up",
)


def test_factors_of_a_law_that_is_known():
    for before, after in ((1, 4), (4, 16), (2, 8), (16, 1)):
        flops, traffic = MADE.factors("fp64", 100, before, after)
        assert flops == pytest.approx(after / before)
        assert traffic == pytest.approx((after / before) ** 0.5)


def test_beyond_the_largest_nothing_changes():
    assert MADE.factors("fp64", 100, 16, 64) == (1.0, 1.0)
    assert MADE.factors("e4m3", 100, 1, 16) == (1.0, 1.0)  # nothing is known of it


def test_steps_multiply():
    scaling = shipped_scaling()
    for n in N:
        one, two, both = (
            np.array(scaling.factors("fp32", n, *pair)) for pair in ((1, 4), (4, 16), (1, 16))
        )
        np.testing.assert_allclose(one * two, both, rtol=1e-12)


def test_a_profile_keeps_what_threads_do_not_change():
    profile = generic_prices().profile
    assert shipped_scaling().applied(profile, 2, 2) is profile
    scaled = shipped_scaling().applied(profile, 2, 8)
    assert set(scaled.sizes) == set(profile.sizes)
    assert set(scaled.rates) == set(profile.rates)
    for name in ("outer_overhead", "inner_overhead", "run_overhead"):
        assert getattr(scaled, name) == getattr(profile, name)
    back = shipped_scaling().applied(scaled, 8, 2)
    for n in N:
        assert back.rate("fp64", n).flops_per_second == pytest.approx(
            profile.rate("fp64", n).flops_per_second
        )


def test_more_threads_make_large_systems_cheaper():
    work = Work(1, 2)
    for n in (1000, 2000, 4000):
        for fmt in ("fp32", "fp64"):
            seconds = [
                generic_prices(count).seconds(Shape(n, n * n), "lu", fmt, work)
                for count in (1, 2, 4, 8)
            ]
            assert seconds == sorted(seconds, reverse=True)


def test_saved_and_read_again():
    saved = json.loads(json.dumps(shipped_scaling().to_dict()))
    again = ThreadScaling.from_dict(saved)
    assert again.factors("fp32", 1000, 1, 8) == pytest.approx(
        shipped_scaling().factors("fp32", 1000, 1, 8)
    )
    for wrong in ({}, {"source": "", "rates": {"two": {}}}, []):
        with pytest.raises(RoundwiseError, match="install Roundwise again"):
            ThreadScaling.from_dict(wrong)


@pytest.fixture
def measured(tmp_path, monkeypatch):
    """A calibration of this machine, as if with another number of threads; the present one."""
    monkeypatch.setenv("ROUNDWISE_CACHE", str(tmp_path))
    pricing._prices_of.cache_clear()
    found = calibrate(sizes=(10, 20), formats=[FP64], seconds_per_kernel=0.0, sparse={})
    yield found
    pricing._prices_of.cache_clear()


def test_what_was_measured_with_other_threads_serves(measured):
    here = Machine.this()
    count = dense_threads(here)
    other = dataclasses.replace(here, threads=count + 3, blas_threads=count + 3)
    save_profile(dataclasses.replace(measured, machine=other))
    prices = current_prices()
    assert f"with {count + 3} threads" in prices.source
    expected = shipped_scaling().applied(measured.profile(), count + 3, count)
    assert prices.profile.rate("fp64", 15) == expected.rate("fp64", 15)


def test_another_processor_does_not_serve(measured):
    other = dataclasses.replace(Machine.this(), threads=77, cpu="another")
    save_profile(dataclasses.replace(measured, machine=other))
    prices = current_prices()
    assert prices.source == generic_prices(dense_threads(Machine.this())).source


def test_a_price_is_the_same_when_asked_again():
    prices, shape, work = generic_prices(), Shape(1000, 10**6), Work(1, 2, 3)
    assert prices.seconds(shape, "lu", "fp32", work) == prices.seconds(shape, "lu", "fp32", work)
    fresh = dataclasses.replace(prices)
    assert fresh.seconds(shape, "lu", "fp32", work) == prices.seconds(shape, "lu", "fp32", work)
