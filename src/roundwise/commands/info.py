"""``roundwise info``: what is installed, or what a table holds."""

from __future__ import annotations

import platform
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import click

import roundwise
from roundwise.backends import BACKENDS, KNOWN_ENGINES, native_formats
from roundwise.backends.cuda.device import get_device, why_not
from roundwise.backends.engines import Engine
from roundwise.commands import options
from roundwise.commands.outputs import echo
from roundwise.costs import ProfileError, load_profile
from roundwise.costs.rates import profile_path
from roundwise.formats import NAMED_FORMATS
from roundwise.machine.identity import Machine
from roundwise.outcomes import RESULTS_VERSION
from roundwise.outcomes.table import table_summary


@click.command("info")
@options.valued("--table", options.EXISTING_FILE, "Tell what a table holds.", metavar="PATH")
@options.as_json()
def info_command(table: Path | None, as_json: bool) -> None:
    """Tell what is installed, or what a table holds.

    Without --table: versions, the machine with its threads and BLAS, sparse engines, and formats.
    With it: problems, algorithms with their settings, and how runs ended.

    \b
    Examples
      roundwise info
      roundwise info --table dense.sqlite --json
    """
    facts = installation_facts() if table is None else table_summary(table)
    echo(facts, installation_text(facts) if table is None else table_text(facts), as_json)


def installation_facts() -> dict[str, Any]:
    machine = Machine.this()
    try:
        load_profile()
        profile = str(profile_path(machine))
    except ProfileError as error:
        profile = f"none: {error}"
    return {
        "roundwise": roundwise.__version__,
        "results_version": RESULTS_VERSION,
        "python": platform.python_version(),
        "numpy": version("numpy"),
        "scipy": version("scipy"),
        "machine": machine.to_dict() | {"key": machine.key, "architecture": platform.machine()},
        "simd": roundwise.machine.threads.get_simd_level(),
        "simd_levels": roundwise.machine.threads.simd_levels(),
        "threads": roundwise.get_num_threads(),
        "arithmetic": list(BACKENDS),
        "native_formats": [fmt.name for fmt in native_formats()],
        "engines": [engine_facts(engine) for engine in KNOWN_ENGINES],
        "profile": profile,
        "device": device_facts(),
        "formats": [
            {name: getattr(fmt, name) for name in ("name", "p", "emin", "emax", "bits")}
            for fmt in NAMED_FORMATS.values()
        ],
    }


def device_facts() -> dict[str, Any]:
    """The GPU that `device="cuda"` asks for, or why there is none."""
    if reason := why_not():
        return {"available": False, "reason": reason}
    device = get_device()
    return {
        "available": True,
        "name": device.name,
        "versions": device.key,
        "memory_free": device.memory_free,
    }


def engine_facts(engine: Engine) -> dict[str, Any]:
    """The abilities of an engine, and its version or how to install it."""
    facts = {
        "name": engine.name,
        "methods": [f"{engine.name}/{ordering}" for ordering in engine.orderings],
        "formats": [fmt.name for fmt in engine.formats],
        "suits": engine.suits,
        "package": engine.package,
        "installed": engine.installed,
    }
    if not engine.installed:
        return facts | {"version": None, "remedy": engine.remedy}
    try:
        return facts | {"version": version(engine.package), "remedy": ""}
    except PackageNotFoundError:  # conda's MKL is no Python distribution
        return facts | {"version": "unknown", "remedy": ""}


def engine_text(facts: dict[str, Any]) -> str:
    if not facts["installed"]:
        return f"  {facts['name']:<17} not installed: {facts['remedy']}"
    return (
        f"  {facts['name']:<17} {facts['package']} {facts['version']}, "
        f"{' and '.join(facts['formats'])}, {facts['suits']} matrices: "
        f"{', '.join(facts['methods'])}"
    )


def device_text(facts: dict[str, Any]) -> str:
    if not facts["available"]:
        return f"none: {facts['reason']}"
    return f"{facts['versions']}; {facts['memory_free'] / 1e9:.1f} GB free"


def installation_text(facts: dict[str, Any]) -> Iterator[str]:
    machine = facts["machine"]
    yield (
        f"roundwise {facts['roundwise']} (Python {facts['python']}, NumPy {facts['numpy']}, "
        f"SciPy {facts['scipy']}, {machine['architecture']})"
    )
    yield f"processor   {machine['cpu']}, {machine['cores']} cores"
    yield f"kernels     {facts['simd']} (of {', '.join(facts['simd_levels'])})"
    yield f"threads     {facts['threads']}"
    yield f"BLAS        {machine['blas']} (threads: {machine['blas_threads'] or 'unknown'})"
    yield f"machine     {machine['key']}"
    yield f"arithmetic  {', '.join(facts['arithmetic'])}"
    yield f"native      {', '.join(facts['native_formats'])}"
    yield f"profile     {facts['profile']}"
    yield f"GPU         {device_text(facts['device'])}"
    yield "sparse engines"
    yield from map(engine_text, facts["engines"])
    yield f"{'formats':<12}{'p':>4}{'emin':>7}{'emax':>6}{'bits':>6}"
    for fmt in facts["formats"]:
        yield "  {name:<10}{p:>4}{emin:>7}{emax:>6}{bits:>6}".format(**fmt)


def table_text(facts: dict[str, Any]) -> Iterator[str]:
    size = "" if facts["n"] is None else ", n = {} to {}".format(*facts["n"])
    yield f"{facts['table']}: {facts['problems']} problems{size}"
    for name, count in facts["features"].items():
        yield f"  feature {name} of {count}"
    for setting in facts["settings"]:
        old = "" if setting["results_version"] == RESULTS_VERSION else ", of an older version"
        yield f"{as_call(setting['algorithm'])}, {setting['arithmetic']} arithmetic{old}"
        yield (
            f"  {setting['outcomes']} outcomes: {setting['problems']} problems, "
            f"{setting['actions']} actions ({', '.join(map(str, setting['stages']))})"
        )
        if setting["measurements"]:
            yield f"  {setting['measurements']} timed runs"
        for name, count in setting["statuses"].items():
            yield f"  {count:>8} {name.lower().replace('_', ' ')}"
    for origin in facts["origins"]:
        node, simd, package = (origin.get(k, "unknown") for k in ("node", "simd", "roundwise"))
        yield f"computed on {node} ({simd}) by roundwise {package}"


def as_call(saved: Any) -> str:
    """Saved settings as Python writes them: ``GmresIR(cycles=1, ...)``."""
    if not isinstance(saved, dict):
        return repr(saved)
    settings = [f"{name}={as_call(value)}" for name, value in saved.items() if name != "class"]
    return f"{saved.get('class', '')}({', '.join(settings)})"
