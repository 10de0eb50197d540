"""The threads that kernels share: several callers, forks, affinity, and limits that others set."""

import math
import os
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

import roundwise as rw
from roundwise import _kernels
from roundwise.machine import threads

N = 600
RNG = np.random.default_rng(11)
SYSTEMS = [(RNG.standard_normal((N, N)) + 9 * np.eye(N), RNG.standard_normal(N)) for _ in range(4)]
linux = pytest.mark.skipif(sys.platform != "linux", reason="affinity and /proc are Linux's")


@pytest.fixture
def five_threads():
    rw.set_num_threads(5)


def test_callers_at_the_same_time_get_what_each_alone_gets(five_threads):
    alone = [rw.solve(A, b) for A, b in SYSTEMS]
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda i: rw.solve(*SYSTEMS[i % 4]), range(32)))
    for i, x in enumerate(answers):
        assert np.array_equal(x, alone[i % 4])


def lu(threads):
    work, pivots = np.asfortranarray(LARGE), np.empty(len(LARGE), dtype=np.int32)
    assert _kernels.native_lu(work, pivots, threads) == 0
    return work, pivots


def cholesky(threads):
    work = np.asfortranarray(LARGE @ LARGE.T + np.eye(len(LARGE)))
    assert _kernels.native_cholesky(work, False, threads) == 0
    return work, np.empty(0)


LARGE = RNG.standard_normal((1800, 1800))


@pytest.mark.parametrize("factorize", [lu, cholesky])
def test_a_factorization_that_loses_its_workers_to_other_callers_gives_the_same_bits(factorize):
    """With as many callers as threads, every worker is called back between two tasks."""
    expected = factorize(1)
    stop = threading.Event()

    def work():
        while not stop.is_set():
            lu, pivots = np.asfortranarray(SYSTEMS[0][0]), np.empty(N, dtype=np.int32)
            _kernels.native_lu(lu, pivots, 3)

    found = []
    with ThreadPoolExecutor(2) as pool:
        try:
            for _ in range(2):  # beside one other caller, then beside two
                pool.submit(work)
                found.append(factorize(3))
        finally:
            stop.set()
    found.append(factorize(3))  # workers are there again
    for factors, pivots in found:
        assert np.array_equal(factors, expected[0])
        assert np.array_equal(pivots, expected[1])


def test_callers_that_ask_for_different_numbers_of_threads_do_not_wait_for_each_other():
    """A worker that finds a job full, for the moment, may still join another one."""
    expected, pivots = np.asfortranarray(SYSTEMS[0][0]), np.empty(N, dtype=np.int32)
    _kernels.native_lu(expected, pivots, 1)

    def work(seed):
        rng, right = np.random.default_rng(seed), True
        for _ in range(60):
            lu = np.asfortranarray(SYSTEMS[0][0])
            _kernels.native_lu(lu, np.empty(N, dtype=np.int32), int(rng.integers(2, 17)))
            right &= np.array_equal(lu, expected)
            time.sleep(0.002 * rng.random())
        return right

    with ThreadPoolExecutor(6) as pool:
        assert all(pool.map(work, range(6)))


def test_more_threads_than_cores_give_the_same_bits():
    A = np.asfortranarray(SYSTEMS[0][0])
    found = []
    for count in (1, 2, 5, 40):
        lu, pivots = A.copy(order="F"), np.empty(N, dtype=np.int32)
        assert _kernels.native_lu(lu, pivots, count) == 0
        found.append(lu)
    assert all(np.array_equal(found[0], lu) for lu in found)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@pytest.mark.parametrize("busy", [False, True])
def test_both_go_on_after_a_fork(five_threads, busy):
    A, b = SYSTEMS[0]
    expected = rw.solve(A, b)
    stop = threading.Event()

    def work():
        while not stop.is_set():
            _kernels.native_symmetric(np.asfortranarray(A + A.T), 5)

    other = threading.Thread(target=work)
    if busy:
        other.start()
    try:
        for _ in range(5):
            child = os.fork()
            if child == 0:
                try:
                    os._exit(0 if np.array_equal(rw.solve(A, b), expected) else 1)
                finally:
                    os._exit(2)
            assert os.waitpid(child, 0)[1] == 0
            assert np.array_equal(rw.solve(A, b), expected)
    finally:
        stop.set()
        if busy:
            other.join()


def ours():
    """The cores that each thread of the pool may use."""
    found = []
    for task in Path("/proc/self/task").iterdir():
        lines = (task / "status").read_text().splitlines()
        facts = dict(line.split(":\t", 1) for line in lines if ":\t" in line)
        if facts["Name"] == "roundwise":
            found.append(facts["Cpus_allowed_list"])
    return found


@linux
def test_threads_stay_on_the_cores_that_their_caller_may_use():
    allowed = os.sched_getaffinity(0)
    A = np.ones((N, N), order="F")
    _kernels.native_symmetric(A, 3)
    try:
        for one in (min(allowed), max(allowed)):
            os.sched_setaffinity(0, {one})
            assert threads.usable_cores() == 1
            _kernels.native_symmetric(A, 3)
            assert set(ours()) == {str(one)}
            assert len(ours()) >= 2
    finally:
        os.sched_setaffinity(0, allowed)


@linux
def test_a_thread_that_sleeps_is_kept_off_one_core_at_most():
    allowed = os.sched_getaffinity(0)
    A = np.ones((N, N), order="F")
    for _ in range(20):
        _kernels.native_symmetric(A, 3)
        for task in Path("/proc/self/task").iterdir():
            if (task / "comm").read_text().startswith("roundwise"):
                cores = os.sched_getaffinity(int(task.name))
                assert cores <= allowed
                assert len(cores) >= max(1, len(allowed) - 1)


@linux
def test_the_default_follows_the_affinity():
    program = (
        "import os, roundwise as rw\n"
        "os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})\n"
        "assert rw.get_num_threads() == 1\n"
    )
    names = ("ROUNDWISE_NUM_THREADS", "OMP_NUM_THREADS")
    environment = {key: value for key, value in os.environ.items() if key not in names}
    subprocess.run([sys.executable, "-c", program], check=True, env=environment)


@pytest.mark.parametrize(("asked", "count"), [("3", 3), ("2,4", 2)])
def test_the_environment_is_heeded(asked, count):
    environment = os.environ | {"OMP_NUM_THREADS": asked}
    environment.pop("ROUNDWISE_NUM_THREADS", None)
    program = f"import roundwise as rw; assert rw.get_num_threads() == {count}"
    subprocess.run([sys.executable, "-c", program], check=True, env=environment)


@pytest.mark.skipif(threads.blas.bundled("scipy") is None, reason="SciPy has another BLAS")
def test_the_threads_that_other_tests_set_are_gone():
    """Those above leave five; conftest.py puts back the one that all tests start with."""
    assert threads.blas.bundled("scipy").threads == threads.blas.bundled("numpy").threads == 1
    assert threads._threads is None


@pytest.mark.skipif(threads.blas.bundled("scipy") is None, reason="SciPy has another BLAS")
def test_passes_take_no_more_threads_than_blas_may_use(five_threads):
    library = threads.blas.bundled("scipy")
    before = library.threads
    library.threads = 2
    try:
        assert threads.pass_threads(threads.PASS) == 2
        assert threads.pass_threads(threads.PASS - 1) == 1
    finally:
        library.threads = before


def written(root, files):
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


GROUP = "sys/fs/cgroup"


@pytest.mark.parametrize(
    ("files", "cores"),
    [
        ({}, threads.UNLIMITED),
        ({"proc/self/cgroup": "0::/\n", f"{GROUP}/cpu.max": "max 100000\n"}, threads.UNLIMITED),
        ({"proc/self/cgroup": "0::/\n", f"{GROUP}/cpu.max": "200000 100000\n"}, 2),
        ({"proc/self/cgroup": "0::/\n", f"{GROUP}/cpu.max": "150000 100000\n"}, 2),
        ({"proc/self/cgroup": "0::/\n", f"{GROUP}/cpu.max": "10000 100000\n"}, 1),
        (  # a group cannot use more than the one above it
            {
                "proc/self/cgroup": "0::/a/b\n",
                f"{GROUP}/a/b/cpu.max": "800000 100000\n",
                f"{GROUP}/a/cpu.max": "300000 100000\n",
            },
            3,
        ),
        (  # in a container only the root of its own groups is there
            {"proc/self/cgroup": "0::/../x\n", f"{GROUP}/cpu.max": "400000 100000\n"},
            4,
        ),
        (
            {
                "proc/self/cgroup": "5:memory:/d\n4:cpu,cpuacct:/d\n",
                f"{GROUP}/cpu,cpuacct/d/cpu.cfs_quota_us": "250000\n",
                f"{GROUP}/cpu,cpuacct/d/cpu.cfs_period_us": "50000\n",
            },
            5,
        ),
        (
            {
                "proc/self/cgroup": "4:cpu,cpuacct:/d\n",
                f"{GROUP}/cpu/d/cpu.cfs_quota_us": "-1\n",
                f"{GROUP}/cpu/d/cpu.cfs_period_us": "100000\n",
            },
            threads.UNLIMITED,
        ),
    ],
)
def test_control_groups(tmp_path, files, cores):
    assert threads.paid_cores(written(tmp_path, files)) == cores


@pytest.mark.parametrize(
    ("files", "free"),
    [
        ({}, math.inf),
        ({"proc/meminfo": "MemTotal: 9 kB\nMemAvailable:       7 kB\n"}, 7 * 1024),
        (  # files in the cache can be dropped; a group cannot use more than the one above it
            {
                "proc/meminfo": "MemAvailable: 1000 kB\n",
                "proc/self/cgroup": "0::/a\n",
                f"{GROUP}/a/memory.max": "max\n",
                f"{GROUP}/a/memory.current": "300000\n",
                f"{GROUP}/memory.max": "500000\n",
                f"{GROUP}/memory.current": "400000\n",
                f"{GROUP}/memory.stat": "anon 1\ninactive_file 50000\n",
            },
            150000,
        ),
        (
            {
                "proc/self/cgroup": "3:cpu:/d\n5:memory:/d\n",
                f"{GROUP}/memory/d/memory.limit_in_bytes": "1000\n",
                f"{GROUP}/memory/d/memory.usage_in_bytes": "1200\n",
            },
            0,
        ),
    ],
)
def test_free_memory(tmp_path, files, free):
    assert threads.free_memory(written(tmp_path, files)) == free
