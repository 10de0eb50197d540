"""Calls drawn from a seed over all that `solve`, `factor`, `Solver` and `lstsq` take.

``draw(seed, number, largest)`` is the same call in every process. Its matrices come from NumPy and
SciPy alone, so that changes of the library do not change them. `record_calls.py` records what the
calls return, `envelope.py` times them against others' calls, and
tests/solver/test_drawn_calls.py judges them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from scipy import sparse

import roundwise as rw

RNG = np.random.Generator

# What is drawn, with its share of the draws.
KINDS = {"dense": 0.38, "sparse": 0.32, "stack": 0.14, "tall": 0.16}
DTYPES = {"float64": 0.5, "float32": 0.15, "complex128": 0.15, "complex64": 0.1, "int64": 0.1}
LAYOUTS = {"C": 0.5, "F": 0.25, "strided": 0.25}
FORMATS = {"csr_array": 0.4, "csc_matrix": 0.3, "csr_matrix": 0.15, "coo_array": 0.15}
ENTRIES = {"solve": 0.65, "factor": 0.2, "refactor": 0.06, "Solver": 0.09}
ASKED = {"plain": 0.4, "full_output": 0.14, "assume_a": 0.16}
ASKED |= {"accuracy": 0.08, "tol": 0.08, "transposed": 0.07, "policy": 0.07}

BANDS = ("banded", "tridiagonal", "diagonal")
SYMMETRIC = ("symmetric", "indefinite", "saddle", "arrow")
DEFINITE = ("definite", "kernel", "grid", "graph")
GENERAL = ("gaussian", "ill-conditioned", "badly scaled", "singular")
FAMILIES = (*GENERAL, "triangular", "permuted", "convection", *BANDS, *SYMMETRIC, *DEFINITE)
NOT_INTEGER = ("ill-conditioned", "badly scaled", "kernel")
SINGLE = ("float32", "complex64")

MOST_ENTRIES = 4e6
"""Of a stack, or of the right-hand sides of a sparse system."""


@dataclass(frozen=True, eq=False)
class Call:
    """One call of the library; its arrays are made when first asked for."""

    seed: int
    number: int
    largest: int
    kind: str
    family: str
    entry: str
    shape: tuple[int, ...]  # of A
    k: int
    dtype: str
    layout: str
    variant: float  # in [0, 1): decides between forms of one family
    options: dict[str, Any]  # of the entry, without full_output
    full_output: bool
    trans: str  # of F.solve

    @property
    def n(self) -> int:
        return self.shape[-1]

    @property
    def told(self) -> str | None:
        return self.options.get("assume_a")

    @property
    def line(self) -> str:
        """Python that draws it again."""
        return f"draw({self.seed}, {self.number}, {self.largest})"

    def __str__(self) -> str:
        shape = "x".join(map(str, self.shape))
        said = [f"{name}={value!r}" for name, value in self.options.items()]
        said += ["full_output"] * self.full_output + [f"trans={self.trans}"] * (self.trans != "N")
        words = (self.kind, self.family, self.dtype, shape, f"k={self.k}", self.layout, self.entry)
        return " ".join([*words, *said])

    @cached_property
    def sequence(self) -> tuple[Any, ...]:
        """A, and where the entry is for sequences of matrices, three that differ from it by 1 %."""
        rng = np.random.default_rng([self.seed, self.number, 1])
        drifts = 3 if self.entry in ("refactor", "Solver") else 0
        A = _given(self, rng)
        return (A, *(_drifted(A, self.layout, rng) for _ in range(drifts)))

    @property
    def A(self) -> Any:
        return self.sequence[0]

    @cached_property
    def b(self) -> Any:
        return _right_hand_sides(self, np.random.default_rng([self.seed, self.number, 2]))

    def meant(self, A: Any) -> Any:
        """The matrix to solve with: A, or its transpose if that is asked for."""
        if self.options.get("transposed") or self.trans != "N":
            A = A.T if A.ndim == 2 else np.swapaxes(A, -1, -2)
            return A.conj() if self.trans == "H" else A
        return A


def draw(seed: int, number: int, largest: int = 300) -> Call:
    """A call with at most `largest` unknowns; the sizes are log-uniform."""
    rng = np.random.default_rng([seed, number])
    kind, dtype, entry, asked = (_pick(rng, w) for w in (KINDS, DTYPES, ENTRIES, ASKED))
    layout = _pick(rng, FORMATS if kind == "sparse" else LAYOUTS)
    family, variant = str(rng.choice(FAMILIES)), float(rng.random())
    n = _log_uniform(rng, min(largest, 400) if kind == "stack" else largest)
    if family in ("grid", "convection"):
        n = _side(n, variant) ** _dimensions(variant)
    shape: tuple[int, ...] = (n, n)
    if kind == "tall":
        dtype = {"complex128": "float64", "complex64": "float32"}.get(dtype, dtype)
        family = GENERAL[int(len(GENERAL) * rng.random())]
        m = n + _log_uniform(rng, 4 * n)
        shape = (m, n) if variant < 0.85 else (n, m)
        entry, asked = "lstsq", asked if asked in ("full_output", "tol", "policy") else "plain"
    elif kind == "stack":
        shape = (_log_uniform(rng, max(1, min(largest // 4, int(MOST_ENTRIES / n**2)))), n, n)
        entry = entry if entry in ("solve", "factor") else "solve"
    if dtype == "int64" and family in NOT_INTEGER:
        dtype = "float64"
    most = int(max(1, min(shape[-1], MOST_ENTRIES / math.prod(shape[:-1]))))
    k = 1 if rng.random() < 0.5 else most if rng.random() < 0.1 else _log_uniform(rng, most)
    values = {
        "assume_a": _true_name(family, dtype, variant),
        "accuracy": "forward",
        "tol": float(10 ** rng.uniform(*((-6, -3) if dtype in SINGLE else (-12, -4)))),
        "policy": str(rng.choice(["fp64", "fp32", "bf16"])),
        "transposed": True,
    }
    trans = str(rng.choice(["T", "H"])) if asked == "transposed" and "factor" in entry else "N"
    options = {asked: values[asked]} if asked in values and trans == "N" else {}
    facts = (kind, family, entry, shape, k, dtype, layout, variant, options)
    return Call(seed, number, largest, *facts, asked == "full_output", trans)


def prepare(call: Call) -> Callable[[Any, bool], Any]:
    """The library's call, as a function of A and `full_output`; what it keeps is new."""
    b, options = call.b, dict(call.options)
    if call.entry == "Solver":
        solver = rw.Solver(options.pop("policy", "default"))
        return lambda A, full: solver.solve(A, b, full_output=full, **options)
    if call.entry in ("factor", "refactor"):
        F = rw.factor(call.sequence[-1], **options)
        if call.entry == "factor":
            return lambda A, full: F.solve(b, call.trans, full_output=full)
        F.solve(b)
        return lambda A, full: F.refactor(A).solve(b, call.trans, full_output=full)
    function = rw.lstsq if call.entry == "lstsq" else rw.solve
    return lambda A, full: function(A, b, full_output=full, **options)


def backward_error(call: Call, x: Any, wide: bool = True) -> float:
    """The largest over the columns, or over some of many, in the widest arithmetic of NumPy.

    Or in double precision, which takes far less time, and is off by some ``n u``.

    ``||b - A x|| / (||A|| ||x|| + ||b||)`` in the max norm; for least squares
    ``||A'(b - A x)|| / (||A|| (||A|| ||x|| + ||b||))`` in the Frobenius norm.
    """
    A, b, X = call.meant(call.A), call.b, np.asarray(x)
    if not np.isfinite(X).all():
        return math.inf
    real, pairs = (np.longdouble, np.clongdouble) if wide else (np.float64, np.complex128)
    taken = pairs if "c" in (A.dtype.kind, b.dtype.kind) else real
    if call.kind == "stack":
        size = (len(A), call.n, call.k)
        B = np.broadcast_to(b[:, None] if b.ndim == 1 else b, size)
        some = range(0, len(A), max(1, A.size * call.k // 10**7))
        return max(_error(A[i].astype(taken), X.reshape(size)[i], B[i]) for i in some)
    entries = A.nnz if sparse.issparse(A) else A.size
    step = max(1, math.ceil(entries * call.k / 1e7))
    X, B = X.reshape(A.shape[1], -1)[:, ::step], b.reshape(A.shape[0], -1)[:, ::step]
    A = sparse.csr_array(A).astype(taken) if sparse.issparse(A) else A.astype(taken)
    if call.kind != "tall":
        return _error(A, X, B)
    norm = np.sqrt((A * A).sum())
    size = norm * (norm * np.linalg.norm(X, axis=0) + np.linalg.norm(B, axis=0))
    residuals = A.T @ (B - A @ X.astype(taken))
    return float((np.sqrt((residuals**2).sum(axis=0)) / np.where(size, size, 1)).max())


def _error(A: Any, X: Any, B: Any) -> float:
    sizes = abs(A).sum(axis=1).max() * abs(X).max(axis=0) + abs(B).max(axis=0)
    residuals = abs(B - A @ X.astype(A.dtype)).max(axis=0)
    return float((residuals / np.where(sizes, sizes, 1)).max())


def _pick(rng: RNG, weights: dict[str, float]) -> str:
    return str(rng.choice(list(weights), p=list(weights.values())))


def _log_uniform(rng: RNG, most: int) -> int:
    return int(min(most, math.exp(rng.uniform(0, math.log(most + 1)))))


def _dimensions(variant: float) -> int:
    return 2 if variant < 0.6 else 3


def _side(n: int, variant: float) -> int:
    """Of the square or the cube that has about n points."""
    return max(1, round(n ** (1 / _dimensions(variant))))


def _true_name(family: str, dtype: str, variant: float) -> str:
    """What `assume_a` may say of the family."""
    if family in DEFINITE and dtype != "int64":
        return "positive definite"
    if family in SYMMETRIC + DEFINITE:
        return "hermitian" if dtype.startswith("complex") else "symmetric"
    if family == "triangular":
        return "upper triangular" if variant < 0.5 else "lower triangular"
    return family if family in BANDS else "general"


def _given(call: Call, rng: RNG) -> Any:
    """A in its type and layout."""
    if call.kind == "sparse":
        A = sparse.csr_array(_typed(_sparse(call, rng), call, rng))
        A.sort_indices()
        return getattr(sparse, call.layout)(A)
    if call.kind == "stack":
        matrices = [_typed(_dense(call, rng), call, rng) for _ in range(call.shape[0])]
        return _laid_out(np.stack(matrices), call.layout)
    return _laid_out(_typed(_dense(call, rng), call, rng), call.layout)


def _typed(M: Any, call: Call, rng: RNG) -> Any:
    """In the type of the call: integers are rounded, phases make complex numbers."""
    M = sparse.csr_array(M) if sparse.issparse(M) else M
    if call.dtype == "int64":
        M = M * (1000 / (abs(M).max() or 1.0))
        return (M.rint() if sparse.issparse(M) else np.rint(M)).astype(np.int64)
    if call.dtype.startswith("complex"):
        # Unitary scaling keeps pattern and condition, and makes symmetric matrices Hermitian.
        phases = np.exp(2j * np.pi * rng.random(M.shape[0]))
        M = _scaled(phases, M, phases.conj())
    return M.astype(call.dtype)


def _scaled(rows: Any, M: Any, columns: Any) -> Any:
    if sparse.issparse(M):
        return sparse.diags_array(rows) @ M @ sparse.diags_array(columns)
    return rows[:, None] * M * columns


def _laid_out(A: Any, layout: str) -> Any:
    if layout == "F":
        return np.ascontiguousarray(np.swapaxes(A, -1, -2)).swapaxes(-1, -2)
    if layout == "C":
        return np.ascontiguousarray(A)
    step = 2 if A.size <= 2**20 else 1  # every other number of a row, or a part of longer rows
    wide = np.zeros((*A.shape[:-1], step * A.shape[-1] + 3), dtype=A.dtype)
    view = wide[..., : step * A.shape[-1] : step]
    view[...] = A
    return view


def _drifted(A: Any, layout: str, rng: RNG) -> Any:
    """``D A D`` with D near I: the structure, the pattern and the layout stay."""
    D, near = 1 + 0.01 * rng.random(A.shape[0]), np.result_type(A.dtype, np.float32)
    if sparse.issparse(A):
        return type(A)(_scaled(D, sparse.csr_array(A), D).astype(near))
    return _laid_out(_scaled(D, A, D).astype(near), layout)


def _right_hand_sides(call: Call, rng: RNG) -> Any:
    """Gaussian, the identity, or such that x is known to be ones."""
    A, (rows, k), form = call.meant(call.A), (call.shape[-2], call.k), rng.random()
    stack = call.shape[:1] if call.kind == "stack" and form < 0.7 else ()
    B = rng.standard_normal((*stack, rows, k))
    if A.dtype.kind == "c" or (rng.random() < 0.03 and call.kind != "tall"):
        B = B + 1j * rng.standard_normal(B.shape)
    if k == rows and form < 0.5:
        B = np.broadcast_to(np.eye(rows), B.shape).astype(B.dtype)
    elif form < 0.3 and call.kind != "stack":
        B = A @ np.ones((A.shape[1], k), dtype=B.dtype)
    if call.dtype == "int64":
        B = np.rint(100 * B.real).astype(np.int64)
    elif call.dtype in SINGLE:
        B = B.astype(np.complex64 if B.dtype.kind == "c" else np.float32)
    if k == 1 and not stack and rng.random() < 0.7:
        return B[..., 0].copy()
    return np.asfortranarray(B) if not stack and rng.random() < 0.5 else np.ascontiguousarray(B)


def _kappa(call: Call, rng: RNG) -> float:
    return float(10 ** rng.uniform(1, 5.5 if call.dtype in SINGLE else 13))


def _dense(call: Call, rng: RNG) -> Any:
    family, (m, n) = call.family, call.shape[-2:]
    if family in ("ill-conditioned", "definite", "indefinite"):
        M, s = np.zeros((m, n)), _kappa(call, rng) ** -rng.random(min(m, n))
        np.fill_diagonal(M, s * rng.choice([-1.0, 1.0], len(s)) if family == "indefinite" else s)
        return _reflected(M, rng, family != "ill-conditioned")
    if family == "kernel":
        points = rng.random((n, 2))
        distances = sum((one[:, None] - one) ** 2 for one in points.T)
        return np.exp(-distances / (2 * 0.3**2)) + 10 ** rng.uniform(-6, -1) * np.eye(n)
    if family in (*GENERAL, "symmetric", "triangular", "permuted"):
        return _formed(call, rng.standard_normal((m, n)), rng)
    return _sparse(call, rng).toarray()


def _reflected(M: Any, rng: RNG, symmetric: bool) -> Any:
    """Q M P with random orthogonal Q and P, products of three reflections; Q M Q' if symmetric."""
    for _ in range(3):
        v, w = rng.standard_normal(M.shape[0]), rng.standard_normal(M.shape[1])
        w = v if symmetric else w
        M = M - np.outer(v, (2 / (v @ v)) * (v @ M))
        M = M - np.outer((2 / (w @ w)) * (M @ w), w)
    return (M + M.T) / 2 if symmetric else M


def _formed(call: Call, M: Any, rng: RNG) -> Any:
    """What the family makes of a general matrix, dense or sparse."""
    (m, n), of = M.shape, sparse if sparse.issparse(M) else np
    if call.family == "symmetric":
        return M + M.T
    if call.family in ("triangular", "permuted"):
        strong = sparse.diags_array(np.full(n, 2 * math.sqrt(n)))
        M = of.triu(M) if call.variant < 0.5 else of.tril(M)
        M = M + (strong if of is sparse else strong.toarray())
        M = M.tocsr() if of is sparse else M
        return M[rng.permutation(n)] if call.family == "permuted" else M
    if call.family == "badly scaled":
        most = 3 if call.dtype in SINGLE else 8
        rows = np.ones(m) if call.kind == "tall" else 10 ** rng.uniform(-most, most, m)
        return _scaled(rows, M, 10 ** rng.uniform(-most, most, n))
    if call.family == "singular":  # one row or column twice, so that dependence is exact
        if min(m, n) == 1:
            return 0 * M
        return of.hstack([M[:, :-1], M[:, :1]]) if m > n else of.vstack([M[:-1], M[:1]])
    return M


def _sparse(call: Call, rng: RNG) -> Any:
    family, n = call.family, call.n
    if family in BANDS:
        width = {"diagonal": 0, "tridiagonal": 1}.get(family, 2 + int(6 * call.variant))
        offsets = range(-min(width, n - 1), min(width, n - 1) + 1)
        diagonals = [rng.standard_normal(n - abs(d)) + (d == 0) * 2 * width for d in offsets]
        return sparse.diags_array(diagonals, offsets=list(offsets), shape=(n, n))
    if family in ("grid", "convection"):
        return _grid(_side(n, call.variant), _dimensions(call.variant), 0.8 * (family != "grid"))
    if family == "arrow":
        M = sparse.lil_array(sparse.diags_array(rng.choice([-1.0, 1.0], n) * (2 + rng.random(n))))
        M[-1, :-1] = M[:-1, -1] = rng.standard_normal(n - 1)
        return M
    if family == "kernel":  # cut off beyond six neighbours
        offsets = range(min(n, 7))
        M = sparse.diags_array(
            [np.full(n - d, math.exp(-(d**2))) for d in offsets], offsets=offsets
        )
        return M + sparse.triu(M, 1).T
    if family == "saddle":  # a chain of springs, and constraints
        m = n // 3
        springs = 0.5 + rng.random(n - m + 1)
        H = sparse.diags_array([springs[1:-1]], offsets=[1], shape=(n - m, n - m))
        H = sparse.diags_array(springs[:-1] + springs[1:]) - H - H.T
        B = _random(n, rng)[:m, : n - m] + sparse.eye_array(m, n - m)
        return sparse.block_array([[H, B.T], [B, None]]) if m else H
    M = _random(n, rng)
    if family in ("definite", "graph", "indefinite"):
        M = -abs(M + M.T) if family == "graph" else M + M.T
        M = M - sparse.diags_array(M.diagonal())
        signs = rng.choice([-1.0, 1.0], n) if family == "indefinite" else 1.0
        return M + sparse.diags_array(signs * (abs(M).sum(axis=1) + 0.01))
    if family == "ill-conditioned":
        return _scaled(np.ones(n), M, _kappa(call, rng) ** -rng.random(n))
    return _formed(call, M, rng)


def _random(n: int, rng: RNG) -> Any:
    """Some entries in each row at random places, and a diagonal."""
    each = min(n, int(rng.integers(1, 6)))
    places = np.repeat(np.arange(n), each), rng.integers(n, size=n * each)
    M = sparse.coo_array((rng.standard_normal(n * each), places), shape=(n, n))
    return sparse.csr_array(M + sparse.diags_array(1 + rng.random(n)))


def _grid(side: int, dimensions: int, wind: float) -> Any:
    """The Laplacian of a square or a cube, with a wind along its axes."""
    one = [np.full(side - 1, -1.0 - wind), np.full(side, 2.0), np.full(side - 1, -1.0 + wind)]
    M = line = sparse.diags_array(one, offsets=[-1, 0, 1], shape=(side, side))
    for _ in range(dimensions - 1):
        across = sparse.kron(sparse.eye_array(M.shape[0]), line)
        M = sparse.kron(M, sparse.eye_array(side)) + across
    return M
