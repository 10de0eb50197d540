"""What is the same as in NumPy and SciPy, and what differs: the table of docs/switching.md.

Every row of the table is a check here. Run as a program, this file writes the table anew.
"""

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import scipy.linalg
from scipy import sparse
from scipy.sparse.linalg import spsolve

import roundwise as rw

PAGE = Path(__file__).parents[1] / "docs" / "switching.md"
BEGIN, END = "<!-- begin switching -->\n", "<!-- end switching -->"

RNG = np.random.default_rng(18)
A = RNG.standard_normal((6, 6)) + 6 * np.eye(6)
B = RNG.standard_normal((6, 2))
SPARSE = sparse.csc_array(A * (RNG.random((6, 6)) < 0.5) + 6 * np.eye(6))
SINGULAR = np.array([[1.0, 2.0], [2.0, 4.0]])


@dataclass(frozen=True)
class Row:
    what: str
    peers: str
    ours: str
    check: Callable[[], None]


ROWS: list[Row] = []


def row(what, peers, ours):
    """The check that follows proves this row."""

    def add(check):
        ROWS.append(Row(what, peers, ours, check))
        return check

    return add


def close(x, y):
    np.testing.assert_allclose(x, y, rtol=1e-12)


@row("dense A, b vector or columns", "yes", "yes, any memory order")
def _():
    for form in (np.ascontiguousarray, np.asfortranarray, lambda x: x[::-1][::-1]):
        close(rw.solve(form(A), form(B)), np.linalg.solve(A, B))
        close(rw.solve(form(A), B[:, 0]), np.linalg.solve(A, B[:, 0]))


@row("sparse A", "`spsolve`: CSC or CSR", "any SciPy format, arrays and matrices")
def _():
    for name in ("csc", "csr", "coo", "lil", "dok", "dia", "bsr"):
        close(rw.solve(SPARSE.asformat(name), B[:, 0]), spsolve(SPARSE, B[:, 0]))


@row("stacked systems, `(..., n, n)`", "yes", "yes, NumPy 2's broadcasting; small ones in one call")
def _():
    stack, blocks = np.stack([A, 2 * A, A.T]), np.stack([B, B + 1, B - 1])
    close(rw.solve(stack, blocks), np.linalg.solve(stack, blocks))
    close(rw.solve(stack, B[:, 0]), np.linalg.solve(stack, B[:, 0]))
    close(rw.solve(A, blocks), np.linalg.solve(A, blocks))


@row("shape of x", "that of b", "that of b")
def _():
    for b in (B, B[:, 0], B[:, :1]):
        assert rw.solve(A, b).shape == np.linalg.solve(A, b).shape == b.shape


@row("0 x 0, no columns, empty stacks", "an empty x", "an empty x")
def _():
    for a, b in (((0, 0), (0,)), ((3, 3), (3, 0)), ((0, 3, 3), (3,)), ((2, 0, 0), (2, 0, 4))):
        given = np.broadcast_to(np.eye(a[-1]), a), np.ones(b)
        ours, numpys = (solve(*given) for solve in (rw.solve, np.linalg.solve))
        assert ours.shape == numpys.shape
        assert ours.dtype == numpys.dtype


@row("float32 A and b", "float32 x", "float32 x")
def _():
    ours, numpys = (f(np.float32(A), np.float32(B)) for f in (rw.solve, np.linalg.solve))
    assert ours.dtype == numpys.dtype == np.float32


@row("integers, bool, lists", "converted to float64", "converted to float64")
def _():
    for dtype in (np.int64, np.uint8, bool):
        ours, numpys = (f(np.eye(2, dtype=dtype), [1, 2]) for f in (rw.solve, np.linalg.solve))
        assert ours.dtype == numpys.dtype == np.float64


@row("float16", "`TypeError` (NumPy), float32 (SciPy)", "converted to float64, which is exact")
def _():
    with pytest.raises(TypeError):
        np.linalg.solve(np.float16(A), np.float16(B))
    assert rw.solve(np.float16(A), np.float16(B)).dtype == np.float64


@row("longdouble", "float64 x, silently (NumPy)", "`TypeError`: pass `A.astype(float)`")
def _():
    if np.finfo(np.longdouble).nmant == 52:
        return  # it is float64 here
    with pytest.raises(TypeError, match="astype"):
        rw.solve(A.astype(np.longdouble), B)


@row("masked arrays", "the mask is ignored", "`TypeError`: pass `A.filled(value)`")
def _():
    masked = np.ma.masked_array(A, A < 0)
    close(np.asarray(np.linalg.solve(masked, B)), np.linalg.solve(A, B))
    with pytest.raises(TypeError, match="filled"):
        rw.solve(masked, B)


@row("read-only arrays, memory maps", "yes", "yes")
def _():
    frozen = A.copy()
    frozen.flags.writeable = False
    close(rw.solve(frozen, B), np.linalg.solve(A, B))


@row("b is a subclass (`np.matrix`)", "x is one, too (NumPy)", "x is one, too")
def _():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PendingDeprecationWarning)
        for solve in (rw.solve, np.linalg.solve):
            assert type(solve(A, np.matrix(B))) is np.matrix
            assert type(solve(np.matrix(A), B)) is np.ndarray


@row("sparse b", "sparse x, unless b is one column (`spsolve`)", "the same, if A is sparse")
def _():
    ours, scipys = (f(SPARSE, sparse.csc_array(B)) for f in (rw.solve, spsolve))
    assert sparse.issparse(ours)
    close(ours.toarray(), scipys.toarray())
    assert not sparse.issparse(rw.solve(SPARSE, sparse.csc_array(B[:, :1])))


@row(
    "`assume_a`, `lower`, `transposed`",
    "`scipy.linalg.solve`",
    "SciPy's names and their short forms; entries that a name excludes are not read",
)
def _():
    names = ("gen", "sym", "pos", "her", "diagonal", "tridiagonal", "banded")
    for name in (*names, "lower triangular", "upper triangular", "symmetric", "positive definite"):
        for options in ({}, {"lower": True}):
            said = {"assume_a": name, **options}
            close(rw.solve(A, B, **said), scipy.linalg.solve(A, B, **said))
    close(rw.solve(A, B, transposed=True), scipy.linalg.solve(A, B, transposed=True))


@row("`overwrite_a`", "A may be destroyed", "A stays: its numbers verify x")
def _():
    given = np.asfortranarray(A)
    rw.solve(given, B, overwrite_a=True)
    assert np.array_equal(given, A)


@row("`overwrite_b`", "x may be in b's memory", "x is in b's memory, where b can hold it")
def _():
    b = np.asfortranarray(B)
    assert np.shares_memory(rw.solve(A, b, overwrite_b=True), b)
    assert not np.shares_memory(rw.solve(A, b), b)


@row("`check_finite=False`", "no check", "no gain: NaN is refused all the same")
def _():
    with pytest.raises(ValueError, match="NaN"):
        rw.solve(np.full((2, 2), np.nan), np.ones(2), check_finite=False)


@row("A is modified", "no", "no")
def _():
    before = A.copy()
    rw.solve(A, B)
    assert np.array_equal(A, before)


@row("backward error of x", "not checked", "at most `sqrt(n) u`, or `tol` if you pass it")
def _():
    solution = rw.solve(A, B, full_output=True)
    assert solution.backward_error <= solution.tolerance == np.sqrt(6) * 2.0**-53


@row(
    "singular A",
    "`LinAlgError` if a pivot is exactly zero, else some x; NaN and a warning (sparse)",
    "`SolveFailed`, which is a `LinAlgError`; in a stack it names the system",
)
def _():
    with pytest.raises(np.linalg.LinAlgError, match="singular"):
        rw.solve(SINGULAR, np.ones(2))
    with pytest.raises(rw.SolveFailed, match=r"system \(1,\)"):
        rw.solve(np.stack([np.eye(2), SINGULAR]), np.ones(2))


@row(
    "nearly singular A",
    "whatever comes out; `scipy.linalg.solve` warns",
    "x with a small backward error and an `IllConditionedWarning`, or `SolveFailed`",
)
def _():
    with pytest.warns(rw.IllConditionedWarning):
        rw.solve(scipy.linalg.hilbert(14), np.ones(14))
    assert issubclass(rw.IllConditionedWarning, scipy.linalg.LinAlgWarning)


@row("A that is only badly scaled", "`scipy.linalg.solve` warns", "no warning: x has its digits")
def _():
    scales = np.logspace(0, 50, 6)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        close(rw.solve(np.diag(scales), np.ones(6)), 1 / scales)


@row("NaN or infinity in A or b", "NaN comes out (NumPy)", "`ValueError` before any work")
def _():
    for bad in (np.nan, np.inf):
        with pytest.raises(ValueError, match="NaN or infinite"):
            rw.solve(A, np.full(6, bad))


@row("how it went", "not told", "`full_output=True`: a `Solution`, with `explain()`")
def _():
    assert "Verified" in rw.solve(A, B, full_output=True).explain()
    assert "Verified" in rw.solve(np.stack([A, A]), B, full_output=True).explain()


@row(
    "complex A or b, dense or sparse",
    "yes",
    "yes; complex128 x, complex64 if A and b are single. Real A and complex b: real factors",
)
def _():
    Z, C = A + 1j * A.T, B - 2j * B
    close(rw.solve(Z, C), np.linalg.solve(Z, C))
    close(rw.solve(SPARSE * 1j, C[:, 0]), spsolve(SPARSE * 1j, C[:, 0]))
    assert rw.solve(Z, B.astype(np.float32)).dtype == np.complex128
    assert rw.solve(Z.astype(np.complex64), B.astype(np.float32)).dtype == np.complex64
    close(rw.solve(A, C), np.linalg.solve(A, C))


@row(
    "complex in emulation, in `LinearSystem`",
    "",
    "`TypeError`: pass the arrays to `solve`, or the real form",
)
def _():
    with pytest.raises(TypeError, match="solve"):
        rw.LinearSystem(A * 1j, B[:, 0])


@row("least squares", "`lstsq` gives a tuple", "`rw.lstsq` gives x; `full_output=True` the rest")
def _():
    close(rw.lstsq(A[:, :3], B[:, 0]), np.linalg.lstsq(A[:, :3], B[:, 0])[0])


# What no check proves.
SAID = (
    (
        "memory beside a dense A",
        "a copy of A",
        "the factors (FP32: half of A); one copy more if A is scaled, converted or not contiguous",
    ),
    ("bits of x", "depend on BLAS and threads", "depend on these and on the formats chosen"),
)


@pytest.mark.parametrize("one", ROWS, ids=lambda one: one.what)
def test_row(one):
    one.check()


def table():
    lines = ["| | NumPy, SciPy | Roundwise |", "|---|---|---|"]
    lines += [f"| {one.what} | {one.peers} | {one.ours} |" for one in ROWS]
    return "\n".join(lines + [f"| {' | '.join(texts)} |" for texts in SAID]) + "\n"


def test_the_page_has_this_table():
    text = PAGE.read_text()
    assert text.partition(BEGIN)[2].partition(END)[0] == table(), (
        "run `python tests/test_switching.py`"
    )


if __name__ == "__main__":
    page = PAGE.read_text()
    head, _, rest = page.partition(BEGIN)
    PAGE.write_text(head + BEGIN + table() + END + rest.partition(END)[2])
