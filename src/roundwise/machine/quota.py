"""How many cores the control groups of this process pay for: Linux containers are limited so.

Version 2 says ``cpu.max`` ("quota period", in microseconds, or "max"), version 1
``cpu.cfs_quota_us`` and ``cpu.cfs_period_us``. A group cannot use more than the groups above it, so
that the least of all counts. A process that runs more threads than that is stopped for the rest of
each period, with whatever work its threads have claimed.
"""

from __future__ import annotations

import math
from pathlib import Path, PurePosixPath

UNLIMITED = 2**20


def cores(root: Path = Path("/")) -> int:
    """The whole cores that are paid for, at least 1; `UNLIMITED` if nothing is limited or known."""
    limits = [UNLIMITED]
    for line in _lines(root / "proc/self/cgroup"):
        number, _, rest = line.partition(":")
        controllers, _, group = rest.partition(":")
        mounted = root / "sys/fs/cgroup"
        if number == "0" and not controllers:
            limits += [_version_2(folder) for folder in _upwards(mounted, group)]
        elif "cpu" in controllers.split(","):
            names = dict.fromkeys((controllers, "cpu", "cpu,cpuacct"))
            folders = [f for name in names for f in _upwards(mounted / name, group)]
            limits += [_version_1(folder) for folder in folders]
    return min(limits)


def _upwards(mounted: Path, group: str) -> list[Path]:
    """The folder of a group and those above it; in a container, only the last may be there."""
    path = PurePosixPath(group.lstrip("/"))
    inside = [path, *path.parents] if ".." not in path.parts else [PurePosixPath()]
    return [mounted / part for part in inside]


def _version_2(folder: Path) -> int:
    numbers = " ".join(_lines(folder / "cpu.max")).split()
    return _whole(*numbers) if len(numbers) == 2 else UNLIMITED


def _version_1(folder: Path) -> int:
    numbers = [
        " ".join(_lines(folder / f"cpu.cfs_{name}_us")).strip() for name in ("quota", "period")
    ]
    return _whole(*numbers)


def _whole(quota: str, period: str) -> int:
    """Rounded up: a part of a core is worth a thread."""
    if not (quota.isdecimal() and period.isdecimal() and int(quota) and int(period)):
        return UNLIMITED  # "max", -1, or not there
    return math.ceil(int(quota) / int(period))


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:  # no Linux, no such group, or hidden from us: nothing is known of a limit
        return []
