"""Record what drawn calls return, to compare with after a change: bits, actions, errors, warnings.

``python benchmarks/record_calls.py --out before.jsonl``, then, with the changed code,
``python benchmarks/record_calls.py --compare before.jsonl``. Every call runs twice, plain and with
`full_output`. Prices that come with the package decide, on one thread, so that only the machine's
kind and the installed engines matter. What differs is run once more: calls whose answer depends on
measured seconds are listed apart.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import tempfile
import warnings
from collections import defaultdict
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from drawn_calls import Call, backward_error, draw, prepare
from scipy import sparse

import roundwise as rw
from roundwise.backends.engines import ENGINES

LARGE_EVERY, LARGE = 10, 1500
"""Every tenth call may have up to 1500 unknowns, the others up to 300."""

REFUSALS = (rw.RoundwiseError, np.linalg.LinAlgError, ValueError, TypeError, OverflowError)
Fields = dict[str, Any]


def digest(*arrays: Any) -> str:
    found = hashlib.sha256()
    for a in arrays:
        parts = (sparse.csr_array(a).data,) if sparse.issparse(a) else (a,)
        for part in parts:
            found.update(np.ascontiguousarray(part).tobytes())
    return found.hexdigest()[:16]


def observe(call: Call, full_output: bool) -> Fields:
    """What one call returns, raises and warns of."""
    seen: Fields = {"kind": "", "status": "", "action": "", "bits": "", "error": None}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            result = prepare(call)(call.A, full_output)
        except REFUSALS as refusal:
            result = None
            seen["status"] = f"{type(refusal).__name__}: {refusal}"
    if result is not None:
        x = result.x if full_output else result
        seen["kind"] = " ".join(
            [type(result).__name__, type(x).__name__, str(x.dtype), str(x.shape)]
        )
        seen["bits"], seen["error"] = digest(x), float(f"{backward_error(call, x):.2g}")
        if full_output:
            parts = result.parts.ravel() if hasattr(result, "parts") else [result]
            seen["status"] = result.status
            seen["action"] = ", ".join(sorted({one.action for one in parts}))
    seen["warnings"] = sorted({f"{one.category.__name__}: {one.message}" for one in caught})
    return seen


def record(call: Call) -> Fields:
    given = {"line": call.line, "call": str(call), "input": digest(call.A, call.b)}
    return given | {"plain": observe(call, False), "full": observe(call, True)}


def difference(old: Fields, new: Fields) -> str | None:
    """The gravest difference between two records of a call; None if there is none."""
    if old["input"] != new["input"]:
        return "the drawn system differs"
    both = [(old[way], new[way]) for way in ("plain", "full")]
    for name, fields in {
        "status, exception or kind": ("status", "kind"),
        "warnings": ("warnings",),
        "action": ("action",),
        "bits": ("bits",),
    }.items():
        if any(a[field] != b[field] for a, b in both for field in fields):
            return f"{name} differ"
    return None


def told(old: Fields, new: Fields) -> str:
    """The fields that differ, in one line."""
    found = [
        f"{name}: {old[name]} -> {new[name]}"
        for name in ("status", "kind", "warnings", "action", "bits", "error")
        if old[name] != new[name]
    ]
    return "; ".join(found) or "same"


def compare(old: dict[str, Fields], new: dict[str, Fields], most: int) -> None:
    groups: dict[str, list[str]] = defaultdict(list)
    for line, now in new.items():
        before = old.get(line)
        name = "not in the old record" if before is None else difference(before, now)
        if name is None:
            continue
        if before is None:
            groups[name].append(f"  {line} {now['call']}")
            continue
        again = record(eval(line, {"draw": draw}))
        if difference(now, again) is not None:
            name = "not repeatable (measured seconds decide)"
        text = [f"{way}: {told(before[way], now[way])}" for way in ("plain", "full")]
        groups[name].append(f"  {line} {now['call']}\n      " + "\n      ".join(text))
    for name, lines in sorted(groups.items()):
        print(f"\n{name}: {len(lines)}")
        print(*lines[:most], sep="\n")
        if len(lines) > most:
            print(f"  ... and {len(lines) - most} more (--most)")
    print(f"\n{len(new)} calls, {sum(map(len, groups.values()))} differ")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--calls", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path("out/calls.jsonl"))
    parser.add_argument("--compare", type=Path, metavar="OLD.jsonl", help="print what differs")
    parser.add_argument("--most", type=int, default=20, help="lines to print of each group")
    parser.add_argument("--line", help="observe one call only, for example 'draw(0, 17, 300)'")
    options = parser.parse_args()
    rw.set_num_threads(options.threads)
    with tempfile.TemporaryDirectory() as empty:  # no prices of this user
        os.environ["ROUNDWISE_CACHE"] = empty
        if options.line:
            print(json.dumps(record(eval(options.line, {"draw": draw})), indent=1))
            return
        records = recorded(options)
        if options.compare:
            compare(read(options.compare), records, options.most)


def recorded(options: argparse.Namespace) -> dict[str, Fields]:
    machine = {
        "threads": options.threads,
        "simd": rw.machine.threads.get_simd_level(),
        "engines": sorted(ENGINES),
    }
    machine |= {name: version(name) for name in ("numpy", "scipy")}
    options.out.parent.mkdir(exist_ok=True)
    records: dict[str, Fields] = {}
    with options.out.open("w") as file:
        print(json.dumps({"machine": machine}), file=file)
        for number in range(options.calls):
            largest = LARGE if number % LARGE_EVERY == 0 else 300
            one = record(draw(options.seed, number, largest))
            records[one["line"]] = one
            print(json.dumps(one), file=file, flush=True)
    print(f"{len(records)} calls recorded in {options.out}")
    return records


def read(path: Path) -> dict[str, Fields]:
    machine, *rows = (json.loads(line) for line in path.read_text().splitlines())
    print(f"{path}: {machine['machine']}")
    return {row["line"]: row for row in rows}


if __name__ == "__main__":
    main()
