"""The kernels compile for other processors and compilers, and compute the same bits there.

Native kernels may differ in bits: they must be right to the precision of their formats.
"""

import shutil
import subprocess
from pathlib import Path

import pytest

from roundwise import _kernels

ROOT = Path(__file__).resolve().parent.parent
FLAGS = ["-std=c++17", "-O3", "-ffp-contract=off", "-fno-math-errno", "-Wno-psabi", "-I", "cpp"]
LEVELS = {"baseline": ["16"], "avx2": ["32", "-mavx2"]}
LEVELS["avx512"] = ["64", "-mavx512f", "-mavx512bw", "-mavx512dq", "-mavx512vl"]


NATIVE = {"bf16": {"portable": ["16"]}, "level": {"baseline": ["16"]}}
X86_AVX512 = [*LEVELS["avx512"], "-mfma"]
X86_NATIVE = {
    "bf16": {
        "portable": ["16"],
        "avx512_bf16": [*X86_AVX512, "-mavx512bf16"],
        "amx": [*X86_AVX512, "-mavx512bf16", "-mamx-tile", "-mamx-bf16"],
    },
    "level": {
        "baseline": ["16"],
        "avx2": [*LEVELS["avx2"], "-mfma", "-mf16c"],
        "avx512": [*X86_AVX512, "-mf16c"],
    },
}


def native_objects(folder, compiler, sources):
    """Compiles every native level with this compiler."""
    objects = []
    for source, levels in sources.items():
        for level, (size, *extra) in levels.items():
            defines = [f"-DROUNDWISE_LEVEL=native_{level}", f"-DROUNDWISE_VECTOR_BYTES={size}"]
            objects.append(f"{folder}/native_{level}.o")
            flags = [*FLAGS, "-ffp-contract=fast", *defines, *extra]
            command = [compiler, *flags, "-c", f"cpp/native_{source}.cpp", "-o", objects[-1]]
            subprocess.run(command, check=True, cwd=ROOT)
    return objects


def check_native(folder, compiler, levels, native, macros, runner=()):
    """Runs tests/native_portability_check.cpp as this compiler builds it; what it prints."""
    objects = [*level_objects(folder, compiler, levels), *native_objects(folder, compiler, native)]
    sources = ["cpp/dispatch.cpp", "cpp/native_dispatch.cpp", "cpp/parallel.cpp"]
    program = f"{folder}/check_native"
    check = "tests/native_portability_check.cpp"
    command = [compiler, *FLAGS, *macros, *sources, check, *objects, "-pthread", "-o", program]
    subprocess.run(command, check=True, cwd=ROOT)
    result = subprocess.run([*runner, program], check=False, capture_output=True, text=True)
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


def level_objects(folder, compiler, levels):
    """Compiles cpp/level.cpp for these levels with this compiler."""
    objects = []
    for level in levels:
        size, *extra = LEVELS[level]
        defines = [f"-DROUNDWISE_LEVEL={level}", f"-DROUNDWISE_VECTOR_BYTES={size}"]
        objects.append(f"{folder}/{level}.o")
        command = [compiler, *FLAGS, *defines, *extra, "-c", "cpp/level.cpp", "-o", objects[-1]]
        subprocess.run(command, check=True, cwd=ROOT)
    return objects


def hashes(folder, compiler, levels, runner=()):
    """What the check prints, one block per level, when built with this compiler."""
    objects = level_objects(folder, compiler, levels)
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


def test_arm64_computes_native_kernels(tmp_path):
    require("aarch64-linux-gnu-g++", "qemu-aarch64-static")
    compiler, runner = "aarch64-linux-gnu-g++", ["qemu-aarch64-static"]
    printed = check_native(tmp_path, compiler, ["baseline"], NATIVE, ["-static"], runner)
    assert "portable baseline" in printed


def test_clang_computes_native_kernels(tmp_path):
    require("clang++")
    if "x86_64" in subprocess.getoutput("clang++ -dumpmachine"):
        macros = ["-DROUNDWISE_X86_LEVELS", "-DROUNDWISE_AVX512_BF16", "-DROUNDWISE_AMX"]
        printed = check_native(tmp_path, "clang++", list(LEVELS), X86_NATIVE, macros)
    else:
        printed = check_native(tmp_path, "clang++", ["baseline"], NATIVE, [])
    assert "portable baseline" in printed


def test_amx_level_on_emulated_registers(tmp_path):
    """Under the name avx512_bf16, as that is what the processor has."""
    require("g++")
    if "avx512_bf16" not in _kernels.native_bf16_levels():
        pytest.skip("this processor has no avx512_bf16, which the packing uses")
    emulated = ["-D__AMX_BF16__", "-include", "tests/amx_emulated.hpp"]
    flags = [*X86_NATIVE["bf16"]["avx512_bf16"], *emulated]
    native = {
        "bf16": {"portable": ["16"], "avx512_bf16": flags},
        "level": X86_NATIVE["level"],
    }
    macros = ["-DROUNDWISE_X86_LEVELS", "-DROUNDWISE_AVX512_BF16"]
    printed = check_native(tmp_path, "g++", list(LEVELS), native, macros)
    assert "avx512_bf16 baseline" in printed
