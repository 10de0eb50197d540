"""Least squares on the GPU: residuals of matrices that are not square, products and triangles."""

from __future__ import annotations

from typing import Any

import numpy as np

from roundwise.backends.contract import ArithmeticFailure, Status
from roundwise.backends.cuda.device import Device
from roundwise.formats import FP64

_PARTS = 64  # of the columns, where a thread has a row


def residual(device: Device, A: Any, X: Any, B: Any) -> Any:
    """``B - A X`` for blocks of float64 columns, in twice the precision and then rounded."""
    xp, (rows, columns) = device.xp, A.shape
    R = xp.empty(B.shape, dtype=np.float64, order="F")
    down, across = (step // A.itemsize for step in A.strides)
    constants = (("PARTS", 1),)

    def launch(kernel: str, grid: Any, block: int, *args: Any) -> None:
        types = np.float64, A.dtype.type
        device.launch("numbers+tall", kernel, grid, block, args, *types, constants)

    for j in range(X.shape[1]):
        x, b, r = xp.ascontiguousarray(X[:, j]), xp.ascontiguousarray(B[:, j]), R[:, j]
        if across == 1 or columns == 1:
            launch("residual_by_rows", -(-rows // 8), 256, A, down, rows, columns, x, b, r)
            continue
        width, grid = -(-columns // _PARTS), -(-rows // 128)
        count = -(-columns // width)
        partial = xp.empty((count, rows, 2))
        launch("sums_by_columns", (grid, count), 128, A, across, rows, columns, width, x, partial)
        launch("finish_columns", grid, 128, rows, count, partial, b, r)
    return R


def orthogonalized(device: Device, T: Any) -> tuple[Any, Any]:
    """``T = Q R`` by cuSOLVER."""
    Q, R = device.xp.linalg.qr(T)
    zeros = abs(device.xp.diagonal(R)) == 0
    if bool(zeros.any()):
        column = int(zeros.argmax())
        raise ArithmeticFailure(Status.ZERO_PIVOT, "QR factorization", FP64, column)
    return Q, R
