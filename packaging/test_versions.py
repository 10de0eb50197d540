"""The tests with the oldest or the newest versions of what Roundwise needs.

    python packaging/test_versions.py oldest    # make test-oldest: Python 3.11, oldest.txt
    python packaging/test_versions.py newest    # make test-newest: Python 3.12, the newest
    python packaging/test_versions.py newest tests/solver/test_solver.py  # some of the tests

The wheel of dist/ (`make wheels`) and the studies are what is tested, in an environment of their
own under build/. A warning is an error, as pyproject.toml says for all tests; so is the deprecation
of anything used.
"""

from __future__ import annotations

import subprocess
import sys

from wheels import DIST, ROOT, environment, pip, python

EXTRAS = "test,tune,dask,gym,cli,plot"
PYTHONS = {"oldest": "3.11", "newest": "3.12"}


def main() -> None:
    which, *tests = sys.argv[1:]
    interpreter = environment(ROOT / "build" / which, python(PYTHONS[which]))
    chosen = ["--upgrade", "--upgrade-strategy", "eager"]
    if which == "oldest":
        chosen = ["--constraint", ROOT / "packaging" / "oldest.txt"]
    wheel = ["--find-links", DIST, f"roundwise[{EXTRAS}]"]
    # The wheel may be newer, its version is not.
    pip(interpreter, "uninstall", "--yes", "roundwise", "roundwise-studies")
    pip(interpreter, "install", *chosen, *wheel, ROOT / "studies")
    versions = "import numpy, scipy; print('NumPy', numpy.__version__, 'SciPy', scipy.__version__)"
    subprocess.run([interpreter, "-c", versions], check=True)
    sys.exit(
        subprocess.run([interpreter, "-m", "pytest", *tests], cwd=ROOT, check=False).returncode
    )


if __name__ == "__main__":
    main()
