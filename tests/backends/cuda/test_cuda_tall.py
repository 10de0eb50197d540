"""Residuals of matrices that are not square, by kernels that are compiled for the processor."""

import numpy as np
import pytest
from cuda_host import HostDevice

from roundwise.backends.cuda import tall
from roundwise.backends.native import exact

rng = np.random.default_rng


@pytest.fixture(scope="module")
def device(tmp_path_factory):
    return HostDevice(tmp_path_factory.mktemp("kernels"))


@pytest.mark.parametrize("shape", [(1, 1), (70, 3), (3, 70), (1, 200), (200, 1), (90, 67)])
@pytest.mark.parametrize("order", "CF")
def test_residuals_have_the_error_that_is_claimed(device, shape, order):
    A = np.asarray(rng(0).standard_normal(shape), order=order)
    X = np.asfortranarray(rng(1).random((shape[1], 2)))
    B = np.asfortranarray(A @ X + 1e-15 * rng(2).random((shape[0], 2)))  # most digits cancel
    R = tall.residual(device, A, X, B)
    wide = B.astype(np.longdouble) - A.astype(np.longdouble) @ X
    assert np.abs(wide - R).max() <= 2.0**-60 * shape[1] * np.abs(A).sum(axis=1).max()
    sizes = np.abs(A) @ np.abs(X) + np.abs(B)
    expected = exact.residual(A, X, B)
    bound = 2 * (2.0**-53 * np.abs(expected) + exact.error_of(shape[1]) * sizes)
    assert (np.abs(R - expected) <= bound).all()
