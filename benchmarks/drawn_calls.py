"""Calls drawn from a seed over all that `solve`, `factor`, `Solver` and `lstsq` take.

``draw(seed, number, largest)`` is the same call in every process. Its matrices come from NumPy and
SciPy alone, so that changes of the library do not change them. `record_calls.py` records what the
calls return, `envelope.py` times them against others' calls, tests/test_drawn_calls.py judges them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from scipy import sparse

import roundwise as rw

KINDS = {"dense": 0.38, "sparse": 0.32, "stack": 0.14, "tall": 0.16}
DTYPES = {"float64": 0.5, "float32": 0.15, "complex128": 0.15, "complex64": 0.1, "int64": 0.1}
SINGLE = ("float32", "complex64")
LAYOUTS = {"C": 0.5, "F": 0.25, "strided": 0.25}
FORMATS = {
    "csr_array": 0.4,
    "csc_matrix": 0.3,
    "csr_matrix": 0.1,
    "coo_array": 0.1,
    "dia_array": 0.1,
}
ENTRIES = {"solve": 0.65, "factor": 0.2, "refactor": 0.06, "Solver": 0.09}
ASKED = {"plain": 0.4, "full_output": 0.14, "assume_a": 0.16}
ASKED |= {"accuracy": 0.08, "tol": 0.08, "transposed": 0.07, "policy": 0.07}
POLICIES = ("fp64", "fp32", "bf16")

SYMMETRIC = ("symmetric", "indefinite", "saddle", "arrow")
DEFINITE = ("definite", "kernel", "grid", "graph")
BANDS = ("banded", "tridiagonal", "diagonal")
HARD = ("ill-conditioned", "badly scaled", "kernel")
"""Families whose numbers cannot be rounded to integers."""
FAMILIES = ("gaussian", "triangular", "convection", "singular", *HARD[:2], *SYMMETRIC, *DEFINITE)
FAMILIES += BANDS
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
        """The matrices of a call that is made again and again: A, and some that differ by 1 %."""
        rng = np.random.default_rng([self.seed, self.number, 1])
        given = [_given(self, rng)]
        if self.entry in ("refactor", "Solver"):
            given += [_drifted(given[0], self.layout, rng) for _ in range(3)]
        return tuple(given)

    @property
    def A(self) -> Any:
        return self.sequence[0]

    @cached_property
    def b(self) -> Any:
        return _right_hand_sides(self, np.random.default_rng([self.seed, self.number, 2]))

    @property
    def meant(self) -> Any:
        """The matrix to solve with: A, or its transpose if that is asked for."""
        if self.options.get("transposed") or self.trans != "N":
            A = self.A.T if self.A.ndim == 2 else np.swapaxes(self.A, -1, -2)
            return A.conj() if self.trans == "H" else A
        return self.A


def draw(seed: int, number: int, largest: int = 300) -> Call:
    """A call with at most `largest` unknowns; the sizes are log-uniform."""
    rng = np.random.default_rng([seed, number])
    kind, dtype = _pick(rng, KINDS), _pick(rng, DTYPES)
    family = str(rng.choice(FAMILIES))
    n = _log_uniform(rng, min(largest, 400) if kind == "stack" else largest)
    shape: tuple[int, ...] = (n, n)
    entry, asked, variant = _pick(rng, ENTRIES), _pick(rng, ASKED), float(rng.random())
    layout = _pick(rng, FORMATS if kind == "sparse" else LAYOUTS)
    if kind == "tall":
        dtype = dtype.replace("complex128", "float64").replace("complex64", "float32")  # real only
        m = n + _log_uniform(rng, 4 * n)
        shape = (m, n) if variant < 0.85 else (n, m)
        family = str(rng.choice(("gaussian", *HARD[:2], "singular")))
        entry, asked = "lstsq", asked if asked in ("full_output", "tol", "policy") else "plain"
    elif kind == "stack":
        shape = (_log_uniform(rng, max(1, min(largest // 4, int(MOST_ENTRIES / n**2)))), n, n)
        entry = entry if entry in ("solve", "factor") else "solve"
    if family in ("grid", "convection"):
        side = max(1, round(n ** (1 / _dimensions(variant))))
        shape = (*shape[:-2], side ** _dimensions(variant), side ** _dimensions(variant))
    if dtype == "int64" and family in HARD:
        dtype = "float64"
    most = int(max(1, min(shape[-1], MOST_ENTRIES / math.prod(shape[:-1]))))
    k = 1 if rng.random() < 0.5 else most if rng.random() < 0.1 else _log_uniform(rng, most)
    options: dict[str, Any] = {}
    trans = "N"
    if asked == "assume_a":
        options["assume_a"] = _true_name(family, dtype, variant)
    elif asked == "accuracy":
        options["accuracy"] = "forward"
    elif asked == "tol":
        options["tol"] = float(10 ** rng.uniform(*((-6, -3) if dtype in SINGLE else (-12, -4))))
    elif asked == "policy":
        options["policy"] = str(rng.choice(POLICIES))
    elif asked == "transposed" and entry in ("solve", "Solver"):
        options["transposed"] = True
    elif asked == "transposed":
        trans = str(rng.choice(["T", "H"]))
    full_output = asked == "full_output"
    facts = (kind, family, entry, shape, k, dtype, layout, variant, options, full_output, trans)
    return Call(seed, number, largest, *facts)


def calls(seed: int, count: int, largest: int = 300) -> Iterable[Call]:
    return (draw(seed, number, largest) for number in range(count))


def prepare(call: Call) -> Callable[..., Any]:
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


def backward_error(call: Call, x: Any) -> float:
    """In the widest arithmetic of NumPy, and the largest over the columns, or over some of many.

    ``||b - A x|| / (||A|| ||x|| + ||b||)`` in the max norm; for least squares
    ``||A'(b - A x)|| / (||A|| (||A|| ||x|| + ||b||))`` in the Frobenius norm.
    """
    A, b, X = call.meant, np.asarray(call.b), np.asarray(x)
    if not np.isfinite(X).all():
        return math.inf
    wide = np.clongdouble if "c" in (A.dtype.kind, b.dtype.kind) else np.longdouble
    if call.kind == "stack":
        B = np.broadcast_to(b[:, None] if b.ndim == 1 else b, (len(A), call.n, call.k))
        pairs = zip(A, X.reshape(len(A), call.n, call.k), B, strict=True)
        return max(_error(a.astype(wide), y, c) for a, y, c in list(pairs)[:100])
    X, B = X.reshape(A.shape[1], -1), b.reshape(A.shape[0], -1)
    entries = A.nnz if sparse.issparse(A) else A.size
    step = max(1, math.ceil(entries * B.shape[1] / 2e7))
    X, B = X[:, ::step], B[:, ::step]
    A = sparse.csr_array(A).astype(wide) if sparse.issparse(A) else A.astype(wide)
    return _least_squares_error(A, X, B) if call.kind == "tall" else _error(A, X, B)


def _error(A: Any, X: Any, B: Any) -> float:
    sizes = abs(A).sum(axis=1).max() * abs(X).max(axis=0) + abs(B).max(axis=0)
    residuals = abs(B - A @ X.astype(A.dtype)).max(axis=0)
    return float(max((r / s if r else 0.0 for r, s in zip(residuals, sizes, strict=True))))


def _least_squares_error(A: Any, X: Any, B: Any) -> float:
    norm = np.sqrt((A * A).sum())
    size = norm * (norm * np.linalg.norm(X, axis=0) + np.linalg.norm(B, axis=0))
    residuals = A.T @ (B - A @ X.astype(A.dtype))
    return float((np.sqrt((residuals**2).sum(axis=0)) / np.where(size, size, 1)).max())


def _pick(rng: np.random.Generator, weights: dict[str, float]) -> str:
    shares = np.array(list(weights.values()))
    return str(rng.choice(list(weights), p=shares / shares.sum()))


def _log_uniform(rng: np.random.Generator, most: int) -> int:
    return int(min(most, math.exp(rng.uniform(0, math.log(most + 1)))))


def _dimensions(variant: float) -> int:
    return 2 if variant < 0.6 else 3


def _true_name(family: str, dtype: str, variant: float) -> str:
    """What `assume_a` says of the family."""
    if family in DEFINITE and dtype != "int64":
        return "positive definite"
    if family in SYMMETRIC + DEFINITE:
        return "hermitian" if dtype.startswith("complex") else "symmetric"
    if family == "triangular":
        return "upper triangular" if variant < 0.5 else "lower triangular"
    return family if family in BANDS else "general"


def _given(call: Call, rng: np.random.Generator) -> Any:
    """A in its type and layout."""
    if call.kind == "stack":
        matrices = [_typed(_dense(call, call.n, rng), call, rng) for _ in range(call.shape[0])]
        return _laid_out(np.stack(matrices), call.layout)
    if call.kind == "tall":
        return _laid_out(_typed(_rectangle(call, rng), call, rng), call.layout)
    if call.kind == "dense":
        return _laid_out(_typed(_dense(call, call.n, rng), call, rng), call.layout)
    A = sparse.csr_array(_typed(_sparse(call, call.n, rng), call, rng))
    A.sort_indices()
    return getattr(sparse, call.layout)(A)


def _typed(M: Any, call: Call, rng: np.random.Generator) -> Any:
    """In the type of the call: integers are rounded, phases make complex numbers."""
    if sparse.issparse(M):
        M = sparse.csr_array(M)
    if call.dtype == "int64":
        M = M * (1000 / (abs(M).max() or 1.0))
        return (M.rint() if sparse.issparse(M) else np.rint(M)).astype(np.int64)
    if call.dtype.startswith("complex"):
        # Unitary scaling keeps pattern and condition, and makes symmetric matrices Hermitian.
        phases = np.exp(2j * np.pi * rng.random(M.shape[0]))
        return _scaled(phases, M, phases.conj()).astype(call.dtype)
    return M.astype(call.dtype)


def _scaled(rows: Any, M: Any, columns: Any) -> Any:
    if sparse.issparse(M):
        return sparse.diags_array(rows) @ M @ sparse.diags_array(columns)
    return rows[:, None] * M * columns


def _laid_out(A: Any, layout: str) -> Any:
    if layout == "F":
        return np.ascontiguousarray(np.swapaxes(A, -1, -2)).swapaxes(-1, -2)
    if layout == "strided":  # every other number of a row, or a part of longer rows
        step = 2 if A.size <= 2**20 else 1
        wide = np.zeros((*A.shape[:-1], step * A.shape[-1] + 3), dtype=A.dtype)
        view = wide[..., : step * A.shape[-1] : step]
        view[...] = A
        return view
    return np.ascontiguousarray(A)


def _drifted(A: Any, layout: str, rng: np.random.Generator) -> Any:
    """``D A D`` with D near I: the structure, the pattern and the layout stay."""
    D = 1 + 0.01 * rng.random(A.shape[0])
    near = np.float64 if A.dtype.kind == "i" else A.dtype
    if sparse.issparse(A):
        return type(A)(_scaled(D, sparse.csr_array(A), D).astype(near))
    return _laid_out(_scaled(D, A, D).astype(near), layout)


def _right_hand_sides(call: Call, rng: np.random.Generator) -> Any:
    A, (rows, k) = call.meant, (call.shape[-2], call.k)
    form = rng.random()
    stack = call.shape[:1] if call.kind == "stack" and (form < 0.7 or k == rows) else ()
    B = rng.standard_normal((*stack, rows, k))
    if A.dtype.kind == "c" or (rng.random() < 0.03 and call.kind != "tall"):
        B = B + 1j * rng.standard_normal(B.shape)
    if k == rows and form < 0.5:
        B = np.broadcast_to(np.eye(rows), B.shape).astype(B.dtype)
    elif form < 0.3 and call.kind != "stack":
        B = np.asarray(A @ np.ones((A.shape[1], k)) + 0 * B)
    if call.dtype == "int64":
        B = np.rint(100 * B.real).astype(np.int64)
    elif call.dtype in SINGLE:
        B = B.astype(np.complex64 if B.dtype.kind == "c" else np.float32)
    if k == 1 and not stack and rng.random() < 0.7:
        return B[..., 0].copy()
    return np.asfortranarray(B) if not stack and rng.random() < 0.5 else np.ascontiguousarray(B)


def _kappa(call: Call, rng: np.random.Generator) -> float:
    return float(10 ** rng.uniform(1, 5.5 if call.dtype in SINGLE else 13))


def _reflected(M: Any, rng: np.random.Generator, symmetric: bool) -> Any:
    """Q M P with random orthogonal Q and P, products of three reflections; Q M Q' if symmetric."""
    for _ in range(3):
        v, w = rng.standard_normal(M.shape[0]), rng.standard_normal(M.shape[1])
        w = v if symmetric else w
        M = M - np.outer(v, (2 / (v @ v)) * (v @ M))
        M = M - np.outer((2 / (w @ w)) * (M @ w), w)
    return (M + M.T) / 2 if symmetric else M


def _rectangle(call: Call, rng: np.random.Generator) -> Any:
    m, n = call.shape
    M = rng.standard_normal((m, n))
    if call.family == "ill-conditioned":
        s = _kappa(call, rng) ** -rng.random(min(m, n))
        M = np.zeros((m, n))
        np.fill_diagonal(M, s)
        return _reflected(M, rng, False)
    if call.family == "badly scaled":
        M *= _powers(call, n, rng)
    elif call.family == "singular":
        M[:, -1] = M[:, 0] if n > 1 else 0.0
    return M


def _powers(call: Call, n: int, rng: np.random.Generator) -> Any:
    most = 3 if call.dtype in SINGLE else 8
    return 10 ** rng.uniform(-most, most, n)


def _dense(call: Call, n: int, rng: np.random.Generator) -> Any:
    family = call.family
    if family in ("ill-conditioned", "definite", "indefinite"):
        s = _kappa(call, rng) ** -rng.random(n)
        if family == "indefinite":
            s *= rng.choice([-1.0, 1.0], n)
        return _reflected(np.diag(s), rng, family != "ill-conditioned")
    if family == "kernel":
        points = rng.random((n, 2))
        distances = ((points[:, None] - points) ** 2).sum(axis=-1)
        return np.exp(-distances / (2 * 0.3**2)) + 10 ** rng.uniform(-6, -1) * np.eye(n)
    if family in ("gaussian", "symmetric", "triangular", "badly scaled", "singular"):
        return _formed(call, rng.standard_normal((n, n)), rng)
    return _sparse(call, n, rng).toarray()


def _formed(call: Call, M: Any, rng: np.random.Generator) -> Any:
    """What the family makes of a general matrix, dense or sparse."""
    n = M.shape[0]
    if call.family == "symmetric":
        return M + M.T
    if call.family == "triangular":
        part = (sparse if sparse.issparse(M) else np).__dict__[
            "triu" if call.variant < 0.5 else "tril"
        ]
        strong = sparse.diags_array(np.full(n, 2 * math.sqrt(n)))
        return part(M) + (strong if sparse.issparse(M) else strong.toarray())
    if call.family == "badly scaled":
        return _scaled(_powers(call, n, rng), M, _powers(call, n, rng))
    if call.family == "singular":
        rows = sparse.csr_array(M) if sparse.issparse(M) else M
        if n == 1:
            return 0 * rows
        return (sparse if sparse.issparse(M) else np).vstack([rows[:-1], rows[:1]])
    return M


def _sparse(call: Call, n: int, rng: np.random.Generator) -> Any:
    family, variant = call.family, call.variant
    if family in BANDS:
        below = {"diagonal": 0, "tridiagonal": 1}.get(family, min(n - 1, 2 + int(6 * variant)))
        offsets = range(-min(below, n - 1), min(below, n - 1) + 1)
        diagonals = [rng.standard_normal(n - abs(d)) + (d == 0) * 2 * below for d in offsets]
        return sparse.diags_array(diagonals, offsets=list(offsets), shape=(n, n))
    if family in ("grid", "convection"):
        return _grid(n, _dimensions(variant), 0.8 * (family == "convection"))
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
    if family == "saddle":
        m = n // 3
        H, B = _grid_like(n - m, rng), _random(n, rng).tocsr()[:m, : n - m]
        B = B + sparse.eye_array(m, n - m)
        return sparse.block_array([[H, B.T], [B, None]]) if m else H
    M = _random(n, rng)
    if family in ("definite", "graph", "indefinite"):
        M = M + M.T
        M = -abs(M) if family == "graph" else M
        M = M - sparse.diags_array(M.diagonal())
        signs = rng.choice([-1.0, 1.0], n) if family == "indefinite" else 1.0
        return M + sparse.diags_array(signs * (abs(M).sum(axis=1) + 0.01))
    if family == "ill-conditioned":
        return _scaled(np.ones(n), M, _kappa(call, rng) ** -rng.random(n))
    return _formed(call, M, rng)


def _random(n: int, rng: np.random.Generator) -> Any:
    """Some entries in each row at random places, and a diagonal."""
    each = min(n, int(rng.integers(1, 6)))
    places = np.repeat(np.arange(n), each), rng.integers(n, size=n * each)
    M = sparse.coo_array((rng.standard_normal(n * each), places), shape=(n, n))
    return sparse.csr_array(M + sparse.diags_array(1 + rng.random(n)))


def _grid_like(n: int, rng: np.random.Generator) -> Any:
    """The chain of n springs of random strengths."""
    springs = 0.5 + rng.random(n + 1)
    M = sparse.diags_array([springs[1:n]], offsets=[1], shape=(n, n))
    return sparse.diags_array(springs[:-1] + springs[1:]) - M - M.T


def _grid(n: int, dimensions: int, wind: float) -> Any:
    """The Laplacian of a square or a cube, with a wind along its axes."""
    side = round(n ** (1 / dimensions))
    one = [np.full(side - 1, -1.0 - wind), np.full(side, 2.0), np.full(side - 1, -1.0 + wind)]
    line, identity = sparse.diags_array(one, offsets=[-1, 0, 1]), sparse.eye_array(side)
    M = line
    for _ in range(dimensions - 1):
        M = sparse.kron(M, identity) + sparse.kron(sparse.eye_array(M.shape[0]), line)
    return M
