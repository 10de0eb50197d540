"""The C++ checks under the sanitizers of the compiler: `make sanitize`.

Compiles the kernels of the level that every processor has with the sanitizers for addresses and
undefined behaviour, then with that for threads, and runs tests/*_check.cpp, which factorize and
solve dense and sparse systems, and make and apply preconditioners, by several threads. A finding of
a sanitizer ends the program with an error, and so this one. `--strict` first compiles every C++
file outside of bindings/ with warnings as errors.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FLAGS = ["-std=c++17", "-fno-math-errno", "-Wno-psabi", "-pthread", "-I", "cpp"]
# GCC 12's std::stable_sort calls a deprecated function of its own, of which Clang 19 warns.
FLAGS += ["-Wno-deprecated-declarations"]
# Masks are numbers in the lanes of vectors, and bool for one number: & is right for both.
WARNINGS = ["-Wall", "-Wextra", "-Werror", "-Wno-bitwise-instead-of-logical"]
SANITIZERS = {
    "addresses": ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"],
    "threads": ["-fsanitize=thread"],
}
LEVELS = {
    "cpp/emulated/level.cpp": ("baseline", "off"),
    "cpp/iterative/level.cpp": ("iterative_baseline", "off"),
    "cpp/native/level.cpp": ("native_baseline", "fast"),
    "cpp/native/bf16.cpp": ("native_portable", "fast"),
    "cpp/native/exact.cpp": ("exact_baseline", "off"),
    "cpp/native/express.cpp": ("express_baseline", "fast"),
    "cpp/native/orthogonal.cpp": ("orthogonal_baseline", "fast"),
    "cpp/native/structured.cpp": ("structured_baseline", "off"),
    "cpp/sparse/level.cpp": ("sparse_baseline", "fast"),
    "cpp/sparse/express_level.cpp": ("sparse_express_baseline", "off"),
    "tests/native_teams_check.cpp": ("native_portable", "fast"),
}
CHECKS = (
    "portability_check",
    "native_portability_check",
    "sparse_portability_check",
    "sparse_numeric_check",
    "iterative_check",
)
ALONE = "native_teams_check"
"""Has threads of its own, so that it is not linked with the rest."""


def sources() -> list[str]:
    """All C++ files that know nothing of Python."""
    folders = ("common", "emulated", "iterative", "krylov", "native", "sparse")
    return [
        str(path.relative_to(ROOT))
        for folder in folders
        for path in sorted((ROOT / "cpp" / folder).glob("*.cpp"))
    ]


def compile_file(compiler: str, flags: list[str], source: str, folder: Path) -> str:
    """Compile a source, for the first level where it has levels; the object file."""
    level = []
    if source in LEVELS:
        name, contract = LEVELS[source]
        level = [
            f"-DROUNDWISE_LEVEL={name}",
            "-DROUNDWISE_VECTOR_BYTES=16",
            f"-ffp-contract={contract}",
        ]
    target = str(folder / (source.replace("/", "_") + ".o"))
    command = [compiler, *FLAGS, "-ffp-contract=off", *level, *flags, "-c", source, "-o", target]
    if subprocess.run(command, cwd=ROOT, check=False).returncode:
        raise SystemExit(f"{source} does not compile with {compiler} {' '.join(flags)}")
    return target


def compile_all(
    compiler: str, flags: list[str], files: list[str], folder: Path, jobs: int
) -> list[str]:
    with ThreadPoolExecutor(jobs) as pool:
        return list(pool.map(lambda file: compile_file(compiler, flags, file, folder), files))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--compiler", default="clang++" if shutil.which("clang++") else "g++")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument(
        "--strict", action="store_true", help="warnings as errors, without sanitizers"
    )
    parser.add_argument("--only", choices=SANITIZERS, help="one of the two")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        if given.strict:
            compile_all(given.compiler, ["-O1", *WARNINGS], sources(), folder, given.jobs)
            print(f"{len(sources())} files: no warnings of {given.compiler}")
        for name, flags in SANITIZERS.items():
            if given.only not in (None, name):
                continue
            flags = ["-O0", "-g1", *flags]  # nothing is optimized away, and compiling is quick
            checks = (*CHECKS, ALONE)
            files = [*sources(), *(f"tests/{check}.cpp" for check in checks)]
            objects = compile_all(given.compiler, flags, files, folder, given.jobs)
            library = objects[: len(sources())]
            for check, main_object in zip(checks, objects[len(library) :], strict=True):
                program, linked = str(folder / check), [] if check == ALONE else library
                command = [given.compiler, *flags, main_object, *linked, "-pthread", "-o", program]
                subprocess.run(command, check=True)
                done = subprocess.run([program], capture_output=True, text=True, check=False)
                if done.returncode:
                    sys.exit(f"{check}, {name}:\n{done.stdout}{done.stderr}")
                print(f"{check}: {name} clean", flush=True)


if __name__ == "__main__":
    main()
