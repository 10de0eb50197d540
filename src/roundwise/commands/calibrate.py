"""``roundwise calibrate``: measure what native arithmetic costs on this machine."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

import click

from roundwise.backends import get_backend
from roundwise.commands import options
from roundwise.commands.outputs import echo, writable_folder
from roundwise.costs.calibration import (
    DEVICE_SIZES,
    QUICK_DEVICE_SIZES,
    QUICK_SIZES,
    SECONDS_PER_KERNEL,
    SIZES,
    Calibration,
    calibrate,
    calibrate_device,
)
from roundwise.costs.prices import save_device_prices
from roundwise.costs.rates import generic_sparse_prices
from roundwise.costs.sparse_calibration import QUICK_SYSTEMS, SYSTEMS
from roundwise.costs.stored import profile_path, save_profile
from roundwise.machine.identity import Machine
from roundwise.outcomes import progress_bar

QUICK_SECONDS_PER_KERNEL = 0.02
RATES = {
    "flops_per_second": "Gflop/s of LU",
    "bytes_per_second": "GB/s of matvec and triangular solve",
}
SHOWN = ("lu", "solve", "matvec", "orthogonalize", "axpy")


@click.command("calibrate")
@click.option("--quick", is_flag=True, help="Small sizes and few repeats: takes some seconds.")
@options.choice("--device", ["cpu", "cuda"], "Measure the processor, or a GPU.", default="cpu")
@options.as_json("Print what was measured, for programs.")
@options.valued(
    "--out", options.FILE, "Write the profile there.  [default: the cache folder]", metavar="PATH"
)
def calibrate_command(quick: bool, device: str, as_json: bool, out: Path | None) -> None:
    """Measure what native arithmetic costs on this machine.

    LU, triangular solve and matvec are timed in every native format, with as many threads as are
    set; so is every sparse method that is installed, on a few grids, a random pattern and an arrow.
    The profile is stored for this machine: solve chooses precision and sparse method by it, and
    rewards price runs. With --device cuda, factorizations and corrections of a GPU are timed, and
    stored as the prices that solves on it are chosen by. Let nothing else run meanwhile, and
    calibrate again after installing a sparse engine. The cache folder is ROUNDWISE_CACHE, else
    XDG_CACHE_HOME/roundwise, else ~/.cache/roundwise.

    \b
    Examples
      roundwise calibrate
      roundwise calibrate --device cuda
    """
    if device == "cuda":
        calibrate_gpu(quick, as_json, out)
        return
    target = profile_path(Machine.this()) if out is None else out
    with options.bad_value("--out"):
        writable_folder(target.parent)
    measured = calibrate(
        QUICK_SIZES if quick else SIZES,
        seconds_per_kernel=QUICK_SECONDS_PER_KERNEL if quick else SECONDS_PER_KERNEL,
        progress=progress_bar("calibrate"),
        sparse=QUICK_SYSTEMS if quick else SYSTEMS,
    )
    path = save_profile(measured, target)
    facts = asdict(measured) | {"path": str(path)}
    echo(facts, [*text(measured), f"profile: {path}"], as_json)


def calibrate_gpu(quick: bool, as_json: bool, out: Path | None) -> None:
    backend = get_backend("cuda")
    machine = backend.machine
    assert machine is not None
    target = profile_path(machine) if out is None else out
    with options.bad_value("--out"):
        writable_folder(target.parent)
    sizes = QUICK_DEVICE_SIZES if quick else DEVICE_SIZES
    prices = calibrate_device(backend, sizes, progress=progress_bar("calibrate"))
    path = save_device_prices(prices, machine, target)
    lines = [str(machine), f"{'milliseconds':<24}" + "".join(f"{f'n = {n}':>12}" for n in sizes)]
    lines += [
        f"{f'{method} {fmt}':<24}"
        + "".join(f"{1e3 * prices.factor_seconds(method, fmt, n):>12.3g}" for n in sizes)
        for method, by_format in prices.factors.items()
        for fmt in by_format
    ]
    steps = "".join(f"{1e3 * prices.step_seconds('fp64', n):>12.3g}" for n in sizes)
    lines += [f"{'a correction':<24}{steps}", f"prices: {path}"]
    echo(asdict(prices) | {"path": str(path)}, lines, as_json)


def text(measured: Calibration) -> Iterator[str]:
    """The lines to print: rates by format and size, overheads by format, sparse methods."""
    yield str(measured.machine)
    sizes = measured.profile().sizes
    yield f"{'':<8}" + "".join(f"{f'n = {n}':>10}" for n in sizes)
    for rate, unit in RATES.items():
        for fmt in measured.times:
            billions = [(getattr(rates[fmt], rate) or 0.0) / 1e9 for rates in sizes.values()]
            yield f"{fmt:<8}{''.join(f'{number:>10.1f}' for number in billions)}  {unit}"
    for fmt, overheads in measured.overheads.items():
        calls = ", ".join(f"{name} {overheads[name] * 1e6:.0f}" for name in SHOWN)
        yield f"{fmt:<8}microseconds of a call that are overhead: {calls}"
    generic, here = generic_sparse_prices(), measured.sparse_prices()
    for method in sorted(
        {method for times in measured.sparse.values() for method in times.methods}
    ):
        if method not in here.factor:
            yield f"{method}: timed on too few systems for a price: it is not chosen"
            continue
        if method not in generic.factor:
            yield f"{method:<24}priced by its own times: there is no generic price"
            continue
        ratios = (
            f"{fmt} {_ratio(here.factor[method][fmt], generic.factor[method][fmt]):.2f}"
            for fmt in here.factor[method]
        )
        yield f"{method:<24}times the generic price: {', '.join(ratios)}"


def _ratio(prices: Sequence[float], generic: Sequence[float]) -> float:
    """Of the amounts that are priced; flops and the others may be scaled differently."""
    return statistics.geometric_mean(p / g for p, g in zip(prices, generic, strict=True) if g > 0)
