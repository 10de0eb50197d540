"""Memory of work arrays that is used again: by nobody else, and with the same answers."""

import mmap
import pickle
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import roundwise as rw
from roundwise.backends.native import buffer_pool
from roundwise.backends.native.dense import has_own_lu

keeps = pytest.mark.skipif(not buffer_pool.KEEPS, reason="this system cannot keep memory")
N = 1500  # FP32 and FP64 factors of this order are large enough to be kept


def address(array):
    return array.__array_interface__["data"][0]


@pytest.fixture(autouse=True)
def nothing_kept(monkeypatch):
    monkeypatch.setattr(buffer_pool, "_kept", {})


@pytest.fixture(scope="module")
def system():
    rng = np.random.default_rng(0)
    return rng.standard_normal((N, N)), rng.standard_normal(N)


@keeps
class TestMemory:
    def test_the_next_array_of_its_size_is_there(self):
        first = buffer_pool.empty((1000, 1000), np.float64)
        first[...] = 1.0
        where = address(first)
        buffer_pool.keep(first)
        second = buffer_pool.empty((500, 2000), np.float64)
        assert address(second) == where
        assert second.flags.f_contiguous
        assert second.flags.writeable
        third = buffer_pool.empty((500, 2000), np.float64)  # it is given away once
        assert address(third) != where

    def test_another_size_is_elsewhere_and_what_is_kept_stays(self):
        first = buffer_pool.empty((1000, 1000), np.float64)
        buffer_pool.keep(first)
        second = buffer_pool.empty((1000, 2000), np.float64)
        assert not np.shares_memory(first, second)
        buffer_pool.keep(second)
        assert address(buffer_pool.empty((1000, 1000), np.float64)) == address(first)
        assert address(buffer_pool.empty((1000, 2000), np.float64)) == address(second)

    def test_several_are_kept_for_several_threads(self):
        arrays = [buffer_pool.empty((1000, 1000), np.float64) for _ in range(buffer_pool.KEPT + 1)]
        for array in arrays:
            buffer_pool.keep(array)
        again = [buffer_pool.empty((1000, 1000), np.float64) for _ in arrays]
        kept = {address(array) for array in arrays[1:]}  # the last ones
        assert {address(array) for array in again[: buffer_pool.KEPT]} == kept
        assert address(again[-1]) not in kept

    def test_together_they_have_a_bound(self, monkeypatch):
        monkeypatch.setattr(buffer_pool, "MOST", 20 << 20)
        for array in [buffer_pool.empty((1000, 1000), np.float64) for _ in range(4)]:
            buffer_pool.keep(array)
        assert len(buffer_pool._kept) == 2  # of 8 million bytes each

    @pytest.mark.parametrize("bytes_", [0, 8, buffer_pool.LEAST - 8, buffer_pool.MOST + 8])
    def test_small_and_huge_arrays_are_numpys(self, bytes_):
        array = buffer_pool.empty((bytes_ // 8, 1), np.float64)
        assert array.shape == (bytes_ // 8, 1)
        buffer_pool.keep(array)
        assert not buffer_pool._kept

    def test_views_and_arrays_of_others_are_not_kept(self):
        buffer_pool.keep(np.empty((1000, 1000)))
        buffer_pool.keep(buffer_pool.empty((1000, 1000), np.float64).T)
        assert not buffer_pool._kept

    def test_where_there_is_no_memory_numpy_says_so(self, monkeypatch):
        def refuse(*_, **__):
            raise OSError(12, "Cannot allocate memory")

        monkeypatch.setattr(mmap, "mmap", refuse)
        assert buffer_pool.empty((1000, 1000), np.float64).base is None

    def test_a_system_that_refuses_advice_still_solves(self, monkeypatch, system):
        monkeypatch.setattr(mmap, "MADV_HUGEPAGE", -1)
        monkeypatch.setattr(mmap, "MADV_FREE", -1)
        A, b = system
        np.testing.assert_allclose(A @ rw.solve(A, b), b, atol=1e-8)
        assert not buffer_pool._kept

    def test_an_array_can_be_pickled_and_copied(self):
        array = buffer_pool.empty((1000, 1000), np.float64)
        array[...] = np.arange(1000.0)
        np.testing.assert_array_equal(pickle.loads(pickle.dumps(array)), array)
        joblib = pytest.importorskip("joblib")
        total = joblib.Parallel(2)(joblib.delayed(np.sum)(array) for _ in range(2))
        assert total == [array.sum()] * 2


@keeps
@pytest.mark.skipif(not has_own_lu(), reason="LU is LAPACK's on this processor")
class TestSolves:
    @pytest.mark.parametrize("policy", ["default", "fp64", "fp32", "bf16"])
    @pytest.mark.parametrize("full_output", [False, True])
    def test_a_solve_leaves_its_memory_to_the_next(self, system, policy, full_output):
        A, b = system

        def solved(A):
            answer = rw.solve(A, b, policy=policy, full_output=full_output)
            return answer.x if full_output else answer

        first = solved(A)
        assert buffer_pool._kept
        x = first.copy()
        again = solved(2 * A)
        np.testing.assert_array_equal(first, x)  # nobody else wrote to it
        np.testing.assert_array_equal(2 * again, x)  # a power of two changes no bit

    def test_a_factorization_keeps_its_factors(self, system):
        A, b = system
        F = rw.factor(A)
        x = F.solve(b)
        for _ in range(3):
            rw.solve(A.T.copy(), b)
        np.testing.assert_array_equal(F.solve(b), x)

    def test_solves_in_threads_do_not_share_it(self, system):
        A, b = system
        systems = [np.roll(A, shift, axis=1) for shift in range(4)]
        right = [rw.solve(one, b) for one in systems]
        begin = threading.Barrier(4)

        def solve(i):
            begin.wait()
            return all(np.array_equal(rw.solve(systems[i], b), right[i]) for _ in range(3))

        with ThreadPoolExecutor(4) as pool:
            assert all(pool.map(solve, range(4)))

    def test_a_failed_solve_leaves_none(self, system):
        _, b = system
        with pytest.raises(rw.SolveFailed):
            rw.solve(np.ones((N, N)), b)
        A, b = system
        np.testing.assert_allclose(A @ rw.solve(A, b), b, atol=1e-8)
