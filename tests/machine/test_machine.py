"""The machine's identity, and one thread setting for our kernels and for BLAS."""

import dataclasses
import os
import platform
import subprocess
import sys

import pytest
from threadpoolctl import threadpool_info, threadpool_limits

import roundwise as rw
from roundwise.backends import NativeBackend
from roundwise.machine import blas as _blas
from roundwise.machine import identity as machine
from roundwise.machine.identity import Machine
from roundwise.machine.threads import factorization_threads, require_python

HERE = Machine("Some CPU @ 2.5GHz (x)", 4, 2, "OpenBLAS 0.3.30", 2, "avx512")


def openblas_threads():
    """Threads by library file, as threadpoolctl sees them."""
    found = [pool for pool in threadpool_info() if pool["internal_api"] == "openblas"]
    return {pool["filepath"]: pool["num_threads"] for pool in found}


@pytest.mark.skipif(_blas.bundled("scipy") is None, reason="SciPy has another BLAS")
def test_one_setting_reaches_every_bundled_blas(threads):
    for count in (2, 1, 2):
        threads(count)
        assert rw.get_num_threads() == Machine.this().threads == count
        assert Machine.this().blas_threads == count
        assert set(openblas_threads().values()) == {count}


@pytest.mark.skipif(_blas.bundled("scipy") is None, reason="SciPy has another BLAS")
def test_at_start_the_environment_rules():
    code = (
        "import roundwise as rw; from roundwise.machine import Machine; import scipy.linalg;"
        "m = Machine.this(); print(m.threads, m.blas_threads)"
    )
    environment = os.environ | {"OPENBLAS_NUM_THREADS": "1", "ROUNDWISE_NUM_THREADS": "3"}
    run = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    assert run.stdout.split() == ["3", "1"]


def test_the_instruction_set_is_asked_each_time(simd_level):
    assert Machine.this().simd == simd_level


def test_another_blas_is_left_alone_and_named(monkeypatch, threads):
    monkeypatch.setattr(_blas, "bundled", lambda package: None)
    before = openblas_threads()
    threads(5)
    assert openblas_threads() == before
    assert Machine.this().blas_threads is None
    assert Machine.this().blas  # the name in SciPy's build configuration
    assert "unknown threads" in str(Machine.this())


def test_no_library_beside_a_package_that_has_none():
    assert _blas.bundled("json") is None
    assert _blas.bundled("no_such_package") is None


def test_the_key_tells_every_difference():
    changed = {"cpu": "Other", "cores": 2, "threads": 1, "blas": "MKL", "simd": "baseline"}
    others = [dataclasses.replace(HERE, **{name: value}) for name, value in changed.items()]
    others += [dataclasses.replace(HERE, blas_threads=None)]
    assert len({m.key for m in [HERE, *others]}) == 7
    assert HERE.key == dataclasses.replace(HERE).key == "some-cpu-2-5ghz-x-2t-6d755890"
    assert HERE.differences(others[2]) == {"threads": (2, 1)}


def test_round_trip():
    assert Machine.from_dict(HERE.to_dict()) == HERE
    with pytest.raises(ValueError, match="save it again"):
        Machine.from_dict({"cpu": "x"})


CPUINFO = (
    "processor: 0\ncpu family\t: 25\nmodel\t\t: 17\nmodel name\t: AMD EPYC\n\nmodel name: no\n"
)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        (CPUINFO, "AMD EPYC (family 25, model 17)"),
        ("model name: Fast One\n", "Fast One"),
        (
            "processor: 0\nCPU implementer: 0x41\nCPU part: 0xd40\n",
            "ARM implementer 0x41, part 0xd40",
        ),
        ("processor: 0\n", ""),
        (None, ""),
    ],
)
def test_names_of_processors(tmp_path, text, name):
    if text is not None:
        (tmp_path / "cpuinfo").write_text(text)
    assert machine._from_cpuinfo(tmp_path / "cpuinfo") == name
    assert machine.cpu_model()


def test_lu_uses_no_more_threads_than_blas(threads):
    if _blas.bundled("scipy") is None:
        pytest.skip("SciPy uses another BLAS here")
    threads(3)
    assert factorization_threads() == 3
    with threadpool_limits(1):
        assert factorization_threads() == 1
    threads(1)
    with threadpool_limits(2):
        assert factorization_threads() == 1


def test_native_results_belong_to_their_machine(threads):
    backend = NativeBackend()
    threads(1)
    one, before = backend.description, backend.machine
    assert one == f"native on {before.key}"
    threads(2)
    assert backend.description != one
    assert backend.machine.threads == 2
    assert before.threads == 1
    settings = NativeBackend(bf16_instructions="portable", symmetric_mode=False).description
    assert settings.startswith(f"native on {Machine.this().key}, bf16_instructions='portable', sym")


@pytest.mark.skipif(
    sys.platform != "linux" or platform.machine() != "x86_64", reason="of Linux on x86-64"
)
def test_an_import_does_not_ask_for_the_registers_of_amx():
    """Linux enlarges what signal handlers need of their stacks, when a process asks for them."""
    code = (
        "import ctypes, numpy, roundwise; roundwise.solve(numpy.eye(30), numpy.ones(30));"
        "granted = ctypes.c_uint64();"
        "unknown = ctypes.CDLL(None).syscall(158, 0x1022, ctypes.byref(granted));"
        "print(unknown or granted.value >> 18 & 1)"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.split() != ["1"]


def test_solves_in_another_interpreter_are_refused():
    """They hung."""
    code = (
        "import sys, _xxsubinterpreters as others; one = others.create();"
        "others.run_string(one, f'import sys; sys.path[:] = {sys.path!r}; import roundwise; '"
        "'roundwise.solve([[2.0]], [1.0])')"
    )
    if sys.version_info >= (3, 13):
        pytest.skip("other interpreters have another module there; NumPy refuses them")
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "the main interpreter alone" in run.stderr


def test_python_without_its_lock_is_refused_and_told_what_to_do():
    require_python(in_main=True, has_lock=True)
    with pytest.raises(ImportError, match="leave out -X gil=0"):
        require_python(in_main=True, has_lock=False)
