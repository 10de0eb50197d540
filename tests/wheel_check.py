"""What a newcomer does with a wheel, where there is no compiler: `make test-wheel`.

    python tests/wheel_check.py dist       # a fresh environment, the wheel of dist/, the checks

The environment has no program on its PATH but its own, so that nothing can be compiled. Into it go
the wheel and what the README's examples and the command need, then these run: a dense and a sparse
solve, every Python block of README.md in one session, the short programs in examples/, and
``roundwise`` with ``--help``, with a system of its own, with one that it must refuse, and with a
study, which is in another package.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
EXAMPLES = ("solve_dense", "solve_many", "solve_sparse")  # those that draw nothing
FIRST = """
import importlib.metadata, importlib.util, pathlib, shutil, sys
import numpy as np
from scipy import sparse
import roundwise as rw

assert not any(map(shutil.which, ("cc", "c++", "gcc", "g++", "clang", "cl"))), "a compiler is here"
package = pathlib.Path(rw.__file__).parent
assert package.is_relative_to(sys.prefix), f"{package} is not the wheel that was installed"
assert (package / "py.typed").is_file()
assert importlib.util.find_spec("roundwise_studies") is None, "the wheel has the studies in it"
assert importlib.metadata.metadata("roundwise")["License-Expression"] == "BSD-3-Clause"
rng = np.random.default_rng(0)
A, x = rng.standard_normal((300, 300)), rng.standard_normal(300)
tridiagonal = sparse.diags_array([1.0, 3.0, 1.0], offsets=[-1, 0, 1], shape=(300, 300))
for matrix in (A, sparse.csr_array(tridiagonal)):
    b = matrix @ x
    residual = abs(b - matrix @ rw.solve(matrix, b)).max()
    backward = residual / (abs(matrix).sum(1).max() * abs(x).max())
    assert backward < 300 * 2.0**-53, backward
print("solve: dense and sparse,", *rw.machine.threads.simd_levels())
"""


def readme_program() -> str:
    """The Python blocks of README.md, one after the other."""
    blocks = re.findall(
        r"^```python\n(.*?)^```", (ROOT / "README.md").read_text(encoding="utf-8"), re.M | re.S
    )
    assert blocks, "README.md has no Python block"
    return "\n".join(
        [
            "if __name__ == '__main__':",
            *(f"    {line}" for block in blocks for line in block.splitlines()),
        ]
    )


def wheel_in(folder: Path, interpreter: str) -> str:
    """The wheel of this folder that this Python takes, as pip decides."""
    command = [
        interpreter,
        "-m",
        "pip",
        "download",
        "--quiet",
        "--disable-pip-version-check",
        "--no-deps",
    ]
    with tempfile.TemporaryDirectory() as place:
        command += ["--no-index", "--find-links", str(folder), "--dest", place, "roundwise"]
        subprocess.run(command, check=True)
        return str(folder / next(Path(place).glob("*.whl")).name)


def main() -> None:
    folder = Path(sys.argv[1]).resolve()
    with tempfile.TemporaryDirectory() as temporary:
        place = Path(temporary)
        subprocess.run([sys.executable, "-m", "venv", place / "fresh"], check=True)
        programs = place / "fresh" / ("Scripts" if os.name == "nt" else "bin")
        python = str(programs / "python")
        clean = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
        clean |= {"PATH": str(programs), "ROUNDWISE_CACHE": str(place / "cache")}

        def run(*command: str, status: int = 0) -> str:
            done = subprocess.run(
                command, cwd=place, env=clean, capture_output=True, text=True, check=False
            )
            if done.returncode != status:
                what = f"{' '.join(command[:3])} ended with {done.returncode}"
                sys.exit(f"{what}:\n{done.stdout}{done.stderr}")
            return done.stdout + done.stderr

        wheel = wheel_in(folder, python)
        quiet = ["--quiet", "--disable-pip-version-check", "--only-binary", ":all:"]
        run(python, "-m", "pip", "install", *quiet, wheel)
        print(f"{Path(wheel).name}, Python {sys.version.split()[0]}, no compiler")
        print(run(python, "-c", FIRST).strip())
        for name in EXAMPLES:  # these need NumPy and SciPy alone
            shutil.copy(ROOT / "examples" / f"{name}.py", place)
            run(python, f"{name}.py")
        print("examples:", *EXAMPLES)
        run(python, "-m", "pip", "install", *quiet, f"{wheel}[cli,tune]")
        (place / "readme.py").write_text(readme_program(), encoding="utf-8")
        run(python, "readme.py")
        print("README.md: its Python blocks")
        command = shutil.which("roundwise", path=str(programs))
        assert command is not None
        assert "Usage: roundwise" in run(command, "--help")
        market = "%%MatrixMarket matrix array real general\n2 2\n"
        (place / "A.mtx").write_text(market + "2\n1\n1\n3\n")
        (place / "singular.mtx").write_text(market + "1\n1\n1\n1\n")
        run(command, "solve", "A.mtx", "-o", "x.mtx")
        assert (place / "x.mtx").is_file()
        run(command, "solve", "singular.mtx", "-o", "none.mtx", status=1)
        assert not (place / "none.mtx").exists()
        assert "pip install roundwise-studies" in run(command, "reproduce", "dense", status=1)
        print("roundwise: --help, solve, a singular system refused, studies not found")


if __name__ == "__main__":
    main()
