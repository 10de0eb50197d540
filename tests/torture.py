"""Signals, forks, threads, limits of memory and threads, and corrupt input, for a stated time.

    python tests/torture.py --minutes 30

Every trial is a process of its own, drawn from a seed: it must end in time, without a crash, with
right answers, and with no other errors than those that name what is wrong. A trial that fails is
printed with the command that repeats it; then the exit status is 1.
"""

from __future__ import annotations

import argparse
import ctypes
import ctypes.util
import faulthandler
import os
import platform
import random
import resource
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import scipy.linalg
from scipy import sparse
from threadpoolctl import threadpool_limits

import roundwise as rw
from roundwise.exceptions import RoundwiseError
from roundwise.machine.threads import set_simd_level, simd_levels
from roundwise.policies import Memory
from roundwise.policies.memory import Observation
from roundwise.solver.express import memo

HANGING = 120  # seconds after which one is killed
NOBODY = 65534
REFUSALS = (RoundwiseError, ValueError, TypeError, np.linalg.LinAlgError, MemoryError)


class Interrupted(Exception):
    """Raised by a handler of signals."""


class Trial:
    """Random systems, and calls that solve them; answers are checked."""

    def __init__(self, seed: int, seconds: float, folder: Path) -> None:
        self.draw, self.rng, self.folder = random.Random(seed), np.random.default_rng(seed), folder
        self.solver = rw.Solver(memory=folder / "memory.sqlite")
        self.systems = [self.system() for _ in range(6)]
        self.factored = [(rw.factor(A), A, b) for A, b in self.systems]
        self.end = time.monotonic() + seconds

    @property
    def goes_on(self) -> bool:
        return time.monotonic() < self.end

    def system(self) -> tuple[Any, np.ndarray]:
        n = int(2 ** self.draw.uniform(0, 8.5))
        A = self.rng.standard_normal((n, n)) + self.draw.choice((0, 0, 3 * n)) * np.eye(n)
        b = self.rng.standard_normal(
            (n, self.draw.choice((1, 1, 5))) if self.draw.random() < 0.3 else n
        )
        kind = self.draw.choice(("dense", "dense", "complex", "sparse", "sparse", "small numbers"))
        if kind == "complex":
            A = A + 1j * self.rng.standard_normal((n, n))
        elif kind == "small numbers":
            A = A * 1e-300
        elif kind == "sparse":
            A = sparse.csr_array(np.where(self.rng.random((n, n)) < 4 / n, A, 0) + 9 * np.eye(n))
            A = A.asformat(self.draw.choice(("csr", "csc", "coo", "bsr")))
        return A, b

    def call(self) -> None:
        """One call of the library; its answer is right, or A is singular."""
        A, b = self.draw.choice(self.systems)
        calls: list[Callable[[], tuple[Any, Any]]] = [
            lambda: (rw.solve(A, b), b),
            lambda: (rw.solve(A, b, full_output=True).x, b),
            lambda: (rw.solve(A, b, policy=self.draw.choice(("fp32", "fp64"))), b),
            lambda: (self.solver.solve(A, b), b),
            lambda: (rw.factor(A).solve(b), b),
        ]
        if self.draw.random() < 0.5:
            F, A, b = self.draw.choice(self.factored)
            calls = [lambda: (F.solve(b), b), lambda: (F.solve(2 * b), 2 * b)]
            calls.append(lambda: (F.refactor(A).solve(b), b))
        elif not np.iscomplexobj(A.data if sparse.issparse(A) else A):
            calls.append(lambda: (rw.lstsq(A, b), b))
        check(A, *self.draw.choice(calls)())


def check(A: Any, x: np.ndarray, b: np.ndarray) -> None:
    with np.errstate(under="ignore"):
        size = abs(A).sum(axis=1).max() * np.abs(x).max(axis=0) + np.abs(b).max(axis=0)
        assert (np.abs(b - A @ x).max(axis=0) <= 1e-12 * size).all(), "a wrong answer"


def interrupts(trial: Trial) -> None:
    """A handler raises, or solves, at any moment."""

    def handle(*_: Any) -> None:
        if trial.draw.random() < 0.2:
            F, A, b = trial.draw.choice(trial.factored)
            check(A, F.solve(b), b)
        elif trial.draw.random() < 0.8:
            raise Interrupted

    signal.signal(signal.SIGALRM, handle)
    while trial.goes_on:
        try:
            signal.setitimer(signal.ITIMER_REAL, 10 ** trial.draw.uniform(-4.5, -2))
            for _ in range(20):
                trial.call()
        except Interrupted:
            pass
    while True:
        try:
            signal.setitimer(signal.ITIMER_REAL, 0)
            break
        except Interrupted:
            pass
    for _ in range(20):
        trial.call()


def in_threads(trial: Trial, meanwhile: Callable[[], None]) -> None:
    """Some threads solve until `meanwhile` is over."""

    def work() -> None:
        while trial.goes_on:
            trial.call()

    with ThreadPoolExecutor(trial.draw.randint(1, 4)) as pool:
        working = [pool.submit(work) for _ in range(4)]
        meanwhile()
        for one in working:
            one.result()


def threads(trial: Trial) -> None:
    in_threads(trial, lambda: None)


def forks(trial: Trial) -> None:
    """Children solve, whatever the threads of their parent were doing in the library.

    Two defects of others spoil a child if a thread was inside SciPy or a BLAS when it was forked:
    - OpenBLAS guards its buffers by a mutex without a handler for forks: a child that was forked
      while a thread held it waits for ever (gdb: `pthread_mutex_lock(alloc_lock)` called by
      `blas_memory_alloc`, `scipy_dtrsv_`, `dgstrf`, with OPENBLAS_NUM_THREADS=1).
    - SciPy's `SuperLUGlobal_dealloc` (seen in 1.17.1) reads the values of a dictionary whose keys
      are the pointers. If a thread was inside SuperLU, the child has the TypeError "an integer is
      required" set from the beginning, and `threading._after_fork` ends in a SystemError.
    Both happen where three threads call `splu` without this library: 9 children of 9 had the
    error, 2 waited for ever. Such children end at once; the others must solve, at least one.
    """
    unraisable: list[str] = []
    sys.unraisablehook = lambda said: unraisable.append(repr(said.exc_value.__cause__))
    matrix, solved = trial.rng.standard_normal((200, 200)), 0

    def fork() -> None:
        nonlocal solved
        while trial.goes_on or not solved:
            child = os.fork()
            if child == 0:
                status = 1
                try:
                    signal.alarm(5)  # ends a child that waits for a BLAS's mutex
                    np.dot(matrix, matrix)
                    scipy.linalg.blas.dgemm(1.0, matrix, matrix)
                    signal.alarm(0)
                    if any("an integer is required" in text for text in unraisable):
                        os.kill(os.getpid(), signal.SIGALRM)
                    assert not unraisable, unraisable
                    faulthandler.dump_traceback_later(HANGING // 4, exit=True)
                    for _ in range(10):
                        trial.call()
                    status = 0
                except BaseException:
                    traceback.print_exc()
                finally:
                    os._exit(status)
            status = os.waitpid(child, 0)[1]
            spoilt = os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGALRM
            assert spoilt or status == 0, "a child failed"
            solved += not spoilt

    in_threads(trial, fork)


def changing_limits(trial: Trial) -> None:
    """Numbers of threads, affinity and instruction sets change while threads solve."""
    cores, levels = sorted(os.sched_getaffinity(0)), simd_levels()

    def change() -> None:
        while trial.goes_on:
            what = trial.draw.randrange(4)
            if what == 0:
                rw.set_num_threads(trial.draw.randint(1, 4))
            elif what == 1:
                set_simd_level(trial.draw.choice(levels))
            elif what == 2:
                some = trial.draw.sample(cores, trial.draw.randint(1, len(cores)))
                os.sched_setaffinity(0, some)
            else:
                with threadpool_limits(trial.draw.randint(1, 3)):
                    trial.call()

    in_threads(trial, change)


def rounding_modes(trial: Trial) -> None:
    """The caller rounds in other directions: answers have the bits of those to nearest."""
    libm = ctypes.CDLL(ctypes.util.find_library("m"))
    directions = (0x400, 0x800, 0xC00) if platform.machine() == "x86_64" else (0,)
    while trial.goes_on:
        A, b = trial.draw.choice(trial.systems)
        if trial.draw.random() < 0.3:
            memo.clear()
        call = trial.draw.choice(
            (rw.solve, lambda A, b: rw.factor(A).solve(b), lambda A, b: rw.Solver().solve(A, b))
        )
        libm.fesetround(trial.draw.choice(directions))
        x = call(A, b)
        libm.fesetround(0)
        check(A, x, b)
        np.testing.assert_array_equal(x, call(A, b))


def little_memory(trial: Trial) -> None:
    """Allocations fail here and there; what succeeds is right, and so is all that follows."""
    for module in (np.linalg, scipy.linalg):  # OpenBLAS ends the process if it gets no memory
        module.solve(trial.rng.standard_normal((500, 500)), np.ones((500, 50)))
    before = resource.getrlimit(resource.RLIMIT_AS)
    while trial.goes_on:
        used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        limit = used + int(2 ** trial.draw.uniform(10, 25))
        try:
            resource.setrlimit(resource.RLIMIT_AS, (limit, before[1]))
            for _ in range(5):
                trial.call()
        except MemoryError:
            pass
        finally:
            resource.setrlimit(resource.RLIMIT_AS, before)
        trial.call()


def no_threads(trial: Trial) -> None:
    """The system refuses to start a thread."""
    trial.solver.solve(np.eye(2), np.ones(2))
    resource.setrlimit(resource.RLIMIT_NPROC, (0, 0))
    if os.getuid() == 0:  # whom the limit does not concern
        for path in (trial.folder, *trial.folder.iterdir()):
            os.chown(path, NOBODY, NOBODY)
        os.setgid(NOBODY)
        os.setuid(NOBODY)
    try:
        threading.Thread(target=int).start()
    except RuntimeError:
        pass
    else:
        raise AssertionError("threads can be started: the trial tries nothing")
    while trial.goes_on:
        trial.call()


def corrupt_sparse(trial: Trial) -> None:
    """Indices, pointers and types of sparse matrices are overwritten at random."""
    while trial.goes_on:
        n = trial.draw.randint(1, 60)
        A = sparse.random_array((n, n), density=0.2, rng=trial.rng) + sparse.eye_array(n) * 5
        A = A.asformat(trial.draw.choice(("csr", "csc", "coo", "bsr", "dia", "lil")))
        for name in ("indices", "indptr", "data", "coords", "offsets", "rows"):
            array = getattr(A, name, None)
            array = trial.draw.choice(array) if isinstance(array, tuple) else array
            if array is None or not array.size or trial.draw.random() < 0.5:
                continue
            number = trial.draw.choice((-1, n, 2**31 - 1, -(2**31), trial.draw.randint(0, n)))
            if array.dtype == object:
                array[trial.draw.randrange(len(array))] = [number]
            elif trial.draw.random() < 0.7:
                array.flat[trial.draw.randrange(array.size)] = number
            elif name != "coords":
                setattr(A, name, array[: trial.draw.randint(0, len(array))])
        if A.format in ("csr", "csc") and trial.draw.random() < 0.3:
            A.has_canonical_format = True
        b = trial.rng.standard_normal(n)
        calls = [rw.solve, rw.lstsq, trial.solver.solve, lambda A, b: rw.factor(A).solve(b)]
        calls += [lambda A, b: rw.LinearSystem(A, b), lambda A, b: rw.solve(np.eye(len(b)), A)]
        with suppress(*REFUSALS):
            trial.draw.choice(calls)(A, b)


def corrupt_files(trial: Trial) -> None:
    """The file of a solver's memory is damaged."""
    path = trial.folder / "other.sqlite"
    memory = Memory(path)
    memory.add(Observation(f"cell {k}", "fp32", 1, 1.0, 1.0, 0.5) for k in range(200))
    memory.close()
    good = path.read_bytes()
    while trial.goes_on:
        bad = bytearray(good[: trial.draw.choice((len(good), trial.draw.randrange(len(good))))])
        for _ in range(trial.draw.randrange(30) if bad else 0):
            bad[trial.draw.randrange(len(bad))] = trial.draw.randrange(256)
        path.write_bytes(bad)
        try:
            solver = rw.Solver(memory=path)
            for A, b in trial.systems:
                check(A, solver.solve(A, b), b)
        except RoundwiseError:
            pass
        for file in trial.folder.glob("other.sqlite*"):
            file.unlink()


TRIALS = {
    trial.__name__: trial
    for trial in (
        interrupts,
        threads,
        forks,
        changing_limits,
        rounding_modes,
        little_memory,
        no_threads,
        corrupt_sparse,
        corrupt_files,
    )
}


def run_one(kind: str, seed: int, seconds: float) -> None:
    faulthandler.enable()
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        TRIALS[kind](Trial(seed, seconds, Path(folder)))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=8.0, help="of a trial")
    parser.add_argument("--one", choices=TRIALS, help="one trial with this seed, in this process")
    given = parser.parse_args()
    if given.one:
        run_one(given.one, given.seed, given.seconds)
        return 0
    end, failures, done = time.monotonic() + 60 * given.minutes, 0, 0
    while time.monotonic() < end:
        kind, seed = list(TRIALS)[done % len(TRIALS)], given.seed + done
        count = str(1 + seed % 3)
        command = [sys.executable, __file__, "--one", kind, "--seed", str(seed)]
        command += ["--seconds", str(given.seconds)]
        try:
            run = subprocess.run(
                command,
                capture_output=True,
                text=True,
                timeout=HANGING,
                check=False,
                env=os.environ | {"ROUNDWISE_NUM_THREADS": count, "OPENBLAS_NUM_THREADS": "1"},
            )
            failed, said = run.returncode != 0, run.stderr
        except subprocess.TimeoutExpired as hung:
            failed, said = True, f"hangs: {hung.stderr or b''!r}"
        done += 1
        if failed:
            failures += 1
            print(f"ROUNDWISE_NUM_THREADS={count} {' '.join(command)}\n{said[-3000:]}", flush=True)
    print(f"{done} trials, {failures} failed")
    return int(failures > 0)


if __name__ == "__main__":
    sys.exit(main())
