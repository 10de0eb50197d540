"""``roundwise calibrate``: measure what native arithmetic costs on this machine."""

from __future__ import annotations

import statistics
from collections.abc import Collection, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

import click

from roundwise.backends import get_backend
from roundwise.commands import options
from roundwise.commands.outputs import echo, echo_json, system_load, told_of_load, writable_folder
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
from roundwise.costs.machines import MachineProfile
from roundwise.costs.prices import DevicePrices, load_device_prices, save_device_prices
from roundwise.costs.rates import (
    SparsePrices,
    generic_sparse_prices,
    impossible,
    load_measured,
    profile_path,
    remove_profiles,
    save_profile,
)
from roundwise.costs.sparse_calibration import QUICK_SYSTEMS, SYSTEMS
from roundwise.machine.identity import Machine
from roundwise.outcomes import progress_bar

QUICK_SECONDS_PER_KERNEL = 0.02
RATES = {
    "flops_per_second": "Gflop/s of LU",
    "bytes_per_second": "GB/s of matvec and triangular solve",
}


@click.command("calibrate")
@click.option("--quick", is_flag=True, help="Small sizes and few repeats: takes some seconds.")
@options.choice("--device", ["cpu", "cuda"], "Measure the processor, or a GPU.", default="cpu")
@click.option("--show", is_flag=True, help="Show what is stored, and measure nothing.")
@click.option("--reset", is_flag=True, help="Remove what is stored: the prices that ship decide.")
@options.as_json("Print what was measured, for programs.")
@options.valued(
    "--out", options.FILE, "Write the profile there.  [default: the cache folder]", metavar="PATH"
)
def calibrate_command(
    quick: bool, device: str, show: bool, reset: bool, as_json: bool, out: Path | None
) -> None:
    """Measure what native arithmetic costs on this machine.

    LU, triangular solve and matvec are timed in every native format, with as many threads as are
    set; so is every sparse method that is installed, on a few grids, a random pattern and an arrow.
    The profile is stored for this machine: solve chooses precision and sparse method by it, and
    rewards price runs. With --device cuda, factorizations and corrections of a GPU are timed, and
    stored as the prices that solves on it are chosen by.

    Let nothing else run meanwhile, and calibrate again after installing a sparse engine. Times that
    cannot be (FP32 slower than FP64, a larger system faster than a smaller one) are measured once
    more; if they come again, nothing is stored. The cache folder is ROUNDWISE_CACHE, else
    XDG_CACHE_HOME/roundwise, else ~/.cache/roundwise.

    \b
    Examples
      roundwise calibrate
      roundwise calibrate --show
      roundwise calibrate --device cuda
    """
    if show or reset:
        given = [("--quick", quick), ("--show", show and reset), ("--out", out and reset)]
        if others := [name for name, value in given if value]:
            option = "--reset" if reset else "--show"
            raise click.UsageError(f"{' and '.join(others)}: not with {option}; leave it out")
    if device == "cuda":
        machine = get_backend("cuda").machine
        assert machine is not None
    else:
        machine = Machine.this()
    if reset:
        removed = remove_profiles(machine)
        gone = [f"removed {path}" for path in removed] or ["nothing was stored for this machine"]
        last = "the prices that ship decide now"
        echo({"removed": [str(path) for path in removed]}, [*gone, last], as_json)
        return
    target = profile_path(machine) if out is None else out
    if show:
        if device == "cuda":
            show_gpu(load_device_prices(machine, out), DEVICE_SIZES, machine, target, as_json)
        else:
            show_profile(machine, *load_measured(out), target, as_json)
        return
    with options.bad_value("--out"):
        writable_folder(target.parent)
    load = system_load()
    if device == "cuda":
        sizes = QUICK_DEVICE_SIZES if quick else DEVICE_SIZES
        prices = calibrate_device(get_backend("cuda"), sizes, progress=progress_bar("calibrate"))
        save_device_prices(prices, machine, target)
        show_gpu(prices, sizes, machine, target, as_json, load)
        return
    measured = believable(quick)
    save_profile(measured, target)
    if as_json:
        echo_json(asdict(measured) | {"path": str(target), "load": load})
    else:
        profile, sparse = measured.profile(), measured.sparse_prices()
        timed = {method for times in measured.sparse.values() for method in times.methods}
        lines = [*text(machine, profile, sparse, timed, target), *caution(load)]
        click.echo("\n".join(lines))


def believable(quick: bool) -> Calibration:
    """A calibration without contradictions: the first, or else the second one measured."""
    for _ in range(2):
        measured = calibrate(
            QUICK_SIZES if quick else SIZES,
            seconds_per_kernel=QUICK_SECONDS_PER_KERNEL if quick else SECONDS_PER_KERNEL,
            progress=progress_bar("calibrate"),
            sparse=QUICK_SYSTEMS if quick else SYSTEMS,
        )
        wrong = impossible(measured.profile())
        if not wrong:
            return measured
    raise click.ClickException(
        f"{wrong}, which cannot be: other programs took the processor meanwhile. Nothing is "
        "stored, and what was stored stays; calibrate again on an idle machine"
    )


def show_profile(
    machine: Machine, profile: MachineProfile, sparse: SparsePrices, path: Path, as_json: bool
) -> None:
    facts = {
        "machine": machine.to_dict(),
        "profile": profile.to_dict(),
        "sparse_prices": asdict(sparse),
        "path": str(path),
    }
    echo(facts, text(machine, profile, sparse, set(sparse.factor), path), as_json)


def caution(load: float) -> Iterator[str]:
    """That times may be too long, if other programs ran when measuring began."""
    if told := told_of_load(load):
        yield f"{told}: times may be too long; calibrate again on an idle machine"


def show_gpu(
    prices: DevicePrices,
    sizes: Sequence[int],
    machine: Machine,
    path: Path,
    as_json: bool,
    load: float = 0.0,
) -> None:
    lines = [str(machine), f"{'milliseconds':<24}" + "".join(f"{f'n = {n}':>12}" for n in sizes)]
    lines += [
        f"{f'{method} {fmt}':<24}"
        + "".join(f"{1e3 * prices.factor_seconds(method, fmt, n):>12.3g}" for n in sizes)
        for method, by_format in prices.factors.items()
        for fmt in by_format
    ]
    steps = "".join(f"{1e3 * prices.step_seconds('fp64', n):>12.3g}" for n in sizes)
    lines += [f"{'a correction':<24}{steps}", f"prices: {path}", *caution(load)]
    echo(asdict(prices) | {"path": str(path)}, lines, as_json)


def text(
    machine: Machine,
    profile: MachineProfile,
    sparse: SparsePrices,
    timed: Collection[str],
    path: Path,
) -> Iterator[str]:
    """The lines to print: rates by format and size, overheads, the `timed` sparse methods."""
    yield str(machine)
    yield f"{'':<8}" + "".join(f"{f'n = {n}':>10}" for n in profile.sizes)
    for rate, unit in RATES.items():
        for fmt in profile.rates:
            billions = [(getattr(r[fmt], rate) or 0.0) / 1e9 for r in profile.sizes.values()]
            yield f"{fmt:<8}{''.join(f'{number:>10.1f}' for number in billions)}  {unit}"
    overheads = {
        "a run": profile.run_overhead,
        "a correction": profile.outer_overhead,
        "a GMRES iteration": profile.inner_overhead,
    }
    told = ", ".join(f"{name} {1e6 * seconds:.0f}" for name, seconds in overheads.items())
    yield f"microseconds that do not depend on n: {told}"
    generic = generic_sparse_prices()
    yield "sparse methods, compared with the reference machine of the prices that ship"
    for method in sorted(timed):
        if method not in sparse.factor:
            yield f"{method:<24}timed on too few systems for a price: it is not chosen"
            continue
        if method not in generic.factor:
            yield f"{method:<24}priced by its own times, not timed there"
            continue
        ratios = {
            fmt: _ratio(sparse.factor[method][fmt], generic.factor[method][fmt])
            for fmt in sparse.factor[method]
        }
        yield f"{method:<24}{', '.join(f'{fmt} {relative(x)}' for fmt, x in ratios.items())}"
    yield f"profile: {path}"


def relative(ratio: float) -> str:
    """How the time here compares with that on the reference machine."""
    if 0.95 < ratio < 1.05:
        return "as fast"
    return f"{ratio:.1f} times slower" if ratio > 1 else f"{1 / ratio:.1f} times faster"


def _ratio(prices: Sequence[float], generic: Sequence[float]) -> float:
    """The mean ratio of two prices; flops and other amounts may be scaled differently."""
    return statistics.geometric_mean(p / g for p, g in zip(prices, generic, strict=True) if g > 0)
