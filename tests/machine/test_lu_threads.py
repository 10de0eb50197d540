"""How many threads a factorization takes: the number with the lowest price, as it was measured."""

import numpy as np
import pytest

from roundwise import _kernels
from roundwise.backends.native import dense
from roundwise.exceptions import RoundwiseError
from roundwise.machine import lu_threads as module
from roundwise.machine.lu_threads import Measured, cheapest, from_json, lu_threads, shipped, to_json
from roundwise.machine.rates import shipped_rates

PRICES = {1: 1.0, 2: 0.6, 4: 0.59, 8: 0.4, 16: 0.5}


@pytest.mark.parametrize(
    ("granted", "taken"), [(1, 1), (2, 2), (3, 2), (4, 2), (7, 2), (8, 8), (16, 8), (99, 8)]
)
def test_the_lowest_price_of_those_granted(granted, taken):
    """Four threads are hardly faster than two, and sixteen are slower than eight."""
    assert cheapest(PRICES, granted) == taken


def test_prices_between_two_orders_are_between_theirs():
    one = Measured("", 2, {8: {100: {1: 1.0, 2: 2.0}, 400: {1: 64.0, 2: 32.0}}})
    middle = one.at(8, 200)
    assert middle == pytest.approx({1: 8.0, 2: 8.0})
    assert one.at(8, 400) == {1: 64.0, 2: 32.0}
    assert one.at(8, 7) == {1: 1.0, 2: 2.0}  # as that of the smallest
    assert one.at(8, 401) is None


@pytest.mark.parametrize("number", [4, 8])
@pytest.mark.parametrize("granted", [1, 2, 3, 4, 8, 12, 16, 40])
def test_what_is_shipped_leads_to_nearly_the_lowest_price(number, granted):
    machine = next((one for one in shipped() if one.cores >= granted), shipped()[-1])
    for order, prices in machine.prices[number].items():
        taken = lu_threads(order, number, granted)
        assert 1 <= taken <= granted
        best = min(price for count, price in prices.items() if count <= granted)
        assert prices[taken] <= module.WORTH * best


def test_large_matrices_take_all_and_tiny_ones_a_single_thread():
    assert lu_threads(10_000, 8, 16) == 16
    assert lu_threads(10_000, 8, 64) == 64
    assert lu_threads(1600, 8, 64) == 1600 // module.COLUMNS_EACH
    assert lu_threads(1, 8, 16) == lu_threads(100, 4, 2) == 1


def test_the_file_says_where_it_comes_from_and_is_read_as_it_was_written():
    for one in shipped():
        assert one.source.startswith("python benchmarks/lu_threads.py --write on ")
        assert f"{one.cores} cores" in one.source
    assert shipped_rates("lu_threads") == to_json(shipped())
    assert [one.cores for one in shipped()] == sorted(one.cores for one in shipped())


@pytest.mark.parametrize("saved", [None, [1], [{}], {"machines": []}])
def test_other_numbers_are_refused(saved):
    with pytest.raises(RoundwiseError, match="install Roundwise again"):
        from_json(saved)


@pytest.mark.skipif(not dense.has_own_lu(), reason="LAPACK's LU here")
def test_lu_takes_that_number(monkeypatch):
    asked = []

    def lu(work, swaps, threads):
        asked.append(threads)
        return original(work, swaps, threads)

    original = _kernels.native_lu
    monkeypatch.setattr(_kernels, "native_lu", lu)
    monkeypatch.setattr(dense, "factorization_threads", lambda: 16)
    for n in (60, 500):
        dense.getrf(np.asfortranarray(np.eye(n)))
    assert asked == [lu_threads(60, 8, 16), lu_threads(500, 8, 16)]
