"""The memory of factors on the GPU: both triangles by rows, and what substitution needs."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from roundwise.backends.cuda.device import Device

BLOCK = 256  # unknowns that a step of substitution solves for


@dataclass(eq=False)
class Triangles:
    """``L U`` in one array; everything in one piece of memory, so that plans fit all of a size."""

    device: Device
    n: int
    real: Any  # the type of the factors
    arena: Any
    lu: Any  # by rows; its row length is a multiple of 32
    order: Any  # which row of the matrix each row is
    inverse_L: Any  # of diagonal blocks, one below the other
    inverse_U: Any
    room: Any
    vectors: dict[Any, tuple[Any, Any]]  # two of each type, to solve in

    @property
    def ld(self) -> int:
        """The length of a row in memory."""
        return int(self.lu.shape[1])

    @classmethod
    def allocate(
        cls, device: Device, n: int, real: Any, **more: tuple[tuple[int, ...], Any]
    ) -> tuple[Triangles, dict[str, Any]]:
        """Room for factors of n unknowns, and for more arrays, given by shape and type.

        It has to be prepared.
        """
        blocks = -(-n // BLOCK)
        arena, arrays = _arena(
            device.xp,
            lu=((n, -(-n // 32) * 32), real),
            order=((n,), np.int32),
            inverse_L=((blocks * BLOCK, BLOCK), real),
            inverse_U=((blocks * BLOCK, BLOCK), real),
            room=((blocks, BLOCK // 2, BLOCK // 2), real),
            vectors_32=((2, n), np.float32),
            vectors_64=((2, n), np.float64),
            **more,
        )
        of_type = {
            np.dtype(np.float32): tuple(arrays.pop("vectors_32")),
            np.dtype(np.float64): tuple(arrays.pop("vectors_64")),
        }
        names = ("lu", "order", "inverse_L", "inverse_U", "room")
        own = {name: arrays.pop(name) for name in names}
        return cls(device, n, real, arena, vectors=of_type, **own), arrays

    def prepare(self, status: Any = None) -> None:
        """Put the rows in their order, and clear the inverses and the numbers of a status."""
        count, failures = self.inverse_L.size, (0, 0) if status is None else (status.size, status)
        args = self.n, self.order, count, self.inverse_L, self.inverse_U, *failures
        self.device.launch("lu", "prepare", min(1024, -(-count // 256)), 256, args, self.real)


def _arena(xp: Any, **shapes: tuple[tuple[int, ...], Any]) -> tuple[Any, dict[str, Any]]:
    """Arrays that share one piece of memory, and that piece."""
    sizes = {
        name: math.prod(shape) * np.dtype(dtype).itemsize for name, (shape, dtype) in shapes.items()
    }
    arena = xp.empty(sum(-(-size // 256) * 256 for size in sizes.values()), dtype=np.uint8)
    start, arrays = 0, {}
    for name, (shape, dtype) in shapes.items():
        arrays[name] = arena[start : start + sizes[name]].view(dtype).reshape(shape)
        start += -(-sizes[name] // 256) * 256
    return arena, arrays
