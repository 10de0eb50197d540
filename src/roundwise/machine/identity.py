"""The machine that native results and times belong to."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import platform
import re
import subprocess
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from roundwise.machine import blas as loaded_blas
from roundwise.machine.threads import get_num_threads, get_simd_level, usable_cores


@dataclass(frozen=True)
class Machine:
    """A processor, its BLAS, and how many threads use them.

    Parameters
    ----------
    cpu : str
    cores, threads : int
        Physical cores, and threads of our kernels.
    blas : str
    blas_threads : int, optional
        None where that is not known.
    simd : str
        The instruction set.

    Examples
    --------
    >>> from roundwise.machine import Machine
    >>> Machine.this() == Machine.this()
    True
    """

    cpu: str  # the processor's model
    cores: int  # logical ones that the process may use
    threads: int  # of our kernels; see `roundwise.set_num_threads`
    blas: str  # SciPy's, with its version and, if it is the wheel's OpenBLAS, its build
    blas_threads: int | None  # None where the BLAS cannot be asked
    simd: str  # the instruction set of our kernels

    @classmethod
    def this(cls) -> Machine:
        """The machine that this process runs on, with its present threads and instructions.

        Takes a few microseconds: ask before each solve, as threads may have been set since.
        """
        blas, blas_threads = loaded_blas.name_and_threads()
        return _machine(usable_cores(), get_num_threads(), blas, blas_threads, get_simd_level())

    @property
    def key(self) -> str:
        """A short name, different for machines that differ in anything; fit for a file name."""
        return _key(self)

    def __str__(self) -> str:
        blas_threads = "unknown" if self.blas_threads is None else str(self.blas_threads)
        return (
            f"{self.cpu}, {self.cores} cores, {self.threads} threads, {self.simd} kernels; "
            f"{self.blas}, {blas_threads} threads"
        )

    def to_dict(self) -> dict[str, Any]:
        """For JSON; `from_dict` reads it."""
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, saved: Any) -> Machine:
        try:
            return cls(**saved)
        except TypeError as error:
            raise ValueError(f"not a saved machine ({error}); save it again") from error

    def differences(self, other: Machine) -> dict[str, tuple[Any, Any]]:
        """The fields that differ, by name: the value here and the other's."""
        mine, theirs = self.to_dict(), other.to_dict()
        return {name: (mine[name], theirs[name]) for name in mine if mine[name] != theirs[name]}


@dataclass(frozen=True)
class GpuMachine(Machine):
    """A machine whose GPU does the work: also named by that, its driver and libraries."""

    gpu: str  # the device's name
    versions: str  # of the driver, the CUDA runtime, CuPy and the libraries

    @classmethod
    def of(cls, gpu: str, versions: str) -> GpuMachine:
        """The machine at hand with a GPU."""
        return cls(**Machine.this().to_dict(), gpu=gpu, versions=versions)

    @property
    def key(self) -> str:
        return _gpu_key(self)

    def differences(self, other: Machine) -> dict[str, tuple[Any, Any]]:
        """Differences of the GPU and its libraries: the processor hardly matters there."""
        found = super().differences(other)
        return {name: found[name] for name in ("gpu", "versions") if name in found}

    def __str__(self) -> str:
        return f"{self.gpu} ({self.versions}); {super().__str__()}"


@cache
def _machine(cores: int, threads: int, blas: str, blas_threads: int | None, simd: str) -> Machine:
    return Machine(cpu_model(), cores, threads, blas, blas_threads, simd)


@cache
def _key(machine: Machine) -> str:
    return f"{_slug(machine.cpu)}-{machine.threads}t-{_digest(machine.to_dict())}"


@cache
def _gpu_key(machine: GpuMachine) -> str:
    return f"{_slug(machine.gpu)}-{_digest({'gpu': machine.gpu, 'versions': machine.versions})}"


def _slug(model: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", model.lower()).strip("-")[:40].strip("-")


def _digest(facts: dict[str, Any]) -> str:
    text = json.dumps(facts, sort_keys=True)
    return hashlib.blake2b(text.encode(), digest_size=4).hexdigest()


@cache
def cpu_model() -> str:
    """The processor's model, as the system names it."""
    asked = _from_cpuinfo(Path("/proc/cpuinfo")) or _from_sysctl()
    return asked or platform.processor() or platform.machine() or "unknown processor"


def _from_cpuinfo(path: Path) -> str:
    """The first of Linux's list; a virtual machine may shorten the name, but not the family."""
    try:
        first = path.read_text(errors="replace").split("\n\n")[0]
    except OSError:
        return ""
    pairs = (line.partition(":") for line in first.splitlines())
    facts = {name.strip(): value.strip() for name, _, value in pairs}
    if "CPU part" in facts:  # ARM gives no name at all
        return f"ARM implementer {facts.get('CPU implementer')}, part {facts['CPU part']}"
    name, family = facts.get("model name", ""), facts.get("cpu family")
    return f"{name} (family {family}, model {facts.get('model')})" if name and family else name


def _from_sysctl() -> str:
    if platform.system() != "Darwin":
        return ""
    asked = ["/usr/sbin/sysctl", "-n", "machdep.cpu.brand_string"]
    return subprocess.run(asked, capture_output=True, text=True, check=False).stdout.strip()
