"""Krylov methods, each written once: for emulated formats and for blocks of columns in float64.

They know A and the preconditioner as functions, and vectors by the few operations of
`roundwise.krylov.vectors.Vectors`: a stage of an algorithm has them in its format, and `BLOCKS` has
them as compiled kernels for blocks of float64 columns.
"""

from roundwise.krylov.bicgstab import bicgstab as bicgstab
from roundwise.krylov.cg import cg as cg
from roundwise.krylov.gmres import cycle as cycle
from roundwise.krylov.gmres import gmres as gmres
from roundwise.krylov.minres import minres as minres
from roundwise.krylov.stopping import BackwardError as BackwardError
from roundwise.krylov.stopping import KrylovResult as KrylovResult
from roundwise.krylov.stopping import KrylovStatus as KrylovStatus
from roundwise.krylov.stopping import Residual as Residual
from roundwise.krylov.stopping import Sizes as Sizes
from roundwise.krylov.stopping import Stop as Stop
from roundwise.krylov.vectors import BLOCKS as BLOCKS
from roundwise.krylov.vectors import Blocks as Blocks
from roundwise.krylov.vectors import Operator as Operator
from roundwise.krylov.vectors import Vectors as Vectors
from roundwise.krylov.vectors import products_of as products_of
