"""The kernels compile for other processors and compilers.

Emulated kernels must compute the same bits there, and so must the analysis of sparse patterns;
native kernels must be accurate to the precision of their formats.
"""

import re
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path

import pytest
import sanitize

from roundwise import _kernels

ROOT = Path(__file__).resolve().parent.parent
FLAGS = ["-std=c++17", "-O3", "-ffp-contract=off", "-fno-math-errno", "-Wno-psabi", "-I", "cpp"]
ANALYSIS = ["amd", "dissection", "pattern", "separator", "supernodes", "symbolic", "tree"]
SOURCES = [
    "cpp/common/levels.cpp",
    "cpp/common/parallel.cpp",
    "cpp/common/pool.cpp",
    "cpp/common/spinning.cpp",
    "cpp/emulated/dispatch.cpp",
]

# Bytes of a vector and compiler flags of each level, as in CMakeLists.txt.
LEVELS = {"baseline": ["16"], "avx2": ["32", "-mavx2"]}
LEVELS["avx512"] = ["64", "-mavx512f", "-mavx512bw", "-mavx512dq", "-mavx512vl", "-mprfchw"]
NATIVE = {
    "bf16": {"portable": ["16"]},
    "level": {"baseline": ["16"]},
    "exact": {"baseline": ["16"]},
    "express": {"baseline": ["16"]},
    "orthogonal": {"baseline": ["16"]},
    "structured": {"baseline": ["16"]},
}
OF_THEIR_OWN = (
    "exact",
    "express",
    "orthogonal",
    "structured",
)  # sources whose levels have their name
EXACT = "exact", "structured"  # sources that keep rounding errors
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
    "exact": {"baseline": ["16"], "avx2": [*LEVELS["avx2"], "-mfma"], "avx512": X86_AVX512},
    "express": {"baseline": ["16"], "avx2": [*LEVELS["avx2"], "-mfma"], "avx512": X86_AVX512},
    "orthogonal": {"baseline": ["16"], "avx2": [*LEVELS["avx2"], "-mfma"], "avx512": X86_AVX512},
    "structured": {"baseline": ["16"], "avx2": [*LEVELS["avx2"], "-mfma"], "avx512": X86_AVX512},
}


def compile_level(folder, compiler, source, namespace, size, *flags):
    """Compile a source for one level; return the object file."""
    defines = [f"-DROUNDWISE_LEVEL={namespace}", f"-DROUNDWISE_VECTOR_BYTES={size}"]
    target = f"{folder}/{namespace}.o"
    command = [compiler, *FLAGS, *defines, *flags, "-c", source, "-o", target]
    subprocess.run(command, check=True, cwd=ROOT)
    return target


def emulated_objects(folder, compiler, levels, *flags):
    """Compile the emulated kernels for these levels."""
    source = "cpp/emulated/level.cpp"
    return [
        compile_level(folder, compiler, source, level, *LEVELS[level], *flags) for level in levels
    ]


def native_objects(folder, compiler, sources, *more):
    """Compile the native kernels for these levels."""
    return [
        compile_level(
            folder,
            compiler,
            f"cpp/native/{source}.cpp",
            f"{source if source in OF_THEIR_OWN else 'native'}_{level}",
            *flags,
            f"-ffp-contract={'off' if source in EXACT else 'fast'}",
            *more,
        )
        for source, levels in sources.items()
        for level, flags in levels.items()
    ]


def check_native(folder, compiler, levels, native, macros, runner=(), linked_only=None):
    """Build and run tests/native_portability_check.cpp; return what it prints.

    `linked_only` has native kernels that the program needs, and whose code is tested elsewhere:
    they, and the emulated ones, are then compiled without optimization, which takes a tenth of the
    time.
    """
    quick = ["-O0"] if linked_only else []
    objects = emulated_objects(folder, compiler, levels, *quick)
    objects += native_objects(folder, compiler, native)
    objects += native_objects(folder, compiler, linked_only or {}, *quick)
    sources = [*SOURCES, "cpp/native/dispatch.cpp", "tests/native_portability_check.cpp"]
    program = f"{folder}/check_native"
    # -O1: GCC 12 for ARM64 fails to vectorize the program that checks.
    command = [compiler, *FLAGS, "-O1", *macros, *sources, *objects, "-pthread", "-o", program]
    subprocess.run(command, check=True, cwd=ROOT)
    result = subprocess.run([*runner, program], check=False, capture_output=True, text=True)
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


def hashes(folder, compiler, levels, runner=()):
    """Build and run tests/portability_check.cpp; return what it prints, one text per level."""
    objects = emulated_objects(folder, compiler, levels)
    sources = [*SOURCES, "cpp/emulated/sparse.cpp", "tests/portability_check.cpp"]
    x86 = ["-DROUNDWISE_X86_LEVELS"] if len(levels) > 1 else ["-static"]
    program = f"{folder}/check"
    command = [compiler, *FLAGS, *x86, *sources, *objects, "-pthread", "-o", program]
    subprocess.run(command, check=True, cwd=ROOT)
    result = subprocess.run([*runner, program], check=True, capture_output=True, text=True)
    return result.stdout.split("level\n")[1:]


def analysis(folder, compiler, *flags, runner=()):
    """Build and run tests/sparse_portability_check.cpp; return what it prints."""
    program = f"{folder}/check_sparse"
    sources = [
        *(f"cpp/sparse/{name}.cpp" for name in ANALYSIS),
        "tests/sparse_portability_check.cpp",
    ]
    command = [compiler, *FLAGS, *flags, *sources]
    subprocess.run([*command, "-o", program], check=True, cwd=ROOT)
    return subprocess.run([*runner, program], check=True, capture_output=True, text=True).stdout


@cache
def expected_hashes():
    """Of g++; compiled only for a test that has another compiler to compare with."""
    with tempfile.TemporaryDirectory() as folder:
        return hashes(folder, "g++", ["baseline"])[0]


def require(*programs):
    for program in programs:
        if shutil.which(program) is None:
            pytest.skip(f"{program} is not installed")


def test_arm64_computes_the_same_bits(tmp_path):
    require("g++", "aarch64-linux-gnu-g++", "qemu-aarch64-static")
    found = hashes(tmp_path, "aarch64-linux-gnu-g++", ["baseline"], ["qemu-aarch64-static"])
    assert found == [expected_hashes()]


def test_clang_computes_the_same_bits(tmp_path):
    require("g++", "clang++")
    levels = (
        list(LEVELS) if "x86_64" in subprocess.getoutput("clang++ -dumpmachine") else ["baseline"]
    )
    found = hashes(tmp_path, "clang++", levels)
    assert set(found) == {expected_hashes()}


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
    """The software AMX is compiled as level avx512_bf16, which the dispatcher finds here."""
    require("g++")
    if "avx512_bf16" not in _kernels.native_bf16_levels():
        pytest.skip("this processor has no avx512_bf16, which the packing uses")
    emulated = ["-D__AMX_BF16__", "-include", "tests/amx_emulated.hpp"]
    flags = [*X86_NATIVE["bf16"]["avx512_bf16"], *emulated]
    native = {"bf16": {"portable": ["16"], "avx512_bf16": flags}}
    others = {source: levels for source, levels in X86_NATIVE.items() if source != "bf16"}
    macros = ["-DROUNDWISE_X86_LEVELS", "-DROUNDWISE_AVX512_BF16"]
    printed = check_native(tmp_path, "g++", list(LEVELS), native, macros, linked_only=others)
    assert "avx512_bf16 baseline" in printed


@pytest.mark.parametrize("check", ["sparse_numeric_check", "iterative_check"])
def test_a_check_that_only_sanitizers_run_still_compiles(check):
    """`make sanitize` takes minutes; a changed signature shows here."""
    require("g++")
    command = ["g++", *FLAGS, "-fsyntax-only", f"tests/{check}.cpp"]
    subprocess.run(command, check=True, cwd=ROOT)


def test_sanitizers_know_every_source_that_has_levels():
    built = re.findall(
        r"add_level\((cpp/\S+) (\w+_)?baseline", (ROOT / "CMakeLists.txt").read_text()
    )
    kernels = {source: name for source, (name, _) in sanitize.LEVELS.items() if "cpp/" in source}
    known = {source: name for source, name in kernels.items() if "bf16" not in source}
    assert known == {source: f"{prefix}baseline" for source, prefix in built}


UNSAFE = ["-funsafe-math-optimizations", "-fassociative-math", "-fno-signed-zeros", "-Ofast"]
KEEPS_ERRORS = """
#include "native/kernels.hpp"
namespace roundwise::exact_baseline { extern const ExactKernels exact_kernels; }
int main(int count, char**) {
    return roundwise::exact_baseline::exact_kernels.keeps_rounding_errors(count) ? 0 : 1;
}
"""


@pytest.mark.parametrize(("unsafe", "before"), [([], True), (UNSAFE, True), (UNSAFE[:3], False)])
def test_options_of_a_distributor_that_lose_rounding_errors_are_revoked_or_seen(
    unsafe, before, tmp_path
):
    """CXXFLAGS come before those of CMakeLists.txt; what came after would be seen at import."""
    require("g++")
    (own,) = re.findall(r"set\(exact_flags ([^)]*)\)", (ROOT / "CMakeLists.txt").read_text())
    flags = [*unsafe, *own.split()] if before else [*own.split(), *unsafe]
    source, size = "cpp/native/exact.cpp", *NATIVE["exact"]["baseline"]
    kernels = compile_level(tmp_path, "g++", source, "exact_baseline", size, *flags)
    (tmp_path / "main.cpp").write_text(KEEPS_ERRORS)
    threads = [f"cpp/common/{name}.cpp" for name in ("parallel", "pool", "spinning")]
    others = [*threads, str(tmp_path / "main.cpp"), kernels]
    program = str(tmp_path / "check_errors")
    command = ["g++", *FLAGS, "-O1", *others, *own.split(), "-pthread", "-o", program]
    subprocess.run(command, check=True, cwd=ROOT)
    assert subprocess.run([program], check=False).returncode == (0 if before else 1)


def test_levels_share_no_code_of_a_library(tmp_path):
    """The linker would keep one copy for all levels, perhaps that with AVX-512 in it."""
    require("g++", "nm")
    built = re.findall(
        r"add_level\((\S+) \w*(?:baseline|portable) ", (ROOT / "CMakeLists.txt").read_text()
    )
    assert len(built) == 10
    shared = []
    for source in built:
        kernels = compile_level(tmp_path, "g++", source, "own_level", "16", "-O0")
        listed = subprocess.run(["nm", "-C", kernels], check=True, capture_output=True, text=True)
        weak = [line for line in listed.stdout.splitlines() if re.match(r"\w+ [WVu] ", line)]
        shared += [(source, line) for line in weak if "own_level" not in line]
    assert shared == []


def test_another_compiler_is_refused_with_a_sentence(tmp_path):
    require("cmake", "g++")
    pretended = ["-DCMAKE_CXX_COMPILER_ID=MSVC", "-DCMAKE_CXX_COMPILER_ID_RUN=1"]
    pretended += ["-DCMAKE_CXX_COMPILER_FORCED=1", "-DCMAKE_CXX_COMPILER=g++"]
    command = ["cmake", "-S", ".", "-B", str(tmp_path), *pretended]
    result = subprocess.run(command, check=False, cwd=ROOT, capture_output=True, text=True)
    assert result.returncode != 0
    assert "CXX=clang++" in " ".join(result.stderr.split())


# Some compilers leave a multiply-add apart where a loop has one sum, and fuse it elsewhere. This
# option makes GCC do so for vectors of every length.
APART = ["--param=avoid-fma-max-bits=512"]
ADDRESSES = ["-fsanitize=address"]


@pytest.mark.parametrize(
    ("level", "options"), [("portable", ADDRESSES), ("avx2", APART), ("avx512_bf16", APART)]
)
def test_teams_compute_the_bits_of_one_thread(level, options, tmp_path):
    require("g++")
    if level not in [*_kernels.native_bf16_levels(), *_kernels.available_levels()]:
        pytest.skip(f"this processor has no {level}")
    library = Path(subprocess.getoutput("g++ -print-file-name=libasan.so"))
    if options == ADDRESSES and not library.is_absolute():
        pytest.skip("the compiler's library that finds wrong addresses is not installed")
    flags = [*X86_NATIVE["level" if level == "avx2" else "bf16"][level], *options]
    flags += ["-ffp-contract=fast"]
    source = "tests/native_teams_check.cpp"
    checked = compile_level(tmp_path, "g++", source, f"native_{level}", *flags)
    program = str(tmp_path / "check_teams")
    subprocess.run(["g++", checked, *options, "-pthread", "-o", program], check=True)
    result = subprocess.run([program], check=False, capture_output=True, text=True)
    assert result.returncode == 0, result.stdout + result.stderr


def test_sparse_patterns_are_analysed_alike_everywhere(tmp_path):
    """By other compilers, for ARM64, and with traps for wrong indices and undefined behaviour."""
    require("g++")
    expected = analysis(tmp_path, "g++")
    traps = ["-D_GLIBCXX_ASSERTIONS", "-fsanitize=undefined", "-fsanitize-undefined-trap-on-error"]
    found = [analysis(tmp_path, "g++", *traps, "-O1")]
    if shutil.which("clang++"):
        found.append(analysis(tmp_path, "clang++"))
    if shutil.which("aarch64-linux-gnu-g++") and shutil.which("qemu-aarch64-static"):
        found.append(
            analysis(tmp_path, "aarch64-linux-gnu-g++", "-static", runner=["qemu-aarch64-static"])
        )
    assert set(found) == {expected}
