"""Nothing around a solve breaks it: profiles, caches and memories that cannot be read or written.

An answer comes at once, with one warning that names the file; what could be kept is kept.
"""

import json
import os
import sqlite3
import subprocess
import sys
import warnings
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from calibrated import calibration

import roundwise as rw
from roundwise._files import replace_file
from roundwise.costs import ProfileWarning, prices, save_profile
from roundwise.machine import Machine
from roundwise.outcomes import OutcomeTable, OutcomeTableError
from roundwise.policies import Memory, MemoryFileWarning
from roundwise.policies.memory import Arm, Observation
from roundwise.policies.memory_file import MemoryFileError
from roundwise.problems import randsvd, write_matrix_market

SYSTEM = randsvd(160, 10.0, 3, rng=2)
EQUATION = SYSTEM.A, SYSTEM.b


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    """A cache folder of the test's own, and prices that are looked up anew."""
    monkeypatch.setenv("ROUNDWISE_CACHE", str(tmp_path / "cache"))
    prices._prices_of.cache_clear()
    yield tmp_path / "cache"
    prices._prices_of.cache_clear()


def solved(solver=rw):
    """Solve, and return the warnings that came."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        x = solver.solve(SYSTEM.A, SYSTEM.b)
    assert np.abs(SYSTEM.b - SYSTEM.A @ x).max() <= 1e-12 * np.abs(x).max()
    return caught


def observation(cost=1.0, discount=0.5, cell="cell"):
    return Observation(cell, "fp32", 1, cost, 1.0, discount)


# Machine profiles


def damaged(change):
    """Write a profile whose content was changed by a function."""
    path = save_profile(calibration())
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))


def first_rate(content):
    return content["profile"]["rates"]["fp64"]


DAMAGES = {
    "no JSON": lambda path: path.write_text("{"),
    "not UTF-8": lambda path: path.write_bytes(b"\xff\xfe\xff"),
    "a folder": lambda path: (path.unlink(), path.mkdir()),
    "5000 digits": lambda path: path.write_text('{"version": ' + "9" * 5000 + "}"),
    "nested": lambda path: path.write_text("[" * 100_000),
    "newer": lambda _: damaged(lambda c: c.update(version=99)),
    "null": lambda _: damaged(lambda c: first_rate(c).update(flops_per_second=None)),
    "NaN": lambda _: damaged(lambda c: first_rate(c).update(flops_per_second=float("nan"))),
    "400 digits": lambda _: damaged(lambda c: first_rate(c).update(flops_per_second=10**400)),
    "tiny": lambda _: damaged(lambda c: first_rate(c).update(flops_per_second=1e-300)),
    "true": lambda _: damaged(lambda c: c["profile"].update(run_overhead=True)),
    "a list for a text": lambda _: damaged(lambda c: c["profile"].update(source=[])),
    "no fp64": lambda _: damaged(lambda c: c["profile"].update(rates={}, sizes={})),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_a_profile_that_cannot_be_used_is_one_warning(name):
    path = save_profile(calibration())
    assert solved() == []
    DAMAGES[name](path)
    prices._prices_of.cache_clear()
    (told,) = solved()
    assert told.category is ProfileWarning
    assert str(path) in str(told.message)
    assert "run `roundwise calibrate`" in str(told.message)
    assert str(told.message).isprintable()
    assert solved() == []  # once
    threads = prices.dense_threads(Machine.this())
    assert rw.costs.current_prices() is prices.generic_prices(threads)


def test_no_profile_is_no_warning(monkeypatch):
    assert solved() == []
    for name in ("ROUNDWISE_CACHE", "XDG_CACHE_HOME", "HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(Path, "home", lambda: (_ for _ in ()).throw(RuntimeError("no home")))
    prices._prices_of.cache_clear()
    assert solved() == []


def test_a_cache_folder_that_is_a_file_is_one_warning(cache):
    cache.write_text("")
    (told,) = solved()
    assert told.category is ProfileWarning
    assert str(cache) in str(told.message)
    assert solved() == []


# Memories


def test_observations_compose():
    """Adding two at once is adding one after the other."""
    first, second, arm = observation(2.0), observation(4.0, 0.25), Arm(3, 2.0, 8.0, 2.0)
    assert first.then(second).added_to(arm) == second.added_to(first.added_to(arm))
    assert first.added_to(Arm()) == Arm(1, 1.0, 2.0, 1.0)


def test_a_locked_memory_costs_no_time_and_loses_nothing(tmp_path, small_crossover):
    path = tmp_path / "memory.sqlite"
    solver = rw.Solver(memory=path)
    assert solved(solver) == []
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    (told,) = solved(solver)
    assert [solved(solver) for _ in range(3)] == [[]] * 3
    assert solver._learner.memory._patience == 0  # after a tenth of a second, once
    assert told.category is MemoryFileWarning
    assert f"{path}: locked by another process" in str(told.message)
    assert "from 5 solves of similar systems" in solver.solve(*EQUATION, full_output=True).decision
    assert len(Memory(path).cells()) == 2
    counts = [arm.count for arms in Memory(path).cells().values() for arm in arms.values()]
    assert max(counts) == 1  # the file does not know them yet
    other.execute("ROLLBACK")
    other.close()
    assert solved(solver) == []
    counts = [arm.count for arms in Memory(path).cells().values() for arm in arms.values()]
    assert max(counts) == 7


def test_what_waits_is_written_at_the_end(tmp_path):
    path = tmp_path / "memory.sqlite"
    memory = Memory(path)
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.warns(MemoryFileWarning, match="locked"):
        memory.add([observation()])
    memory.add([observation(3.0)])
    known = memory.cell("cell")
    other.execute("ROLLBACK")
    other.close()
    memory.close()
    assert Memory(path).cell("cell") == known == {"fp32": Arm(2, 1.5, 3.5, 1.5)}


def test_a_memory_that_is_locked_from_the_start(tmp_path, small_crossover):
    path = tmp_path / "memory.sqlite"
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    with pytest.warns(MemoryFileWarning, match="locked"):
        solver = rw.Solver(memory=path)
    assert solved(solver) == []
    other.execute("ROLLBACK")
    other.close()
    assert solved(solver) == []
    cells = Memory(path).cells().values()
    assert {arm.count for arms in cells for arm in arms.values() if arm.count} == {2}


@pytest.mark.parametrize("value", ["'text'", "x'ff'", "-1.0", "9e999", "0.0"])
@pytest.mark.parametrize("column", ["count", "weight", "cost", "priced"])
def test_rows_without_sound_numbers_are_passed_over(tmp_path, column, value):
    path = tmp_path / "memory.sqlite"
    memory = Memory(path)
    memory.add([observation(), observation(cell="other")])
    memory.close()
    with sqlite3.connect(path) as other:
        other.execute(f"UPDATE arm SET {column} = {value} WHERE cell = 'cell'")
    other.close()
    memory = Memory(path)
    if (column, value) != ("count", "0.0"):  # a count that SQLite stores as 0, which is one
        assert list(memory.cells()) == ["other"]
    memory.add([observation(7.0)])
    arm = memory.cell("cell")["fp32"]
    assert arm.is_sound
    if (column, value) != ("count", "0.0"):
        assert arm == Arm(1, 1.0, 7.0, 1.0)


AS_NOBODY = """
import os, sys, warnings
from roundwise.policies import Memory
from roundwise.policies.memory import Observation
Memory().cells()  # imports all that is needed: nobody may not read this Python
os.setgid(65534)
os.setuid(65534)
warnings.simplefilter("always")
memory = Memory(sys.argv[1])
for _ in range(3):
    memory.add([Observation("cell", "fp32", 1, 1.0, 1.0, 0.5)])
    print(memory.cell("cell")["fp32"].count, flush=True)
os._exit(0)
"""


def as_here():
    """The threads of this process, for another one: with others it would be another machine."""
    here = Machine.this()
    return {
        "OPENBLAS_NUM_THREADS": str(here.blas_threads or 1),
        "ROUNDWISE_NUM_THREADS": str(here.threads),
    }


@pytest.mark.skipif(os.name != "posix" or os.getuid() != 0, reason="only root can be another user")
@pytest.mark.parametrize("what", ["file", "folder"])
def test_a_read_only_memory_is_read_and_left_alone(what):
    folder = Path("/tmp") / f"roundwise-read-only-{os.getpid()}-{what}"
    folder.mkdir()
    try:
        path = folder / "memory.sqlite"
        memory = Memory(path)
        memory.add([observation()])
        memory.close()
        path.chmod(0o444 if what == "file" else 0o666)
        folder.chmod(0o777 if what == "file" else 0o555)
        before = path.read_bytes()
        run = subprocess.run(
            [sys.executable, "-c", AS_NOBODY, str(path)],
            capture_output=True,
            text=True,
            timeout=60,
            env=os.environ | as_here(),
        )
        assert run.returncode == 0, run.stderr
        assert run.stdout.split()[-3:] == ["2", "3", "4"]
        assert run.stderr.count("MemoryFileWarning") == 1
        assert path.read_bytes() == before
        assert list(folder.iterdir()) == [path]
    finally:
        folder.chmod(0o777)
        for file in folder.iterdir():
            file.unlink()
        folder.rmdir()


def test_an_error_that_ends_a_transaction_is_not_hidden(tmp_path):
    path = tmp_path / "memory.sqlite"
    Memory(path).close()
    path.with_name("memory.sqlite-journal").mkdir()  # SQLite cannot read it
    with pytest.raises(MemoryFileError, match="disk I/O error; check that its disk works"):
        Memory(path)


# Full disks


@contextmanager
def full_disk(size):
    """Files cannot grow beyond a size: what a full disk does, without one.

    Only within the block: what pytest writes may go to a file, too.
    """
    resource = pytest.importorskip("resource")  # POSIX has it
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_full_disk_leaves_the_old_file(tmp_path):
    path = tmp_path / "x.mtx"
    write_matrix_market(path, np.ones((3, 1)))
    before = path.read_bytes()
    for write in (
        lambda: write_matrix_market(path, np.ones((10_000, 1))),
        lambda: replace_file(path, bytes(10_000)),
    ):
        with full_disk(1 << 12), pytest.raises(OSError, match=r"x\.mtx"):
            write()
        assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_a_full_disk_leaves_the_old_tuner(tmp_path):
    problems = [randsvd(10 + k, 10.0, 2, rng=k) for k in range(3)]
    tuner = rw.Tuner(rw.LuIR(), ("fp32", "fp64"), episodes=2).fit(problems)
    path = tmp_path / "policy.json"
    tuner.save(path)
    before = {file.name: file.read_bytes() for file in tmp_path.iterdir()}
    tuner.episodes = 9
    tuner.fit(problems)
    with full_disk(100), pytest.raises(OSError, match="policy"):
        tuner.save(path)
    assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == before


def test_a_full_disk_makes_learning_wait(tmp_path):
    path = tmp_path / "memory.sqlite"
    memory = Memory(path)
    memory.add([observation()])
    with full_disk(1 << 12), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for k in range(300):
            memory.add([observation(cell=f"cell {k}")])
    (told,) = caught
    assert told.category is MemoryFileWarning
    assert "disk" in str(told.message)
    memory.close()
    assert len(Memory(path).cells()) == 301


def test_a_full_disk_leaves_the_outcomes(tmp_path):
    table = OutcomeTable(tmp_path / "outcomes.sqlite")
    problems = [randsvd(10, 10.0, 2, rng=k) for k in range(40)]
    rw.Tuner(rw.LuIR(), ("fp32", "fp64"), episodes=1, table=table).fit(problems[:3])
    before = table.content()
    full = full_disk(table.path.stat().st_size + 1000)
    with full, pytest.raises(OutcomeTableError, match=r"outcomes\.sqlite.*disk"):
        rw.Tuner(rw.LuIR(), episodes=1, table=table).fit(problems)
    after = OutcomeTable(table.path).content()
    assert set(before) <= set(after)
    rw.Tuner(rw.LuIR(), episodes=1, table=table).fit(problems)  # and it goes on
