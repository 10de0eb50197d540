"""x in the kind that the caller has b in: NumPy's subclasses, sparse, pandas, torch, jax."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
from scipy import sparse


def returned(answer: Any, A: Any, b: Any) -> Any:
    """An array in the kind of b; NumPy's if that has no convention."""
    if not isinstance(answer, np.ndarray):
        return answer
    if sparse.issparse(b):
        several = sparse.issparse(A) and b.ndim == 2 and b.shape[1] > 1
        return type(b)(answer) if several else answer  # as spsolve does it
    if isinstance(b, np.ndarray):
        return b.__array_wrap__(answer)
    root = type(b).__module__.partition(".")[0]
    if root == "pandas":
        return _labelled(answer, A, b)
    if hasattr(b, "__dlpack__"):
        namespace = getattr(b, "__array_namespace__", None)
        module = sys.modules.get(root) if namespace is None else namespace()
        if hasattr(module, "from_dlpack"):
            return module.from_dlpack(answer)  # type: ignore[union-attr]
    return answer


def _labelled(x: Any, A: Any, b: Any) -> Any:
    """A Series or DataFrame: its rows are A's columns, where these have names, or rows as b has."""
    rows = A.columns if hasattr(A, "columns") else b.index if len(b) == len(x) else None
    if b.ndim == 1:
        return type(b)(x, index=rows, name=b.name)
    return type(b)(x, index=rows, columns=b.columns)
