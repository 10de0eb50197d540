"""Problems to solve: contract, linear systems, generators, files."""

from __future__ import annotations

from typing import TYPE_CHECKING

from roundwise._lazy import lazy_names

if TYPE_CHECKING:
    from roundwise.problems.generators import random_sparse_spd, randsvd
    from roundwise.problems.least_squares import LeastSquares, random_least_squares
    from roundwise.problems.linear_system import LinearSystem, Matrix, Problem, Vector
    from roundwise.problems.matrix_market import read_matrix_market, write_matrix_market
    from roundwise.problems.pde import (
        anisotropic_2d,
        convection_diffusion_2d,
        high_contrast_2d,
        laplace_3d,
        poisson_2d,
    )

__getattr__, __dir__, __all__ = lazy_names(
    "roundwise.problems",
    {
        "generators": ("random_sparse_spd", "randsvd"),
        "least_squares": ("LeastSquares", "random_least_squares"),
        "linear_system": ("LinearSystem", "Matrix", "Problem", "Vector"),
        "matrix_market": ("read_matrix_market", "write_matrix_market"),
        "pde": (
            "anisotropic_2d",
            "convection_diffusion_2d",
            "high_contrast_2d",
            "laplace_3d",
            "poisson_2d",
        ),
    },
)
