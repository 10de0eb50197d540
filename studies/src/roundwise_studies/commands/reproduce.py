"""``roundwise reproduce``: the paper's experiments."""

from __future__ import annotations

import tempfile
from dataclasses import replace as replace_fields
from pathlib import Path
from textwrap import fill
from typing import Any, TypeVar

import click

from roundwise.commands.outputs import echo_json, writable_file, writable_folder
from roundwise.outcomes import progress_bar
from roundwise_studies.archive import file_digest, settings_of, unpack
from roundwise_studies.archive import pack as write_archive
from roundwise_studies.commands import options
from roundwise_studies.commands.outputs import interruptible
from roundwise_studies.native.device import ORDERS
from roundwise_studies.native.gpu import QUICK as QUICK_GPU
from roundwise_studies.native.gpu import Gpu
from roundwise_studies.native.processor import Processor
from roundwise_studies.native.published import Published
from roundwise_studies.native.published_systems import GENERATORS
from roundwise_studies.native.published_tables import PublishedStudy
from roundwise_studies.native.study import NativeStudy
from roundwise_studies.protocol import Part, Study, reproduce
from roundwise_studies.released.study import DepartureStudy
from roundwise_studies.report import format_text
from roundwise_studies.simulated import EXPERIMENTS, Settings, SimulatedStudy
from roundwise_studies.writing import Written, write

T = TypeVar("T", Settings, Processor, Published, Gpu)

QUICK = Settings(systems=16, seeds=3, sizes=(60, 160))
QUICK_NATIVE = Processor(train=6, test=8, sizes=(500, 1000))
QUICK_PUBLISHED = Published(train=6, test=9, sizes=(500, 700), repeats=1, seeds=3)
DEPLOYED = "for native --variant deployed"
ONLY_NATIVE = {
    "order": DEPLOYED,
    "device": DEPLOYED,
    "variant": "for native",
    "generator": "for native",
    "of": "for departures",
}
NO_ARCHIVE = dict.fromkeys(("pack", "replay"), "for the simulated experiments")
FROM_ARCHIVE = dict.fromkeys(
    ("systems", "sizes", "actions", "arithmetic", "seed", "jobs", "cache", "quick", "pack"),
    "not with --replay: the file says",
)
TIMED = {
    **NO_ARCHIVE,
    "of": "for departures",
    "actions": "not for native: it runs all monotone actions of three formats",
    "arithmetic": "not for native: its arithmetic is the hardware's",
    "jobs": "not for native: its runs are timed one by one",
}
REFUSED = {
    "native": {**TIMED, "order": DEPLOYED},
    "deployed": {
        **TIMED,
        "seeds": "not for the deployed variant: its one training has the seed of --seed",
        "generator": "not for the deployed variant: its systems are randsvd's",
    },
    "departures": {
        **{option: reason for option, reason in ONLY_NATIVE.items() if option != "of"},
        **NO_ARCHIVE,
        "arithmetic": "not for departures, which runs in both",
    },
}
"""Options that do not fit an experiment or variant, and why; else `ONLY_NATIVE`."""
ON_A_GPU = {
    "systems": "not with --device cuda: it has systems of each family and size; --sizes selects",
    "order": "not with --device cuda: its actions are monotone in the order of the stages",
}
WIDTH = 100
MARKS = {"confirmed": "+", "partly": "~", "not reproduced": "-"}


@click.command("reproduce")
@click.argument(
    "experiment",
    metavar="dense|sparse|pde|ablation|all|native|departures",
    type=click.Choice([*EXPERIMENTS, "all", "native", "departures"]),
)
@click.option(
    "--quick", is_flag=True, help="Few, small systems, about a minute: numbers, and no verdicts."
)
@click.option("--verbose", is_flag=True, help="Print all tables, not only the summary.")
@options.count(
    "--systems",
    "Training systems, and test systems; of native, half as many for training.  [default: 100]",
)
@options.sizes("Smallest and largest n.  [default: 100 500; native: 1000 1500]", least=2)
@options.count("--seeds", "Trainings, to tell luck from substance.  [default: 10]", metavar="S")
@options.choice(
    "--actions", ["25", "35"], "The paper's highest 25 actions, or all monotone ones.", default="25"
)
@options.choice(
    "--order",
    ORDERS,
    "For native: actions are monotone in the order of the stages, or in that of the paper's "
    "native study, (u_f, u_g, u, u_r).  [default: paper]",
)
@options.choice(
    "--variant",
    ["paper", "deployed"],
    "For native: the paper's study as published, or our harder variant as it would be deployed, "
    "where no run looks at the true solution and all costs count.  [default: paper; with --device "
    "cuda deployed]",
)
@options.choice(
    "--generator",
    GENERATORS,
    "For native: the paper's released generator, or our harder one.  [default: released]",
)
@options.choice(
    "--device",
    ["cpu", "cuda"],
    "For native: the processor, or a GPU with n = 1000 to 16384.  [default: cpu]",
)
@options.choice(
    "--of",
    [*EXPERIMENTS],
    "For departures: the experiment whose numbers are traced.  [default: dense]",
)
@options.arithmetic(
    "Round every operation (operation), or round results when stored (storage).  "
    "[default: operation]"
)
@options.count("--jobs", "Processes.  [default: all cores]")
@options.seed("Seed of the data sets and of the first training.")
@options.valued(
    "--cache",
    options.FOLDER,
    "Where outcomes are kept: one table (an SQLite file) per data set.",
    Path("out"),
    "DIR",
    check=writable_folder,
)
@click.option(
    "--out",
    type=options.FOLDER,
    metavar="DIR",
    help="Where report, tables and figures go.  [default: out/reproduce, out/native-paper, "
    "out/native, out/native-gpu or out/departures]",
)
@options.valued(
    "--pack",
    options.FILE,
    "Also write all outcomes into a release file, a .tar.xz that --replay takes.",
    metavar="FILE",
    check=writable_file,
)
@click.option(
    "--replay",
    type=options.EXISTING_FILE,
    metavar="FILE",
    help="Check a release file and replay its outcomes; nothing is solved.",
)
@options.as_json("Print all numbers for programs.")
def reproduce_command(
    experiment: str,
    quick: bool,
    verbose: bool,
    systems: int | None,
    sizes: tuple[int, int] | None,
    seeds: int | None,
    actions: str,
    order: str | None,
    variant: str | None,
    generator: str | None,
    device: str | None,
    of: str | None,
    arithmetic: str | None,
    jobs: int | None,
    seed: int,
    cache: Path,
    out: Path | None,
    pack: Path | None,
    replay: Path | None,
    as_json: bool,
) -> None:
    """Run the paper's experiments, our numbers beside its own.

    For both weightings of the reward (W1, W2) and both tolerances (1e-6, 1e-8). Everything is
    solved once and kept in the cache: a second run, another reward or more seeds take seconds.
    The folder of --out gets report.html (one file, opens offline), report.md, tables as CSV,
    figures, and results.json.

    "native" is the paper's study of real low precision as published, on one thread, in CPU time:
    about ten minutes. Measurements are kept: remove native-paper.jsonl from the cache to measure
    again. It is no part of "all". With --variant deployed it is our harder variant beside LAPACK:
    leave the machine alone meanwhile, about ten minutes on two cores; its times are kept in
    native.sqlite. With --device cuda that runs on a GPU beside cuSOLVER, minutes on an H200, and
    keeps its times in native-gpu.sqlite: where there is no GPU, that file is read, and nothing is
    run.

    "departures" runs an experiment (--of) on the paper's own systems with the departures of its
    released code from its text: each by itself, all together, and all but one, to see which number
    comes from which. It is no part of "all".

    \b
    Examples
      roundwise reproduce all --quick
      roundwise reproduce dense --seeds 30
      roundwise reproduce all --pack outcomes.tar.xz
      roundwise reproduce all --replay outcomes.tar.xz
      roundwise reproduce all --arithmetic storage --out out/storage
      roundwise reproduce native --quick
      roundwise reproduce native --generator randsvd --out out/native-randsvd
      roundwise reproduce native --variant deployed
      roundwise reproduce native --device cuda
      roundwise reproduce departures --of sparse
    """
    if experiment == "native" and variant == "paper" and device is not None:
        options.refuse_given(["device"], f"{DEPLOYED}; leave it out")
    is_deployed = experiment == "native" and (variant == "deployed" or device is not None)
    kind = "deployed" if is_deployed else experiment
    for option, reason in REFUSED.get(kind, ONLY_NATIVE).items():
        options.refuse_given([option], f"{reason}; leave it out")
    study: Study[Any, Any]
    if device == "cuda":
        for option, reason in ON_A_GPU.items():
            options.refuse_given([option], f"{reason}; leave it out")
        gpu = _given(QUICK_GPU if quick else Gpu(), seed=seed)
        with options.bad_value("--sizes"):
            study = NativeStudy(gpu if sizes is None else gpu.within(*sizes))
    elif experiment == "native":
        halves = {} if systems is None else {"train": max(1, systems // 2), "test": systems}
        if is_deployed:
            native = QUICK_NATIVE if quick else Processor()
            study = NativeStudy(_given(native, **halves, sizes=sizes, seed=seed, order=order))
        else:
            published = QUICK_PUBLISHED if quick else Published()
            chosen = {"sizes": sizes, "seeds": seeds, "generator": generator}
            study = PublishedStudy(_given(published, **halves, **chosen, seed=seed or None))
    else:
        chosen = {"systems": systems, "seeds": seeds, "arithmetic": arithmetic, "sizes": sizes}
        settings = QUICK if quick else Settings()
        settings = _given(settings, **chosen, seed=seed, actions=int(actions))
        # The findings of the ablation compare it with dense, on the same outcomes.
        names = {"all": tuple(EXPERIMENTS), "ablation": ("dense", "ablation")}
        chosen_names = names.get(experiment, (experiment,))
        if experiment == "departures":
            study = DepartureStudy(settings, of or "dense")
        elif replay is not None:
            for option, reason in FROM_ARCHIVE.items():
                options.refuse_given([option], f"{reason}; leave it out")
            folder = click.get_current_context().with_resource(tempfile.TemporaryDirectory())
            cache = Path(folder)
            settings = _given(settings_of(unpack(replay, cache)), seeds=seeds)
            study = SimulatedStudy(settings, chosen_names, replay=True)
        else:
            study = SimulatedStudy(settings, chosen_names)
    out = Path("out") / study.name if out is None else out
    with options.bad_value("--out"):
        writable_folder(out)
    written = interruptible(lambda: _written(study, cache, jobs or -1, out), cache)
    if pack is not None and isinstance(study, SimulatedStudy):
        write_archive(cache, study.settings, study.experiments, pack)
        click.echo(f"{pack}: {pack.stat().st_size:,} bytes, SHA-256 {file_digest(pack)}", err=True)
    if as_json:
        echo_json({**written.summary, "files": [str(path) for path in written.files]})
        return
    for part in written.parts if verbose else ():
        _show_part(part)
    if verbose and written.report.findings:
        click.echo(
            "FINDINGS OF THE PAPER (+ confirmed, ~ partly, - not reproduced from the text)\n"
        )
        for finding in written.report.findings:
            click.echo(wrapped(f"{MARKS[finding.verdict]} ", finding.claim))
            click.echo(wrapped("    ", finding.evidence))
        click.echo()
    click.echo("SUMMARY\n")
    for line in written.report.summary:
        click.echo(wrapped("* ", line))
    hidden = "" if verbose else " (--verbose prints its tables here)"
    click.echo(f"\nReport: {written.files[0]}{hidden}")


def _given(defaults: T, **chosen: Any) -> T:
    """The settings with those options that were given."""
    given = {name: value for name, value in chosen.items() if value is not None}
    return replace_fields(defaults, **given)


def _written(study: Study[Any, Any], cache: Path, jobs: int, out: Path) -> Written:
    result = reproduce(study, cache, jobs, progress_bar)
    return write(study, result, out, bar=progress_bar("report"))


def _show_part(part: Part) -> None:
    heading = part.heading.upper() or f"{part.title.upper()} ({part.name})"
    click.echo(f"\n{heading}\n")
    for term, text in part.legend:
        click.echo(wrapped(f"{term:<12}", text))
    if part.legend:
        click.echo()
    for table in part.tables.values():
        click.echo(format_text(replace_fields(table, note="")))
        if table.note:
            click.echo("\n" + wrapped("", table.note))
        click.echo()


def wrapped(lead: str, text: str) -> str:
    """A paragraph for the terminal, indented below its first characters."""
    return fill(text, WIDTH, initial_indent=lead, subsequent_indent=" " * len(lead))
