"""The systems that commands run on: one of the paper's data sets, or files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import click

from roundwise.actions import ActionSpace
from roundwise.backends import Backend
from roundwise.commands.outputs import data_errors
from roundwise.problems import LinearSystem, read_matrix_market
from roundwise_studies.commands import options
from roundwise_studies.datasets import DATA_SETS

KAPPAS = {"exact": "kappa_exact", "estimate": "kappa_est"}

systems_argument = click.argument(
    "systems", metavar="dense|sparse|pde|FILE...", nargs=-1, required=True
)
system_sizes_option = options.sizes(
    "Range of n of a data set, from 4 on.  [default: 100 500, the paper's]", least=4
)


@dataclass(frozen=True)
class Systems:
    """Systems, and their name in messages."""

    name: str
    members: tuple[LinearSystem, ...]

    def __str__(self) -> str:
        """E.g. ``100 dense systems, n = 100 to 500``."""
        count, sizes = len(self.members), sorted({system.n for system in self.members})
        plural = "s" if count > 1 else ""
        size = f"{sizes[0]}" if len(sizes) == 1 else f"{sizes[0]} to {sizes[-1]}"
        return f"{count} {self.name} system{plural}, n = {size}"

    def facts(self) -> dict[str, Any]:
        return {"name": self.name, "count": len(self.members)}


def files_among(names: Sequence[str]) -> list[Path]:
    """The files that `load_systems` would read."""
    return [Path(name) for name in names if name not in DATA_SETS]


def load_systems(
    names: Sequence[str],
    half: Literal["train", "test"],
    count: int | None,
    seed: int,
    sizes: tuple[int, int] | None = None,
) -> Systems:
    """Return one half of a data set, or the systems of Matrix Market files, all with x_true."""
    if len(names) == 1 and names[0] in DATA_SETS:
        count = 100 if count is None else count
        counts = (count, 0) if half == "train" else (0, count)
        given = {} if sizes is None else {"sizes": sizes}
        data = DATA_SETS[names[0]](*counts, seed=seed, **given)
        return Systems(names[0], getattr(data, half))
    for name in names:
        if name in DATA_SETS:
            raise click.UsageError(
                f"{name} is a data set among other names; pass one data set, or files"
            )
        if not Path(name).is_file():
            raise click.BadParameter(
                f"{name!r} is no file and no data set ({', '.join(DATA_SETS)})", param_hint="FILE"
            )
    if count is not None:
        raise click.UsageError(f"--{half} counts generated systems; of files all are taken")
    if sizes is not None:
        raise click.UsageError("--sizes is for generated systems; leave it out for files")
    with data_errors():
        return Systems("Matrix Market", tuple(read_matrix_market(name) for name in names))


def check_kinds(systems: Sequence[LinearSystem]) -> None:
    """Refuse dense and sparse systems together: a policy's methods are for one of them."""
    if len({system.is_sparse for system in systems}) > 1:
        raise click.ClickException(
            "some of the systems are dense, some sparse, and these have different methods; train "
            "a policy for each"
        )


def check_methods(space: ActionSpace, backend: Backend, systems: Sequence[LinearSystem]) -> None:
    """Refuse, before any run, a system that no method of the policy is for."""
    for system in systems:
        if not set(space.methods) & set(backend.methods(system.is_sparse)):
            raise click.ClickException(
                f"{system.name} is {'sparse' if system.is_sparse else 'dense'}, and the policy's "
                f"methods ({', '.join(space.methods)}) are not for that; pass other systems"
            )
