"""Types of the compiled module.

cpp/emulated/kernels.hpp, cpp/emulated/sparse.hpp, cpp/native/kernels.hpp, cpp/native/columns.hpp
and the headers of cpp/sparse/ state what each kernel computes; the bindings are in cpp/bindings/.
Most kernels write results into the arrays they are given. An array of another type or memory order
than a kernel takes raises TypeError, one whose shape or indices do not fit ValueError.
"""

from typing import Any, Self

from numpy import complex128, float32, float64, int32, int64
from numpy.typing import NDArray

class Format:
    def __init__(self, p: int, emin: int, max: float, subnormals: bool, overflow: int) -> None: ...

_Carried = NDArray[Any]  # float32 or float64, the carrier of the format
_Index = NDArray[int32]
_Vector = NDArray[float64]
_Columns = tuple[_Index, _Index, _Carried]

def available_levels() -> list[str]: ...
def active_level() -> str: ...
def has_ieee_arithmetic() -> bool: ...

class IeeeArithmetic:
    def __enter__(self) -> None: ...
    def __exit__(self, *error: object) -> None: ...

def in_main_interpreter() -> bool: ...
def usable_cores() -> int: ...
def move_others_aside(nanoseconds: int, share: float, spared: list[int], /) -> bool: ...
def move_others_back() -> None: ...
def set_level(name: str) -> None: ...
def round(fmt: Format, mode: int, key: int, x: _Carried, y: _Carried, threads: int, /) -> None: ...
def lu(fmt: Format, a: _Carried, perm: _Index, threads: int, /) -> tuple[int, int]: ...
def cholesky(fmt: Format, a: _Carried, threads: int, /) -> tuple[int, int]: ...
def solve_triangular(
    fmt: Format, a: _Carried, lower: bool, unit: bool, transpose: bool, b: _Vector, threads: int, /
) -> int: ...
def matvec(
    fmt: Format, a: _Carried, transpose: bool, x: _Vector, y: _Vector, threads: int, /
) -> int: ...
def dot(fmt: Format, narrow: bool, x: _Vector, y: _Vector, /) -> tuple[int, float]: ...
def norm2(fmt: Format, narrow: bool, x: _Vector, /) -> tuple[int, float]: ...
def axpy(fmt: Format, narrow: bool, alpha: float, x: _Vector, y: _Vector, /) -> int: ...
def scale(fmt: Format, narrow: bool, alpha: float, x: _Vector, /) -> int: ...
def orthogonalize(fmt: Format, narrow: bool, v: _Vector, w: _Vector, h: _Vector, /) -> int: ...
def orthogonalize_stored(
    fmt: Format, float64: Format, v: _Vector, w: _Vector, h: _Vector, /
) -> None: ...
def givens(
    fmt: Format, narrow: bool, j: int, cosines: _Vector, sines: _Vector, h: _Vector, g: _Vector, /
) -> int: ...
def sparse_cholesky(
    fmt: Format, starts: _Index, indices: _Index, values: _Carried, /
) -> tuple[int, int, _Columns]: ...
def sparse_cholesky_solve(
    fmt: Format, starts: _Index, indices: _Index, values: _Carried, b: _Vector, /
) -> int: ...
def sparse_matvec(
    fmt: Format,
    starts: _Index,
    indices: _Index,
    values: _Carried,
    transpose: bool,
    x: _Vector,
    y: _Vector,
    /,
) -> int: ...
def sparse_lu(
    fmt: Format,
    starts: _Index,
    indices: _Index,
    values: _Carried,
    diagonal: _Index,
    threshold: float,
    /,
) -> tuple[int, int, _Columns, _Columns, _Index]: ...
def sparse_solve(
    fmt: Format,
    l_starts: _Index,
    l_indices: _Index,
    l_values: _Carried,
    u_starts: _Index,
    u_indices: _Index,
    u_values: _Carried,
    transpose: bool,
    b: _Vector,
    /,
) -> int: ...

# Native kernels. `fmt` names the format in which the numbers of an array are stored: bf16 or fp16
# (uint16), fp32 (float32), fp64 (float64).
_Stored = NDArray[Any]
_Computed = NDArray[Any]  # float32 or float64, no narrower than what is stored

def native_level() -> str: ...
def native_lu(a: _Computed, pivots: _Index, threads: int, /) -> int: ...
def native_cholesky(a: _Computed, upper: bool, threads: int, /) -> int: ...
def native_complex_lu(
    a: NDArray[complex128], packed: NDArray[float32], pivots: _Index, threads: int, /
) -> int: ...
def native_bf16_levels() -> list[str]: ...
def native_bf16_lu(a: NDArray[float32], pivots: _Index, level: str, threads: int, /) -> int: ...
def native_bf16_cholesky(a: NDArray[float32], upper: bool, level: str, threads: int, /) -> int: ...
def native_bf16_gemm(
    c: NDArray[float32], a: NDArray[float32], b: NDArray[float32], level: str, threads: int, /
) -> None: ...
def native_matvec(
    a: _Stored, fmt: str, x: _Computed, y: _Computed, transpose: bool, threads: int, /
) -> None: ...
def native_getrs(
    packed: _Stored, fmt: str, b: _Computed, transpose: bool, threads: int, /
) -> None: ...
def native_potrs(packed: _Stored, fmt: str, b: _Computed, threads: int, /) -> None: ...
def native_refine(
    packed: _Computed,
    cholesky: bool,
    transpose: bool,
    rows: _Index | None,
    places: _Index | None,
    a: _Computed,
    a_transpose: bool,
    norm: float,
    target: float,
    block: int,
    shorts: int,
    error_of_shorts: float,
    most_steps: int,
    b: _Vector,
    x: _Vector,
    r: _Vector,
    errors: _Vector,
    threads: int,
    pass_threads: int,
    /,
) -> tuple[bool, float, float, float, list[float]]: ...
def native_correct(
    packed: _Computed,
    cholesky: bool,
    transpose: bool,
    rows: _Index | None,
    places: _Index | None,
    r: _Vector,
    sizes: _Vector,
    x: _Vector,
    total: _Vector,
    z_norms: _Vector,
    total_norms: _Vector,
    threads: int,
    /,
) -> tuple[bool, bool]: ...
def native_complex_getrs(
    packed: _Computed, b: _Computed, transpose: bool, threads: int, /
) -> None: ...
def native_convert(x: NDArray[Any], y: NDArray[Any], fmt: str, threads: int, /) -> None: ...
def native_norms(a: _Computed, threads: int, /) -> tuple[float, float, float]: ...
def native_column_norms(a: _Computed, threads: int, /) -> tuple[float, float]: ...
def native_norms_and_rounded(
    a: _Vector, rounded: NDArray[float32], threads: int, /
) -> tuple[float, float]: ...
def native_copy(x: _Computed, y: _Computed, threads: int, /) -> None: ...
def native_symmetric(a: _Computed, threads: int, /) -> bool: ...
def native_largest_exponents(
    a: _Vector,
    row_scale: _Index,
    column_scale: _Index,
    rows: _Index,
    columns: _Index,
    threads: int,
    /,
) -> None: ...
def native_scale(
    a: _Vector, row_scale: _Index, column_scale: _Index, scaled: _Vector, threads: int, /
) -> bool: ...
def native_magnitude_sums(
    a: _Vector, transpose: bool, weights: _Vector, sums: _Vector, threads: int, /
) -> None: ...
def native_gram(a: NDArray[float64], products: NDArray[float64], threads: int, /) -> None: ...
def native_angles(products: NDArray[Any], /) -> tuple[float, float]: ...
def native_max_norms(x: _Vector, weights: _Vector | None, norms: _Vector, /) -> None: ...
def native_max_moduli(x: _Vector, weights: _Vector | None, norms: _Vector, /) -> None: ...
def native_shift(x: _Vector, exponents: _Index, y: _Vector, /) -> bool: ...
def native_unit_columns(
    x: _Vector, sizes: _Vector | None, y: _Vector, exponents: _Index, /
) -> None: ...
def native_turn_pairs(x: _Vector, y: _Vector, /) -> None: ...
def native_nearest(points: _Vector, place: _Vector, reach: float, most: int, /) -> list[int]: ...
def native_backward_errors(
    r: _Vector, norm: float, x: _Vector, b: _Vector, errors: _Vector, /
) -> None: ...
def native_order(swaps: _Index, order: _Index, /) -> None: ...
def native_gather(order: _Index | None, x: _Vector, y: _Computed, /) -> None: ...
def native_scatter(order: _Index | None, x: _Computed, y: _Vector, /) -> bool: ...
def native_gather_pairs(
    order: _Index | None, conjugate: bool, x: _Vector, y: _Computed, /
) -> None: ...
def native_scatter_pairs(
    order: _Index | None, conjugate: bool, x: _Computed, y: _Vector, /
) -> bool: ...
def native_look(
    a: _Vector,
    lines: NDArray[int64],
    diagonal: NDArray[int64],
    largest: _Vector,
    norms: _Vector,
    gram: _Vector,
    threads: int,
    /,
) -> None: ...

# These two return whether all that they wrote is finite; the rows of V are contiguous.
def native_axpy(alpha: float, x: _Computed, y: _Computed, /) -> bool: ...
def native_orthogonalize(V: _Computed, w: _Computed, h: _Computed, /) -> bool: ...

# Fortran-ordered blocks of vectors, between two products of a Krylov method; `project` returns
# ||w||^2.
def krylov_dots(X: _Doubles, Y: _Doubles, sums: _Doubles, threads: int, /) -> None: ...
def krylov_step(
    a: _Doubles,
    P: _Doubles,
    Q: _Doubles,
    X: _Doubles,
    R: _Doubles,
    sizes: _Doubles,
    threads: int,
    /,
) -> None: ...
def krylov_combine(a: _Doubles, X: _Doubles, b: _Doubles, Y: _Doubles, threads: int, /) -> None: ...
def krylov_project(
    V: _Doubles, h: _Doubles, w: _Doubles, next: _Doubles, threads: int, /
) -> float: ...
def krylov_rows_times(
    indptr: NDArray[Any],
    indices: NDArray[Any],
    values: _Doubles,
    X: _Doubles,
    Y: _Doubles,
    threads: int,
    /,
) -> None: ...

# Residuals in twice the precision; `x`, `b` and `r` are vectors or Fortran-ordered blocks.
_Doubles = NDArray[float64]

def native_exact_residual(
    a: _Doubles, transpose: bool, x: _Doubles, b: _Doubles, r: _Doubles, block: int, threads: int, /
) -> None: ...
def native_exact_sparse_residual(
    indptr: NDArray[Any],
    indices: NDArray[Any],
    values: _Doubles,
    columns: int,
    x: _Doubles,
    b: _Doubles,
    r: _Doubles,
    threads: int,
    /,
) -> None: ...
def native_backward_error(
    a: _Doubles,
    transpose: bool,
    x: _Doubles,
    b: _Doubles,
    block: int,
    least: float,
    most: float,
    threads: int,
    /,
) -> float: ...
def native_sparse_backward_errors(
    indptr: NDArray[Any],
    indices: NDArray[Any],
    values: _Doubles,
    by_columns: bool,
    x: _Doubles,
    b: _Doubles,
    sums: _Doubles,
    residuals: _Doubles,
    least: float,
    most: float,
    /,
) -> tuple[float, float]: ...
def express_solve(
    a: NDArray[Any],
    b: NDArray[Any],
    x: NDArray[Any],
    look: bool,
    factor: str,
    tolerance: float,
    growth: float,
    block_error: float,
    exact_error: float,
    suspicious: float,
    least: float,
    most: float,
    block: int,
    forward: bool,
    /,
) -> tuple[int, float, float, int]: ...
def express_solve_sparse(
    form: int,
    n: int,
    first: NDArray[Any],
    second: NDArray[Any],
    values: NDArray[Any],
    b: NDArray[Any],
    x: NDArray[Any],
    factor: str,
    tolerance: float,
    growth: float,
    block_error: float,
    exact_error: float,
    suspicious: float,
    least: float,
    most: float,
    block: int,
    forward: bool,
    /,
) -> tuple[int, float, float, int]: ...
def tall_solve(
    a: NDArray[Any],
    b: NDArray[Any],
    x: NDArray[Any],
    norms: NDArray[float64],
    in_single: bool,
    tolerance: float,
    rcond: float,
    resolution: float,
    block_error_n: float,
    block_error_m: float,
    exact_error_n: float,
    exact_error_m: float,
    block_n: int,
    block_m: int,
    threads: int,
    /,
) -> tuple[int, float, float, int, int]: ...
def express_solve_stack(
    a: NDArray[Any],
    b: NDArray[Any],
    which_a: NDArray[Any],
    which_b: NDArray[Any],
    x: NDArray[Any],
    errors: _Doubles,
    factor: str,
    tolerance: float,
    growth: float,
    block_error: float,
    exact_error: float,
    suspicious: float,
    least: float,
    most: float,
    block: int,
    forward: bool,
    threads: int,
    /,
) -> int: ...

class ExpressFactors:
    @property
    def refused(self) -> list[int]: ...

def express_factorize(
    a: NDArray[Any], factor: str, scaled: bool, suspicious: float, forward: bool, threads: int, /
) -> ExpressFactors: ...
def express_substitute(
    factors: ExpressFactors,
    b: NDArray[Any],
    x: NDArray[Any],
    tolerance: float,
    growth: float,
    block_error: float,
    exact_error: float,
    suspicious: float,
    least: float,
    most: float,
    block: int,
    forward: bool,
    /,
) -> tuple[int, float, float, int]: ...

# The smallest n for which express_solve looks for bands and triangles.
EXPRESS_LOOKS_FROM: int

def structured_look(a: NDArray[Any], /) -> tuple[int, int, int]: ...
def structured_orders(a: NDArray[Any], rows: _Index, columns: _Index, /) -> bool: ...
def structured_solve(
    a: NDArray[Any],
    b: NDArray[Any],
    x: NDArray[Any],
    kind: int,
    below: int,
    above: int,
    threads: int,
    tolerance: float,
    growth: float,
    block_error: float,
    exact_error: float,
    suspicious: float,
    least: float,
    most: float,
    block: int,
    /,
) -> tuple[int, float, float, int, int]: ...

class StructuredFactors:
    @property
    def accepted(self) -> bool: ...

def structured_factorize(
    a: NDArray[Any], kind: int, below: int, above: int, suspicious: float, /
) -> StructuredFactors: ...
def structured_substitute(
    factors: StructuredFactors,
    b: NDArray[Any],
    x: NDArray[Any],
    threads: int,
    tolerance: float,
    growth: float,
    block_error: float,
    exact_error: float,
    suspicious: float,
    least: float,
    most: float,
    block: int,
    /,
) -> tuple[int, float, float, int]: ...
def express_substitute_stack(
    factors: ExpressFactors,
    b: NDArray[Any],
    which_a: NDArray[Any],
    which_b: NDArray[Any],
    x: NDArray[Any],
    errors: _Doubles,
    tolerance: float,
    growth: float,
    block_error: float,
    exact_error: float,
    suspicious: float,
    least: float,
    most: float,
    block: int,
    forward: bool,
    threads: int,
    /,
) -> int: ...

class SparsePattern:
    @property
    def n(self) -> int: ...
    @property
    def indptr(self) -> NDArray[int64]: ...
    @property
    def indices(self) -> _Index: ...

class SparseSymbolic:
    @property
    def n(self) -> int: ...
    @property
    def order(self) -> _Index: ...
    @property
    def first(self) -> _Index: ...
    @property
    def start(self) -> NDArray[int64]: ...
    @property
    def rows(self) -> _Index: ...
    @property
    def parent(self) -> _Index: ...
    @property
    def entries(self) -> float: ...
    @property
    def flops(self) -> float: ...
    @property
    def stored(self) -> float: ...

# 0: an index is out of range; 1: none is; 2: also in order within each row, and each once.
def sparse_form(
    indptr: _Index | NDArray[int64], indices: _Index | NDArray[int64], width: int, /
) -> int: ...
def sparse_pattern(
    indptr: _Index | NDArray[int64], indices: _Index | NDArray[int64], /
) -> SparsePattern: ...
def sparse_amd(pattern: SparsePattern, /) -> _Index: ...
def sparse_dissect(pattern: SparsePattern, /) -> _Index: ...
def sparse_analyse(pattern: SparsePattern, order: _Index | None, /) -> SparseSymbolic: ...
def sparse_counts(pattern: SparsePattern, order: _Index | None, /) -> tuple[float, float]: ...

class SupernodalPlan:
    def __init__(
        self,
        kind: str,
        symbolic: SparseSymbolic,
        indptr: NDArray[int64],
        indices: _Index,
        row_place: _Index,
        column_place: _Index,
    ) -> None: ...
    @property
    def panels(self) -> NDArray[int64]: ...
    @property
    def stored(self) -> int: ...
    @property
    def entries(self) -> float: ...
    @property
    def flops(self) -> float: ...

# Returns a result (0: done), the column where it stopped, and how many pivots were replaced.
def supernodal_factorize(
    plan: SupernodalPlan,
    values: _Computed,
    storage: _Computed,
    pivots: _Index,
    tiny: float,
    seconds: float,
    threads: int,
    /,
) -> tuple[int, int, int]: ...
def supernodal_refine(
    plan: SupernodalPlan,
    storage: _Computed,
    pivots: _Index,
    rows: _Index | None,
    places: _Index | None,
    starts: _Index,
    indices: _Index,
    values: _Vector,
    norm: float,
    target: float,
    most_steps: int,
    b: _Vector,
    x: _Vector,
    r: _Vector,
    errors: _Vector,
    threads: int,
    pass_threads: int,
    /,
) -> tuple[bool, float, float, float, list[float]]: ...
def supernodal_solve(
    plan: SupernodalPlan,
    storage: _Computed,
    pivots: _Index,
    b: _Computed,
    transpose: bool,
    threads: int,
    /,
) -> None: ...
def sparse_assignment(
    indptr: NDArray[int64], indices: _Index, costs: _Vector, rows: _Index, limit: int, /
) -> bool: ...
def sparse_is_regular(
    indptr: _Index | NDArray[int64], indices: _Index | NDArray[int64], /
) -> bool: ...
def sparse_partners(
    indptr: NDArray[Any], indices: NDArray[Any], step: int, /
) -> tuple[int, int]: ...
def sparse_is_symmetric(
    indptr: NDArray[Any], indices: NDArray[Any], values: _Carried, /
) -> bool: ...
def sparse_balance(
    indptr: NDArray[Any],
    indices: NDArray[Any],
    values: _Carried,
    symmetric: bool,
    rows: _Index,
    columns: _Index,
    /,
) -> bool: ...
def sparse_scale(
    indptr: NDArray[Any],
    indices: NDArray[Any],
    values: _Carried,
    rows: _Index,
    columns: _Index,
    scaled: _Carried,
    /,
) -> None: ...

class _LeftLooking:
    def __init__(
        self, form: int, n: int, first: NDArray[Any], second: NDArray[Any], values: NDArray[Any], /
    ) -> None: ...
    def analyse(self, most: float, most_if_weak: float, /) -> None: ...
    def factorize(self, low: bool = False) -> None: ...
    def refactored(
        self,
        form: int,
        first: NDArray[Any],
        second: NDArray[Any],
        values: NDArray[Any],
        low: bool = False,
        /,
    ) -> Self | None: ...
    @property
    def is_low(self) -> bool: ...
    @property
    def n(self) -> int: ...
    @property
    def stored(self) -> int: ...
    @property
    def result(self) -> str: ...
    @property
    def counted(self) -> float: ...
    @property
    def filled(self) -> float: ...
    @property
    def work(self) -> float: ...
    @property
    def has_strong_diagonal(self) -> bool: ...
    @property
    def has_weak_diagonal(self) -> bool: ...
    @property
    def pattern(self) -> SparsePattern: ...
    @property
    def order(self) -> _Index: ...
    @property
    def entries(self) -> int: ...
    @property
    def rows(self) -> tuple[_Index, _Index, NDArray[Any]]: ...
    def fill(self, dense: NDArray[Any], /) -> None: ...
    def substitute(self, b: NDArray[Any], x: NDArray[Any], /) -> None: ...
    def solve(
        self,
        b: NDArray[Any],
        x: NDArray[Any],
        transposed: bool,
        conjugated: bool,
        forward: bool,
        tolerance: float,
        growth: float,
        residual_error: float,
        least: float,
        most: float,
        /,
    ) -> tuple[int, float, int]: ...

class LeftLookingLU(_LeftLooking): ...
class ComplexLeftLookingLU(_LeftLooking): ...

# Writes the numbers of a text into an array; returns how many it has, -1 if something is no number.
def read_numbers(text: bytes, numbers: _Vector, /) -> int: ...

# Preconditioners: see cpp/iterative. `kept` has the matrices of all levels, if they were asked for.
class Preconditioner:
    @property
    def bytes(self) -> int: ...
    @property
    def levels(self) -> list[tuple[int, int, float]]: ...
    @property
    def kept(self) -> tuple[list[Any], list[Any], list[Any]]: ...

def preconditioner_apply(
    preconditioner: Preconditioner, R: NDArray[float64], Z: NDArray[float64], threads: int, /
) -> None: ...

# Returns 0 and a hierarchy, or why there is none (`Made` in cpp/iterative/hierarchy.hpp).
def iterative_hierarchy(
    storage: str,
    starts: _Index,
    indices: _Index,
    values: _Vector,
    near_null: _Vector,
    nodes: _Index,
    symmetric: bool,
    theta: float,
    degree: int,
    ratio: float,
    coarsest: int,
    keep: bool,
    threads: int,
    /,
) -> tuple[int, Preconditioner | None]: ...

# The same for incomplete factors; `levels` has the entries of both, and the shift of the diagonal.
def iterative_incomplete(
    storage: str,
    starts: _Index,
    indices: _Index,
    values: _Vector,
    definite: bool,
    levels: int,
    threads: int,
    /,
) -> tuple[int, Preconditioner | None]: ...

# Unknowns connected with the first one, levels and width of the graph, share of positive entries.
def iterative_look(
    starts: _Index, indices: _Index, values: _Vector, /
) -> tuple[int, int, int, float]: ...
