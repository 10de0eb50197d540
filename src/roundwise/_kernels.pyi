"""Types of the compiled module; the bindings, with comments, are in cpp/bindings.cpp."""

from typing import Any

from numpy import float64, int32
from numpy.typing import NDArray

class Format:
    def __init__(
        self, p: int, max: float, min_normal: float, quantum: float, overflow: int
    ) -> None: ...

_Carried = NDArray[Any]  # float32 or float64, the carrier of the format
_Index = NDArray[int32]
_Vector = NDArray[float64]
_Columns = tuple[_Index, _Index, _Carried]

def available_levels() -> list[str]: ...
def active_level() -> str: ...
def set_level(name: str) -> None: ...
def round(fmt: Format, mode: int, key: int, x: _Carried, y: _Carried, threads: int, /) -> None: ...
def lu(fmt: Format, a: _Carried, perm: _Index, threads: int, /) -> tuple[int, int]: ...
def cholesky(fmt: Format, a: _Carried, threads: int, /) -> tuple[int, int]: ...
def solve_triangular(
    fmt: Format,
    a: _Carried,
    lower: bool,
    unit: bool,
    transpose: bool,
    b: _Vector,
    threads: int,
    /,
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
