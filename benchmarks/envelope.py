"""How near drawn calls come to the best call that a user could have made instead: `make envelope`.

Ratios are the best peer's time over ours, both medians of calls in turns, without pauses. Peers
know what the call tells us: a band that is not told of competes with general routines only. Calls
in which the slower takes less than 0.2 ms are compared by their difference. A draw below
BOUND is timed again with more turns. ``--after``, ``--beside-load``, ``--first-call`` and
``--joblib`` compare under conditions that programs meet. With ``--within`` a run ends after some
seconds, and the same command goes on from there, so that others may have the machine meanwhile.
``--least`` takes the least times in place of medians: all that tells something beside other work.
"""

from __future__ import annotations

import argparse
import importlib
import itertools
import json
import math
import random
import statistics
import subprocess
import sys
import time
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from functools import cache, lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import scipy.linalg as la
from drawn_calls import BANDS, SINGLE, Call, backward_error, draw, prepare
from scipy import sparse
from scipy.sparse import linalg as sla

import roundwise as rw
from roundwise.machine.identity import Machine
from roundwise.machine.threads import usable_cores

Row = dict[str, Any]
Thunk = Callable[[], Any]
Solve = Callable[[Any], Any]

BOUND, TURNS, MORE_TURNS = 0.9, 7, 31
"""A draw below BOUND is timed again with more turns, as far as ``--longest`` permits."""
BOUNDS = (0.9, 0.8, 0.7)
"""The report counts the draws below each of them."""
SHORT = 2e-4
"""Seconds: shorter calls are compared by differences."""
DENSE_UP_TO = 2000
"""Sparse systems of at most this order are also solved by NumPy, as dense ones."""
REFUSALS = (np.linalg.LinAlgError, ValueError, TypeError, RuntimeError)
DEVICE = "cpu"  # where the arrays are: ``--device``
typical: Callable[[list[float]], float] = statistics.median  # or the least: ``--least``
OURS, AGAIN = "roundwise", "the first peer again"
ORDERS = random.Random(0)  # goes on from draw to draw: one fixed order would favour somebody


def envelope_device() -> Any:
    """The module that knows the GPU, which few have."""
    return importlib.import_module("envelope_device")


def groups(call: Call) -> list[str]:
    """The rows of the report that a call counts in."""
    if "accuracy" in call.options:
        return ["accuracy='forward'"]
    few, traits = call.k <= 32, [f"{call.kind}, full_output"] * call.full_output
    if call.entry == "factor":
        return [f"F.solve, k {'<' if 4 * call.k < call.n else '>='} n/4", *traits]
    if call.entry != "solve":
        return [call.entry, *traits]
    if few:
        traits += ["solve, k <= 32"]
        traits += ["solve, k <= 32, float32"] * (call.dtype == "float32")
        double = call.dtype in ("float64", "complex128") and call.n >= 300
        traits += ["solve, k <= 32, double, n >= 300"] * double
        traits += ["solve, k <= 32, complex"] * call.dtype.startswith("complex")
    if call.kind == "sparse":
        return ["sparse", *traits]
    if call.told in BANDS or str(call.told).endswith("triangular"):
        return [f"told {'bands' if call.told in BANDS else 'triangles'}", *traits]
    if not few:
        return [f"k > 32, n {'>=' if call.n >= 1000 else '<'} 1000", *traits]
    if call.kind == "dense" and call.family in (*BANDS, "triangular", "permuted"):
        return ["dense, structure not told", *traits]
    return ["stacks" if call.kind == "stack" else "dense", *traits]


def contenders(call: Call) -> dict[str, Thunk]:
    """Our call and those of the peers. Of a sequence of matrices, each call takes the next."""
    if DEVICE == "cuda":
        return envelope_device().contenders(call, OURS)
    ours = prepare(call)

    def of_next(solve: Solve) -> Thunk:
        matrices = itertools.cycle(call.sequence)
        return lambda: solve(next(matrices))

    found = {OURS: of_next(lambda A: ours(A, call.full_output))}
    return found | {name: of_next(solve) for name, solve in peers(call).items()}


def peers(call: Call) -> dict[str, Solve]:
    """Functions of A. Factors for many solves are made by the first call, which is not timed."""
    b, meant = call.b, call.meant
    if call.entry == "lstsq":
        return {
            "numpy.linalg.lstsq": lambda A: np.linalg.lstsq(A, b)[0],
            "scipy.linalg.lstsq": lambda A: la.lstsq(A, b)[0],
            "scipy.linalg.lstsq, gelsy": lambda A: la.lstsq(A, b, lapack_driver="gelsy")[0],
        }
    if call.kind == "sparse":
        found = _sparse_peers(call)
    elif call.entry == "factor":
        lu, trans = made(call, la.lu_factor), "NTH".index(call.trans)
        found = {"lu_solve": lambda A: la.lu_solve(lu(A), b, trans)}
    else:
        found = {"numpy.linalg.solve": lambda A: np.linalg.solve(meant(A), b)}
        found["scipy.linalg.solve"] = lambda A: la.solve(meant(A), b)
        if call.kind == "dense" and find_spec("torch"):
            found["torch.linalg.solve"] = _torch_solve(call)
    if call.entry == "Solver" and not call.options.get("transposed"):
        F = cache(lambda: rw.factor(call.A, **call.options))
        found["F.refactor(A).solve(b)"] = lambda A: F().refactor(A).solve(b)
    return found | _told_peers(call)


def made(call: Call, make: Solve) -> Solve:
    """The function itself; for factors what it makes of A, once."""
    first = cache(lambda: make(call.A))
    return (lambda A: first()) if call.entry == "factor" else make


def _told_peers(call: Call) -> dict[str, Solve]:
    """Those for a structure that the caller tells."""
    b, told, lower = call.b, str(call.told), call.told == "lower triangular"
    found: dict[str, Solve] = {}
    if call.told in (None, "general") or call.kind == "stack":
        return found
    if told in BANDS:
        width = {"diagonal": 0, "tridiagonal": 1}.get(told, 2 + int(6 * call.variant))
        width = min(width, call.n - 1)
        band = made(call, lambda A: _band(A, width))
        found["solve_banded"] = lambda A: la.solve_banded((width, width), band(A), b)
    if call.kind == "sparse":
        if told.endswith("triangular"):
            found["spsolve_triangular"] = lambda A: sla.spsolve_triangular(A.tocsr(), b, lower)
        return found
    if told.endswith("triangular"):
        found["solve_triangular"] = lambda A: la.solve_triangular(A, b, lower=lower)
    elif told == "positive definite":
        factors = made(call, la.cho_factor)
        found["cho_solve"] = lambda A: la.cho_solve(factors(A), b)
    if call.entry != "factor":
        found["scipy.linalg.solve, told"] = lambda A: la.solve(A, b, assume_a=told)
    return found


def _band(A: Any, width: int) -> Any:
    """The diagonals of a dense or sparse A, as `scipy.linalg.solve_banded` takes them."""
    n = A.shape[0]
    band = np.zeros((2 * width + 1, n), dtype=A.dtype)
    for d in range(-width, width + 1):
        band[width - d, max(d, 0) : n + min(d, 0)] = A.diagonal(d)
    return band


def _sparse_peers(call: Call) -> dict[str, Solve]:
    """SuperLU, and KLU and PARDISO where they are installed; NumPy for systems of moderate size."""
    b, transposed = call.b, call.options.get("transposed")
    trans = "T" if transposed else call.trans
    lu, klu = made(call, lambda A: sla.splu(_csc(A))), made(call, _klu)
    found: dict[str, Solve] = {"splu": lambda A: lu(A).solve(b, trans)}
    if call.told in ("symmetric", "hermitian", "positive definite"):
        options: dict[str, Any] = {"permc_spec": "MMD_AT_PLUS_A", "diag_pivot_thresh": 0.0}
        options["options"] = {"SymmetricMode": True}
        symmetric = made(call, lambda A: sla.splu(_csc(A), **options))
        found["splu, symmetric"] = lambda A: symmetric(A).solve(b)
    if call.dtype == "float64" and trans == "N" and find_spec("PyKLU"):
        found["KLU"] = lambda A: klu(A).solve(b)
    if call.entry == "factor":
        solve = made(call, lambda A: sla.factorized(_csc(A)))
        return found | ({"factorized": lambda A: solve(A)(b)} if trans == "N" else {})
    found = {"spsolve": lambda A: sla.spsolve(call.meant(A).tocsc(), b)} | found
    if call.n <= DENSE_UP_TO:
        found["numpy.linalg.solve"] = lambda A: np.linalg.solve(call.meant(A).toarray(), b)
    if call.dtype == "float64" and find_spec("pypardiso"):
        from pypardiso import spsolve

        found["pypardiso"] = lambda A: spsolve(sparse.csr_matrix(call.meant(A)), b)
    return found


def _csc(A: Any) -> Any:
    return A.tocsc().astype(np.result_type(A.dtype, np.float32), copy=False)


def _klu(A: Any) -> Any:
    from PyKLU import Klu

    A = A.tocsc()
    parts = A.data, A.indices.astype(np.int32, copy=False), A.indptr.astype(np.int32, copy=False)
    return Klu(sparse.csc_matrix(parts, shape=A.shape))


def _torch_solve(call: Call) -> Solve:
    import torch  # it takes seconds, and is seldom there

    b = torch.from_numpy(call.b)
    return lambda A: torch.linalg.solve(torch.from_numpy(call.meant(A)), b).numpy()


def is_answer(call: Call, x: Any) -> bool:
    """Whether a peer's x counts: any backward stable method's does."""
    u = 2.0**-24 if call.dtype in SINGLE else 2.0**-53
    return backward_error(call, x, wide=False) <= 1000 * u * np.sqrt(call.n)


def usable(call: Call) -> dict[str, Thunk]:
    """The contenders, warm; without peers that refuse, or whose answers are no answers.

    None is left if we refuse, which is told, or if all peers do.
    """
    try:
        found = contenders(call)
        found[OURS]()
    except REFUSALS as refusal:
        print(f"refused: {call.line} {call}: {refusal}")
        return {}
    for name in list(found)[1:]:
        try:
            x = found[name]()  # a cycle's first is A
            good = is_answer(call, x if DEVICE == "cpu" else envelope_device().on_host(x))
            for _ in call.sequence[1:]:
                found[name]()  # a drifted matrix may store fewer entries, which `refactor` refuses
        except REFUSALS:
            good = False
        if not good:
            del found[name]
    return found if len(found) > 1 else {}


def in_turns(
    calls: dict[str, Thunk], turns: int, before: Thunk | None = None
) -> dict[str, list[float]]:
    """The seconds of each call.

    Every turn has an order of its own, so that nobody always follows the same contender, whose
    threads and cache lines it would find.
    """
    found: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(turns):
        for name in ORDERS.sample(list(calls), len(calls)):
            if before is not None:
                before()
            start = time.perf_counter()
            calls[name]()
            found[name].append(time.perf_counter() - start)
    return found


def measured(call: Call, before: Thunk | None, longest: float) -> dict[str, float]:
    """Median seconds of the contenders, and of the first peer once more, as a control."""
    calls = usable(call)
    if not calls:
        return {}
    calls[AGAIN] = calls[list(calls)[1]]
    one_round = sum(times[0] for times in in_turns(calls, 1, before).values())
    most = max(3, min(MORE_TURNS, int(longest / one_round)))
    seconds: dict[str, float] = {}
    for turns in (most if one_round < 0.01 else min(TURNS, most), most):
        times = in_turns(calls, turns, before)
        seconds = {name: typical(taken) for name, taken in times.items()}
        if ratio(seconds) >= BOUND:
            break
    return seconds


def ratio(seconds: dict[str, float]) -> float:
    return best(seconds)[1] / seconds[OURS]


def best(seconds: dict[str, float]) -> tuple[str, float]:
    """The fastest peer and its time."""
    others = {name: taken for name, taken in seconds.items() if name not in (OURS, AGAIN)}
    return min(others.items(), key=lambda one: one[1])


@lru_cache(maxsize=1)
def drawn(line: str) -> dict[str, Thunk]:
    """The contenders, with their arrays made."""
    return contenders(eval(line, {"draw": draw}))


def median_in_worker(line: str, name: str, turns: int = 3) -> float:
    warnings.simplefilter("ignore")
    call = drawn(line)[name]
    call()
    return statistics.median(in_turns({name: call}, turns)[name])


def by_joblib(call: Call, prefer: str) -> dict[str, float]:
    """As many calls at the same time as there are cores: the mean of their medians."""
    from envelope import median_in_worker  # not of __main__, which processes do not have
    from joblib import Parallel, delayed

    cores, seconds = usable_cores(), defaultdict(list)
    with Parallel(n_jobs=cores, prefer=prefer) as pool:
        for _, name in itertools.product(range(3), usable(call)):
            found = pool([delayed(median_in_worker)(call.line, name) for _ in range(cores)])
            seconds[name].append(statistics.mean(found))
    return {name: statistics.median(taken) for name, taken in seconds.items()}


def first_calls(calls: list[Call]) -> Iterator[tuple[Call, list[str], dict[str, float]]]:
    """Each contender in processes of its own: their first calls, and the first calls of a size."""
    names = {call.line: tuple(usable(call)) for call in calls}
    taken: dict[str, dict[str, list[float]]] = {line: defaultdict(list) for line in names}
    contending = dict.fromkeys(itertools.chain(*names.values()))
    for _, name in itertools.product(range(3), contending):
        lines = [line for line in names if name in names[line]]
        command = [sys.executable, __file__, "--child", name, *lines]
        told = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        for line, seconds in zip(lines, json.loads(told), strict=True):
            taken[line][name].append(seconds)
    for place, call in enumerate(calls):
        seconds = {name: statistics.median(one) for name, one in taken[call.line].items()}
        yield call, ["first of a size" if place else "first of a process", *groups(call)], seconds


@contextmanager
def busy_cores() -> Iterator[None]:
    """One busy process for each core, meanwhile."""
    spin = [sys.executable, "-c", "while True: pass"]
    busy = [subprocess.Popen(spin) for _ in range(usable_cores())]
    try:
        yield
    finally:
        for process in busy:
            process.kill()
            process.wait()


def product_of(library: str) -> Thunk:
    """A product of matrices that wakes the library's threads."""
    M = np.ones((400, 400))
    if library == "numpy":
        return lambda: M @ M
    import torch

    T = torch.from_numpy(M)
    return lambda: T @ T


def chosen(call: Call) -> str:
    """The action, or the several of a stack."""
    call = call if DEVICE == "cpu" else envelope_device().moved(call)
    solution = prepare(call)(call.A, True)
    parts = solution.parts.ravel() if hasattr(solution, "parts") else [solution]
    return ", ".join(sorted({one.action for one in parts}))


def selected(options: argparse.Namespace) -> Iterator[Call]:
    """The calls to time; those of singular matrices are no contest."""
    if options.line:
        yield eval(options.line, {"draw": draw})
        return
    found = 0
    for number in itertools.count(options.first):
        call = draw(options.seed, number, options.largest)
        fits = options.only is None or options.only in f"{groups(call)} {call}"
        fits &= not options.first_call or call.entry in ("solve", "lstsq")
        if fits and (call.family != "singular" or call.kind == "tall"):
            yield call
            found += 1
        if found == options.draws:
            return


def rows(
    options: argparse.Namespace, calls: Iterator[Call]
) -> Iterator[tuple[Call, list[str], dict[str, float]]]:
    while options.first_call and (some := list(itertools.islice(calls, 4))):
        yield from first_calls(some)
    before = product_of(options.after) if options.after else None
    for call in calls:
        if options.joblib:
            yield call, groups(call), by_joblib(call, options.joblib)
        else:
            yield call, groups(call), measured(call, before, options.longest)


LONG = ("draws", "median", "worst", "< 0.9", "< 0.8", "< 0.7")
BRIEF = ("draws", "median", "worst")


def summary(found: list[Row]) -> dict[str, Any]:
    """Two tables of rows (a kind of calls, its figures), the control, and the worst calls first.

    Ratios of the calls that take long, and differences in microseconds of the others. The calls
    with ``accuracy="forward"`` stand in their own rows alone.
    """
    long, short = defaultdict(list), defaultdict(list)
    for row in found:
        forward = [name for name in row["groups"] if "forward" in name]
        kinds = forward or ["all", *row["groups"]]
        taken = best(row["seconds"])[1], row["seconds"][OURS]
        for name in kinds:
            if max(taken) >= SHORT:
                long[name].append(row["ratio"])
            else:
                short[name].append(1e6 * (taken[1] - taken[0]))

    def table(kinds: dict[str, list[float]], figures: Callable[[Any], list[float]]) -> list[Any]:
        ordered = sorted(kinds.items(), key=lambda one: (one[0] != "all", one[0]))
        return [[name, len(values), *figures(np.array(values))] for name, values in ordered]

    times = [list(row["seconds"].values()) for row in found if AGAIN in row["seconds"]]
    again = [taken[-1] / taken[1] for taken in times]
    worst = sorted(
        (row for row in found if max(best(row["seconds"])[1], row["seconds"][OURS]) >= SHORT),
        key=lambda row: float(row["ratio"]),
    )
    return {
        "long": table(long, lambda r: [np.median(r), r.min(), *(np.mean(r < x) for x in BOUNDS)]),
        "short": table(short, lambda d: [np.median(d), d.max()]),
        "control": np.quantile(again, [0.05, 0.5, 0.95]).tolist() if again else None,
        "worst": worst,
    }


def report(told: dict[str, Any], worst: int) -> None:
    print(f"\nthe best peer's time over ours:\n{'':36}{''.join(f'{name:>9}' for name in LONG)}")
    for name, draws, median, least, *below in told["long"]:
        shares = "".join(f"{share:9.0%}" for share in below)
        print(f"{name:36}{draws:9}{median:9.2f}{least:9.2f}{shares}")
    print("\ncalls below 0.2 ms, ours minus the best peer's, microseconds:")
    print(f"{'':36}{''.join(f'{name:>9}' for name in BRIEF)}")
    for name, draws, median, most in told["short"]:
        print(f"{name:36}{draws:9}{median:9.1f}{most:9.1f}")
    if told["control"]:
        low, middle, high = told["control"]
        print(
            f"\ncontrol, a peer against itself: {middle:.2f} (5 to 95 %: {low:.2f} to {high:.2f})"
        )
    print("\nthe worst, with the peer's and our milliseconds:")
    for row in told["worst"][:worst]:
        name, taken = best(row["seconds"])
        ours = 1e3 * row["seconds"][OURS]
        print(f"{row['ratio']:6.2f}  {row['line']} {row['call']}: {row['action']}")
        print(f"{'':8}{name} {1e3 * taken:.3g}, ours {ours:.3g}")
    print("\nto time one of them again: python benchmarks/envelope.py --line 'draw(...)'")


def earlier(out: Path, asked: dict[str, str]) -> dict[str, Any]:
    """The record of an earlier run of the same command on this machine; empty if there is none."""
    if not out.exists():
        return {}
    record: dict[str, Any] = json.loads(out.read_text())
    same = record["options"] == asked and record["machine"] == str(Machine.this())
    return record if same else {}


def child(name: str, lines: Iterable[str]) -> None:
    """Time one contender's calls, cold, and print the seconds."""
    calls = [{name: drawn(line)[name]} for line in lines]
    print(json.dumps([in_turns(call, 1)[name][0] for call in calls]))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--draws", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--first", type=int, default=0, help="number of the first draw")
    parser.add_argument("--largest", type=int, default=4000, help="unknowns")
    parser.add_argument("--only", metavar="KIND", help="calls whose group or description has this")
    parser.add_argument("--line", help="one call only, for example 'draw(0, 17, 4000)'")
    parser.add_argument("--worst", type=int, default=20, help="calls to list")
    parser.add_argument("--longest", type=float, default=60.0, help="seconds for one draw")
    parser.add_argument(
        "--within", type=float, metavar="SECONDS", help="stop then; the same command goes on"
    )
    parser.add_argument("--out", type=Path, default=Path("out/envelope.json"))
    parser.add_argument("--least", action="store_true", help="least times in place of medians")
    parser.add_argument("--beside-load", action="store_true", help="a busy process for each core")
    parser.add_argument("--after", choices=["numpy", "torch"], help="just after its products")
    parser.add_argument("--first-call", action="store_true", help="of a process, and of a size")
    parser.add_argument("--joblib", choices=["threads", "processes"], help="in its workers")
    parser.add_argument("--child", nargs="+", help=argparse.SUPPRESS)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu", help="of all arrays")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    global DEVICE, typical
    DEVICE = options.device
    typical = min if options.least else statistics.median
    if options.child:
        child(options.child[0], options.child[1:])
        return
    asked = {name: str(value) for name, value in vars(options).items() if name != "within"}
    before = earlier(options.out, asked) if options.within else {}
    found, done = before.get("rows", []), before.get("done", 0)
    end = time.monotonic() + (options.within or math.inf)

    def calls() -> Iterator[Call]:
        nonlocal done
        for call in itertools.islice(selected(options), done, None):
            if time.monotonic() > end:
                return
            done += 1
            yield call

    with busy_cores() if options.beside_load else nullcontext():
        for call, names, seconds in rows(options, calls()):
            if seconds:
                row: Row = {"line": call.line, "call": str(call), "groups": names}
                row |= {"seconds": seconds, "ratio": ratio(seconds), "action": chosen(call)}
                found.append(row)
                print(f"\r{len(found)} calls", end="", file=sys.stderr, flush=True)
    print(f"\r{Machine.this()}")
    told = summary(found)
    report(told, options.worst)
    options.out.parent.mkdir(exist_ok=True, parents=True)
    record = {"machine": str(Machine.this()), "options": asked, **told, "rows": found, "done": done}
    record["worst"] = told["worst"][: options.worst]
    options.out.write_text(json.dumps(record, indent=1))


if __name__ == "__main__":
    main()
