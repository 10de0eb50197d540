"""The kernels compile for other processors and compilers, and compute the same bits there."""

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
FLAGS = ["-std=c++17", "-O3", "-ffp-contract=off", "-fno-math-errno", "-Wno-psabi", "-I", "cpp"]
LEVELS = {"baseline": ["16"], "avx2": ["32", "-mavx2"]}
LEVELS["avx512"] = ["64", "-mavx512f", "-mavx512bw", "-mavx512dq", "-mavx512vl"]


def hashes(folder, compiler, levels, runner=()):
    """What the check prints, one block per level, when built with this compiler."""
    objects = []
    for level in levels:
        size, *extra = LEVELS[level]
        defines = [f"-DROUNDWISE_LEVEL={level}", f"-DROUNDWISE_VECTOR_BYTES={size}"]
        objects.append(f"{folder}/{level}.o")
        command = [compiler, *FLAGS, *defines, *extra, "-c", "cpp/level.cpp", "-o", objects[-1]]
        subprocess.run(command, check=True, cwd=ROOT)
    sources = [
        "cpp/dispatch.cpp",
        "cpp/parallel.cpp",
        "cpp/sparse.cpp",
        "tests/portability_check.cpp",
    ]
    x86 = ["-DROUNDWISE_X86_LEVELS"] if len(levels) > 1 else ["-static"]
    program = f"{folder}/check"
    command = [compiler, *FLAGS, *x86, *sources, *objects, "-pthread", "-o", program]
    subprocess.run(command, check=True, cwd=ROOT)
    result = subprocess.run([*runner, program], check=True, capture_output=True, text=True)
    return result.stdout.split("level\n")[1:]


@pytest.fixture(scope="module")
def expected(tmp_path_factory):
    if shutil.which("g++") is None:
        pytest.skip("no g++ to compare with")
    return hashes(tmp_path_factory.mktemp("gcc"), "g++", ["baseline"])[0]


def require(*programs):
    for program in programs:
        if shutil.which(program) is None:
            pytest.skip(f"{program} is not installed")


def test_arm64_computes_the_same_bits(expected, tmp_path):
    require("aarch64-linux-gnu-g++", "qemu-aarch64-static")
    found = hashes(tmp_path, "aarch64-linux-gnu-g++", ["baseline"], ["qemu-aarch64-static"])
    assert found == [expected]


def test_clang_computes_the_same_bits(expected, tmp_path):
    require("clang++")
    levels = (
        list(LEVELS) if "x86_64" in subprocess.getoutput("clang++ -dumpmachine") else ["baseline"]
    )
    found = hashes(tmp_path, "clang++", levels)
    assert set(found) == {expected}
