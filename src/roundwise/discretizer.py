"""`FeatureDiscretizer`: feature vectors to state indices, by the nearest of a few points."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = ["FeatureDiscretizer"]

Scale = Literal["linear", "log"]
_INTEGER = (int, np.integer)


class FeatureDiscretizer:
    """Nearest point of a regular grid over the range of the training data.

    Feature j gets ``n_j`` points, ``linspace(min_j, max_j, n_j)`` (of log10 for the scale
    ``"log"``); a value goes to the nearest point, to the lower one of two equally near, and a
    value beyond the range to the end. The state is the row-major index of the point: with two
    features, ``bin1 * n2 + bin2`` (Carson & Chen, section on discretisation).

    A feature that is constant in the training data has one point: all values go there, and
    `bins_` says 1.

    `bins` and `scale` hold for every feature, or are sequences with an entry for each. The scale
    ``"log"`` takes log10 first; such features must be positive.

    Parameters
    ----------
    bins : int or sequence of int
    scale : {"linear", "log"}, or a sequence of these

    Attributes
    ----------
    bins_ : tuple of int
        Points in use, after `fit`; `n_states_` is their product.
    bin_centers_ : tuple of arrays
        The points, in the units of the feature.

    Examples
    --------
    >>> from roundwise.discretizer import FeatureDiscretizer
    >>> bins = FeatureDiscretizer(bins=3).fit([[0.0], [2.0]])
    >>> bins.transform([[0.4], [0.6], [9.0]])
    array([0, 1, 2])
    """

    def __init__(
        self, bins: int | Sequence[int] = 10, scale: Scale | Sequence[Scale] = "linear"
    ) -> None:
        self.bins = bins
        self.scale = scale

    def fit(self, X: ArrayLike) -> FeatureDiscretizer:
        """Take the range of each column of X, an array of shape (N, d) with finite entries."""
        X = matrix_of("X", X)
        if not len(X):
            raise ValueError("X has no rows; fit the discretizer to at least one context")
        d = X.shape[1]
        counts = _per_feature(self.bins, d, "bins", _INTEGER)
        scales = _per_feature(self.scale, d, "scale", str)
        for n in counts:
            if isinstance(n, bool) or not isinstance(n, _INTEGER) or n < 1:
                raise ValueError(f"bins = {self.bins!r}; choose whole numbers >= 1")
        for name in scales:
            if name not in get_args(Scale):
                raise ValueError(f"scale = {name!r}; choose one of {', '.join(get_args(Scale))}")
        if not np.isfinite(X).all():
            raise ValueError("X holds inf; drop those rows before fit (transform clips them)")
        low, high = X.min(axis=0), X.max(axis=0)
        if any(s == "log" and x <= 0 for s, x in zip(scales, low, strict=True)):
            raise ValueError("a feature with scale 'log' is <= 0; use scale 'linear' for it")
        self._scales = tuple(scales)
        self._ends = low, high
        self._low, self._high = self._scaled(low), self._scaled(high)
        with np.errstate(over="ignore"):
            spans = self._high - self._low
        if not np.isfinite(spans).all():
            raise ValueError("a feature's range exceeds float64; use scale 'log' for it")
        # A range too narrow for float64 to divide is constant, too.
        self.bins_ = tuple(
            int(n) if span / max(n - 1, 1) > 0 else 1 for n, span in zip(counts, spans, strict=True)
        )
        self.n_states_ = math.prod(self.bins_)
        return self

    def bin_indices(self, X: ArrayLike) -> NDArray[np.intp]:
        """The index of the point that each entry of X goes to: an array of X's shape."""
        X = self._checked(X)
        Y = self._scaled(np.clip(X, *self._ends))
        n = np.array(self.bins_)
        span = np.where(n > 1, self._high - self._low, 1.0)
        position = (Y - self._low) / span * (n - 1)
        # Half-way goes down; plain rounding would send ties to the even point.
        return np.asarray(np.clip(np.ceil(position - 0.5), 0, n - 1), dtype=np.intp)

    def transform(self, X: ArrayLike) -> NDArray[np.intp]:
        """State indices of the rows of X; beyond the range (±inf too) they are clipped."""
        indices = self.bin_indices(X)
        return np.asarray(np.ravel_multi_index(tuple(indices.T), self.bins_), dtype=np.intp)

    def coordinates(self, state: int) -> tuple[int, ...]:
        """The point's index in each feature: the inverse of the row-major index."""
        self._check_fitted()
        return tuple(int(i) for i in np.unravel_index(state, self.bins_))

    @property
    def bin_centers_(self) -> tuple[NDArray[np.float64], ...]:
        return tuple(self._unscaled(self._points()))

    def to_dict(self) -> dict[str, Any]:
        """Settings and, once fitted, the range; for JSON."""
        bins, scale = np.asarray(self.bins).tolist(), np.asarray(self.scale).tolist()
        saved: dict[str, Any] = {"bins": bins, "scale": scale, "fitted": None}
        if hasattr(self, "_ends"):
            low, high = self._ends
            saved["fitted"] = {"min": low.tolist(), "max": high.tolist()}
        return saved

    @classmethod
    def from_dict(cls, saved: Mapping[str, Any]) -> FeatureDiscretizer:
        """The discretizer that `to_dict` wrote."""
        try:
            made = cls(saved["bins"], saved["scale"])
            fitted = saved["fitted"]
            ends = None if fitted is None else np.array([fitted["min"], fitted["max"]], dtype=float)
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"not a saved discretizer ({error!r}); save it again") from error
        return made if ends is None else made.fit(ends)

    def _points(self) -> list[NDArray[np.float64]]:
        """The points of each feature on its scale."""
        self._check_fitted()
        ends = zip(self._low, self._high, self.bins_, strict=True)
        return [np.linspace(low, high, n) for low, high, n in ends]

    def _scaled(self, X: NDArray[np.float64]) -> NDArray[np.float64]:
        logarithmic = np.array([s == "log" for s in self._scales])
        return np.where(logarithmic, np.log10(np.where(logarithmic, X, 1.0)), X)

    def _unscaled(self, values: Iterable[NDArray[np.float64]]) -> Iterator[NDArray[np.float64]]:
        pairs = zip(values, self._scales, strict=True)
        return (10.0**points if scale == "log" else points for points, scale in pairs)

    def _check_fitted(self) -> None:
        if not hasattr(self, "_ends"):
            raise ValueError("the discretizer is not fitted; call fit(X) first")

    def _checked(self, X: ArrayLike) -> NDArray[np.float64]:
        self._check_fitted()
        X = matrix_of("X", X)
        if X.shape[1] != len(self.bins_):
            raise ValueError(
                f"X has {X.shape[1]} features, the discretizer was fitted to {len(self.bins_)}; "
                "pass the same features"
            )
        return X


def matrix_of(name: str, rows: ArrayLike) -> NDArray[np.float64]:
    """One row of features per context, as an (N, d) float64 array without NaN."""
    array = np.asarray(rows, dtype=np.float64)
    if array.ndim != 2 or not array.shape[1]:
        raise ValueError(f"{name} has shape {array.shape}; pass one row of features per context")
    if np.isnan(array).any():
        row, column = np.argwhere(np.isnan(array))[0]
        raise ValueError(f"{name}[{row}, {column}] is NaN; compute the feature or drop the row")
    return array


def _per_feature(value: Any, d: int, name: str, single: type | tuple[type, ...]) -> tuple[Any, ...]:
    values = (value,) * d if isinstance(value, single) else tuple(value)
    if len(values) != d:
        raise ValueError(f"{name} has {len(values)} entries, X has {d} features; pass {d} or one")
    return values
