"""Problems to solve: contract, linear systems, generators, gallery, the paper's sets, files."""

from roundwise.problems.datasets import (
    DATA_SETS,
    Dataset,
    dense_set,
    one_blas_thread,
    pde_set,
    sparse_set,
)
from roundwise.problems.dense import randsvd
from roundwise.problems.gallery import FAMILIES, policy_systems
from roundwise.problems.least_squares import LeastSquares, random_least_squares
from roundwise.problems.linear_system import LinearSystem
from roundwise.problems.matrix_market import read_columns, read_matrix_market, write_matrix_market
from roundwise.problems.pde import (
    anisotropic_2d,
    convection_diffusion_2d,
    convection_diffusion_3d,
    high_contrast_2d,
    laplace_3d,
    poisson_2d,
)
from roundwise.problems.problem import Matrix, Problem, Vector
from roundwise.problems.sparse import random_banded, random_sparse, random_sparse_spd
