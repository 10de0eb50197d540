"""Where a solve runs: on the processor, or on the GPU that holds A and b.

Arrays of a GPU are CuPy's, torch's, or of any other package that speaks DLPack; nothing is copied.
The answer is of the kind of b, on the same device. A GPU's stream is the caller's: CuPy's current
one, or torch's for tensors.
"""

from __future__ import annotations

import re
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from scipy import sparse

from roundwise.actions import Action
from roundwise.backends import ENGINES, Backend, get_backend
from roundwise.backends.cuda.cublas import SPACE
from roundwise.backends.cuda.device import DeviceUnavailable, get_device
from roundwise.exceptions import RoundwiseError
from roundwise.formats import FP64
from roundwise.solver.inputs import dense_array, is_on_device


class CaptureError(RoundwiseError, RuntimeError):
    """A solve was asked for on a stream that is being captured for a CUDA graph."""


class DeviceMemoryError(MemoryError, RoundwiseError):
    """The memory of a device does not suffice; the message says what would fit."""


@cache
def backend_of(number: int) -> Backend:
    """The backend of a GPU, by CUDA's number of it."""
    backend: Any = get_backend("cuda")
    if number == 0:
        return backend  # type: ignore[no-any-return]
    with backend.xp.cuda.Device(number):  # kernels are loaded for each
        return type(backend)(type(backend.device)(backend.xp))  # type: ignore[no-any-return]


def is_sparse_on_device(A: Any) -> bool:
    """Whether A is a sparse matrix in the memory of a GPU: CuPy's, or a tensor of torch."""
    if type(A).__module__.startswith("cupyx"):
        return True
    layout = str(getattr(A, "layout", ""))
    return layout.startswith("torch.sparse") and A.device.type == "cuda"


def sparse_place(A: Any, device: Any) -> str:
    """Which engines factorize a sparse A: those on the "cpu", on "cuda", or all ("auto")."""
    if is_sparse_on_device(A):
        if device == "cpu":
            raise TypeError("A is on a GPU, device = 'cpu'; pass A.get() to solve on the CPU")
        return "cuda"
    if device == "auto" or not sparse.issparse(A):
        return "auto" if sparse.issparse(A) else "cpu"
    return "cpu" if _checked_device(device) is None else "cuda"


def on_host(x: Any) -> Any:
    """An array or a sparse matrix as NumPy and SciPy have it; a copy if it is on a GPU."""
    if hasattr(x, "get") and type(x).__module__.startswith("cupy"):
        return x.get()
    layout = str(getattr(x, "layout", ""))
    if not layout.startswith("torch."):
        return x
    if x.requires_grad:
        raise TypeError("A or b requires a gradient; pass A.detach() and b.detach()")
    x = x.cpu()
    if layout in ("torch.sparse_csr", "torch.sparse_csc"):
        is_rows = layout == "torch.sparse_csr"
        pointers = x.crow_indices() if is_rows else x.ccol_indices()
        indices = x.col_indices() if is_rows else x.row_indices()
        make = sparse.csr_array if is_rows else sparse.csc_array
        parts = (part.numpy() for part in (x.values(), indices, pointers))
        return make(tuple(parts), shape=tuple(x.shape))
    if layout == "torch.sparse_coo":
        x = x.coalesce()
        places = tuple(x.indices().numpy())
        return sparse.coo_array((x.values().numpy(), places), shape=tuple(x.shape))
    if layout != "torch.strided":
        raise TypeError(f"A is of {layout}; pass A.to_sparse_csr()")
    return x.numpy()


@contextmanager
def sparse_gpu(A: Any, device: Any) -> Iterator[None]:
    """Compute on the GPU that a sparse A is on, or that `device` names."""
    if not any(engine.runs_on == "cuda" for engine in ENGINES.values()):
        raise DeviceUnavailable(
            "sparse systems on a GPU need cuDSS: pip install 'roundwise[cudss13]' (or cudss12); "
            "leave out device= to solve on the CPU"
        )
    cuda = get_device().xp.cuda
    there = is_sparse_on_device(A) and getattr(A, "data", A).device
    number = (there.id if hasattr(there, "id") else there.index) if there else None
    wanted = _checked_device(device)
    if None not in (number, wanted) and number != wanted:
        raise ValueError(f"A is on GPU {number}, device = {device!r}; move A there")
    with cuda.Device(wanted if number is None else number):
        try:
            yield
        except MemoryError as error:
            raise DeviceMemoryError(
                f"the memory of the GPU does not suffice ({error}); pass policy='fp32', whose "
                "factors take half of it, or leave out device= to solve on the CPU"
            ) from error


def like_given(x: Any, b: Any) -> Any:
    """An answer of the processor where b is, and of its kind."""
    if not is_on_device(b):
        return x
    with sys.modules["cupy"].cuda.Device(int(b.__dlpack_device__()[1])):
        there = sys.modules["cupy"].asarray(x)
    if hasattr(b, "get"):
        return there
    module = sys.modules[type(b).__module__.partition(".")[0]]
    return module.from_dlpack(there)


def place_of(A: Any, b: Any, device: Any) -> Place | None:
    """The GPU to solve on; None for the processor. Operands on two devices are refused.

    `b` may be None: `factor` has none yet.
    """
    if device is None and type(A) is type(b) and is_on_device(A):
        number = int(A.__dlpack_device__()[1])
        if number == int(b.__dlpack_device__()[1]):
            return Place(backend_of(number), number, takes_host=False)
    wanted = _checked_device(device)
    given = {name: x for name, x in (("A", A), ("b", b)) if x is not None}
    there = {name: x for name, x in given.items() if is_on_device(x)}
    if not there:
        return None if wanted is None else Place(backend_of(wanted), wanted, takes_host=True)
    if device == "cpu":
        name = next(iter(there))
        raise TypeError(f"{name} is on a GPU, device = 'cpu'; pass {_as_host(name, there[name])}")
    if wanted is None and len(there) < len(given):
        on_gpu = next(iter(there))
        other = next(name for name in given if name not in there)
        raise TypeError(
            f"{on_gpu} is on a GPU, {other} in the processor's memory; pass "
            f"{_as_device(other, there[on_gpu])}, or {_as_host(on_gpu, there[on_gpu])} to solve on "
            "the CPU"
        )
    numbers = {name: int(x.__dlpack_device__()[1]) for name, x in there.items()}
    if len(set(numbers.values()) | ({wanted} - {None})) > 1:
        said = [f"{name} is on GPU {number}" for name, number in numbers.items()]
        said += [] if wanted is None else [f"device = {device!r}"]
        raise ValueError(f"{', '.join(said)}; move all of them to one GPU")
    number = next(iter(numbers.values()))
    return Place(backend_of(number), number, takes_host=wanted is not None)


def _checked_device(device: Any) -> int | None:
    """The number of the GPU that `device` asks for; None for the processor, or no wish."""
    if device in (None, "cpu", "auto"):
        return None
    found = re.fullmatch(r"cuda(?::(\d+))?", device) if isinstance(device, str) else None
    if found is None:
        raise ValueError(
            f"device = {device!r}; choose 'cpu', 'cuda', 'cuda:1', ..., 'auto', or None"
        )
    return int(found[1] or 0)


def _as_cupy(cuda: Any, stream: Any) -> Any:
    """torch's stream as one of CuPy's; from 14 on that has a protocol, which torch may not know."""
    from_external = getattr(getattr(cuda, "Stream", None), "from_external", None)
    if from_external is not None and hasattr(stream, "__cuda_stream__"):
        return from_external(stream)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return cuda.ExternalStream(stream.cuda_stream)


def _as_host(name: str, x: Any) -> str:
    return f"{name}.get()" if hasattr(x, "get") else f"{name}.cpu()"


def _as_device(name: str, like: Any) -> str:
    return f"cupy.asarray({name})" if hasattr(like, "get") else f"{name} as a tensor on that GPU"


@dataclass(frozen=True, eq=False)
class Place:
    """A GPU, and what may be solved there."""

    backend: Backend
    number: int  # CUDA's
    takes_host: bool  # whether arrays of the processor are copied there and back

    @contextmanager
    def entered(self, *arrays: Any) -> Iterator[None]:
        """Compute there, on the stream of the caller: torch's current one if tensors are given.

        What does not fit into its memory is a `DeviceMemoryError`.
        """
        backend: Any = self.backend
        backend.check_process()
        cuda = backend.xp.cuda
        with cuda.Device(self.number), self._stream(cuda, arrays):
            if cuda.get_current_stream().is_capturing():
                raise CaptureError(
                    "the current stream is being captured for a graph, and a solve reads numbers "
                    "back, which no graph can; solve before the capture, or after it"
                )
            try:
                yield
            except MemoryError as error:
                if isinstance(error, DeviceMemoryError):
                    raise
                raise DeviceMemoryError(
                    f"the memory of GPU {self.number} does not suffice ({error}); free what is not "
                    "needed, pass float32, or solve on the CPU"
                ) from error

    def _stream(self, cuda: Any, arrays: tuple[Any, ...]) -> Any:
        torch = sys.modules.get("torch")
        if torch is not None and any(isinstance(x, torch.Tensor) for x in arrays):
            stream = torch.cuda.current_stream(self.number)
            if stream.cuda_stream:
                return _as_cupy(cuda, stream)
            if cuda.get_current_stream().ptr:  # CuPy's is another one than torch's default
                return cuda.Stream.null
        return nullcontext()

    def array(self, name: str, x: Any) -> Any:
        """An operand as an array there: itself, or the same memory through DLPack."""
        xp = self.backend.xp
        if isinstance(x, xp.ndarray):
            return x
        if is_on_device(x):
            if int(x.__dlpack_device__()[1]) != self.number:
                raise ValueError(
                    f"{name} is on another GPU than {self.number}; move it to that one"
                )
            if getattr(x, "requires_grad", False):
                raise TypeError(f"{name} requires a gradient; pass {name}.detach()")
            return xp.from_dlpack(x)
        if not self.takes_host:
            raise TypeError(
                f"{name} is in the processor's memory, the factored matrix on GPU {self.number}; "
                f"pass cupy.asarray({name})"
            )
        if sparse.issparse(x):
            raise TypeError(
                f"{name} is sparse, and a GPU solves dense systems; pass {name}.toarray(), or "
                "leave out device= to solve on the CPU"
            )
        return xp.asarray(dense_array(name, x, real=False))

    def returned(self, answer: Any, like: Any) -> Any:
        """An answer as the caller has b: NumPy's, CuPy's, torch's."""
        xp = self.backend.xp
        if not is_on_device(like):
            return xp.asnumpy(answer)
        if isinstance(like, xp.ndarray):
            return answer
        module = sys.modules[type(like).__module__.partition(".")[0]]
        return module.from_dlpack(answer)

    @property
    def memory_free(self) -> int:
        """Bytes."""
        return self.backend.device.memory_free  # type: ignore[attr-defined,no-any-return]


def memory_needed(action: Action, n: int) -> float:
    """Bytes that a factorization takes beside A: factors, inverted blocks, split operands."""
    if action.method == "qr":
        return 4 * 8.0 * n * n
    size = 8 if action[0] == FP64 else 4
    copies = 2 if action.method == "lu" else 1.1  # cuSOLVER's workspace
    spaces = 2 * SPACE if action.method.startswith("lu/") else 0  # cuBLAS's
    return copies * size * n * n + 2 * 256 * size * n + 6 * 512 * 2 * 2 * n + spaces


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
