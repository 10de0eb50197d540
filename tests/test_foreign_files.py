"""Files that are foreign, damaged or hostile: only documented errors, in one line with their name.

Each loader reads mutations of good files, a few hundred by default; ROUNDWISE_FUZZ_FILES=10000 sets
another number. What is loaded without an error must serve: a solve that it steers passes the gate.
"""

import gzip
import hashlib
import importlib
import io
import json
import os
import random
import shutil
import sqlite3
import warnings
from pathlib import Path

import numpy as np
import pytest
import scipy.io
import scipy.sparse as sp
from calibrated import calibration
from cases import FRONT_DOOR_POLICIES, LEARNERS
from command_line import fail
from exact import backward_error
from fuzz_files import mutate_database, mutated_bytes, mutated_json, mutated_text

import roundwise as rw
from roundwise.costs import ProfileError, current_prices, load_profile, prices, save_profile
from roundwise.outcomes import OutcomeTable, OutcomeTableError
from roundwise.outcomes.table import table_summary
from roundwise.policies import Memory, MemoryFileError, NeighbourPolicy, OnlinePolicy
from roundwise.policies.memory import Observation
from roundwise.policies.profile import Profile
from roundwise.problems import randsvd, read_matrix_market
from roundwise.problems.matrix_market import read_arrays
from roundwise.solver.policy_argument import default_policy
from roundwise.tuning import TunerFileError

COUNT = int(os.environ.get("ROUNDWISE_FUZZ_FILES", "200"))
ADDRESS_SPACE = 4 << 30
"""Bytes beyond those in use that a loader may ask for: none of the good files needs 1 MB."""

SYSTEM = randsvd(40, 100.0, 3, rng=5)
FORMATS = ("fp32", "fp64")


@pytest.fixture(autouse=True)
def little_memory():
    """An allocation that a file talks a loader into is a MemoryError, where Linux can see to it."""
    if not Path("/proc/self/statm").is_file():
        yield
        return
    resource = importlib.import_module("resource")
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (used + ADDRESS_SPACE, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_AS, before)


def check(path, load, documented, case):
    """Load it; an error must be documented, one line, and name the file."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            load(path)
    except documented as error:
        message = str(error)
        assert path.name.partition(".")[0] in message, f"case {case}: {message}"
        assert message.isprintable(), f"case {case}: {message!r}"
        assert len(message) < 1500, f"case {case}: {message}"
        return message
    except Exception as error:
        raise AssertionError(f"case {case}: {type(error).__name__}: {error}") from error
    return None


# Tuners


@pytest.fixture(scope="module")
def tuners(tmp_path_factory):
    """Saved tuners with every kind of policy."""
    folder = tmp_path_factory.mktemp("tuners")
    problems = [randsvd(20 + k, 10.0 ** (1 + k), 2, rng=k) for k in range(5)]
    table = OutcomeTable(folder / "native.sqlite")
    for name, policy in FRONT_DOOR_POLICIES.items():
        tuner = rw.Tuner(rw.VerifiedSolve(), policy=policy(), table=table, episodes=3, jobs=1)
        tuner.fit(problems).save(folder / f"{name}.json")
    table = OutcomeTable(folder / "emulated.sqlite")
    for k, policy in enumerate(LEARNERS):
        tuner = rw.Tuner(rw.GmresIR.paper(), FORMATS, policy=policy(), table=table, episodes=3)
        tuner.fit(problems).save(folder / f"paper{k}.json")
    return sorted(folder.glob("*.json"))


def solve_with(path):
    solution = rw.solve(SYSTEM.A, SYSTEM.b, policy=str(path), full_output=True)
    assert backward_error(SYSTEM.A, solution.x, SYSTEM.b) <= np.sqrt(SYSTEM.n) * 2.0**-52
    rw.Tuner.load(path).predict(SYSTEM)


def with_arrays(content, packed, folder):
    """Write the arrays beside the tuner, and their digest into it: a damage that nobody noticed."""
    digest = hashlib.sha256(packed).hexdigest()
    (folder / "mutant.npz").write_bytes(packed)
    return content | {"arrays": "mutant.npz", "sha256": digest}


def mutated_arrays(packed, rng):
    """An archive with an array of other numbers, another shape or type; or mutated bytes."""
    if rng.random() < 0.3:
        return mutated_bytes(packed, rng)
    with np.load(io.BytesIO(packed)) as stored:
        arrays = {name: stored[name] for name in stored.files}
    if arrays:
        name = rng.choice(sorted(arrays))
        array, kind = arrays.pop(name), rng.randrange(8)
        numbers = [np.nan, np.inf, -1, 0, 1e300, 2**62, 1e-300]
        if kind == 0:
            arrays[f"{name}x"] = array
        elif kind == 1:
            arrays[name] = array.astype(np.str_)
        elif kind == 2:
            arrays[name] = array[..., None]
        elif kind == 3:
            arrays[name] = array[:-1] if array.ndim else array
        elif kind == 4:
            arrays[name] = np.concatenate([array, array]) if array.ndim else array
        elif array.size and array.dtype.kind in "fi":
            array = array.copy()
            with np.errstate(invalid="ignore"):
                number = np.array(rng.choice(numbers)).astype(array.dtype)
            array.flat[rng.randrange(array.size)] = number
            arrays[name] = array.astype(complex) if kind == 5 else array
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    return buffer.getvalue()


def test_tuners(tuners, tmp_path):
    refused = 0
    for case in range(COUNT):
        rng = random.Random(case)
        source = tuners[case % len(tuners)]
        content = json.loads(source.read_text())
        packed = source.with_name(content["arrays"]).read_bytes()
        path = tmp_path / "mutant.json"
        if rng.random() < 0.4:
            content = with_arrays(content, mutated_arrays(packed, rng), tmp_path)
            path.write_text(json.dumps(content))
        else:
            content = with_arrays(content, packed, tmp_path)
            path.write_bytes(mutated_json(json.dumps(content, indent=1).encode(), rng))
        refused += check(path, solve_with, TunerFileError, case) is not None
    assert COUNT / 4 < refused < COUNT


# Outcome tables


@pytest.fixture(scope="module")
def tables(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tables")
    problems = [randsvd(10 + k, 100.0, 2, rng=k) for k in range(3)]
    for algorithm, name in ((rw.VerifiedSolve(), "native"), (rw.GmresIR.paper(), "emulated")):
        table = OutcomeTable(folder / f"{name}.sqlite")
        rw.Tuner(algorithm, FORMATS, table=table, episodes=1, jobs=1).fit(problems)
    return problems, sorted(folder.glob("*.sqlite"))


def test_outcome_tables(tables, tmp_path):
    problems, sources = tables
    path, merged = tmp_path / "mutant.sqlite", tmp_path / "merged.sqlite"
    refused = 0

    def use(path):
        table = OutcomeTable(path)
        table_summary(path)
        table.content()
        table.origins()
        merged.unlink(missing_ok=True)
        OutcomeTable(merged).merge([path])
        native = "native" in source.name
        algorithm = rw.VerifiedSolve() if native else rw.GmresIR.paper()
        space = algorithm.action_space(FORMATS, problems)
        arithmetic = "native" if native else "operation"
        view = table.view(algorithm, problems, space, arithmetic)
        for k in range(len(problems)):
            view.row(k)
        OutcomeTable(merged)  # checks it

    for case in range(COUNT):
        rng = random.Random(case)
        source = sources[case % 2]
        shutil.copy(source, path)
        mutate_database(path, rng)
        refused += check(path, use, OutcomeTableError, case) is not None
        for journal in tmp_path.glob("*-*"):
            journal.unlink()
    assert COUNT / 4 < refused < COUNT


# Memories


def test_memories(tmp_path):
    source, path = tmp_path / "source.sqlite", tmp_path / "mutant.sqlite"
    seen = Profile("dense", 1000, 10**6, 0.02, 1.0)
    good, names = Memory(source), default_policy().space.names
    for k in range(20):
        cells = seen.bin, seen.series, f"dense/n={k}"
        good.add(Observation(cell, names[k % 2], 1, 1.0, 1.0, 0.9) for cell in cells)
    good.close()
    refused = 0

    def use(path):
        learner = OnlinePolicy(NeighbourPolicy(default_policy().facts), Memory(path))
        learner.space = learner.prior.space = default_policy().space
        learner.decide(seen)
        learner.memory.add([Observation(seen.bin, names[0], 1, 1.0, 1.0, 0.9)])
        assert learner.memory.cell(seen.bin)[names[0]].is_sound
        learner.summary()
        learner.memory.close()

    for case in range(COUNT):
        shutil.copy(source, path)
        mutate_database(path, random.Random(case))
        refused += check(path, use, MemoryFileError, case) is not None
        for journal in tmp_path.glob("*-*"):
            journal.unlink()
    assert COUNT / 20 < refused < COUNT


# Machine profiles


def test_machine_profiles(tmp_path, monkeypatch):
    monkeypatch.setenv("ROUNDWISE_CACHE", str(tmp_path))
    path = save_profile(calibration())
    good = path.read_bytes()
    refused = 0

    def use(path):
        load_profile(path)

    for case in range(COUNT):
        path.write_bytes(mutated_json(good, random.Random(case)))
        refused += check(path, use, ProfileError, case) is not None
        prices._prices_of.cache_clear()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = current_prices()
            solution = rw.solve(SYSTEM.A, SYSTEM.b, full_output=True)
            policy = NeighbourPolicy(default_policy().facts, found)
            policy.start(np.empty((0, 9)), default_policy().space)
            assert policy.rank(Profile("dense", 1000, 10**6, 0.02, 1.0)).reason
        assert solution.backward_error <= np.sqrt(SYSTEM.n) * 2.0**-52
    prices._prices_of.cache_clear()
    assert COUNT / 4 < refused < COUNT


# Matrix Market files


def good_matrices():
    rng = np.random.default_rng(3)
    A = sp.random_array((12, 12), density=0.3, rng=rng) + sp.eye_array(12)
    symmetric = A + A.T
    for matrix, options in (
        (sp.coo_array(A), {}),
        (sp.coo_array(symmetric), {"symmetry": "symmetric"}),
        (A.toarray(), {}),
        (symmetric.toarray(), {"symmetry": "symmetric"}),
        (rng.integers(-9, 9, (12, 12)), {}),
    ):
        text = io.BytesIO()
        scipy.io.mmwrite(text, matrix, **options)
        yield text.getvalue()


def test_matrix_market_files(tmp_path):
    sources = list(good_matrices())
    right = io.BytesIO()
    scipy.io.mmwrite(right, np.ones((12, 2)))
    A = tmp_path / "whole.mtx"
    A.write_bytes(sources[0])
    refused = 0
    for case in range(COUNT):
        rng = random.Random(case)
        kind = rng.randrange(4)
        if kind == 0:
            path, load = tmp_path / "mutant.mtx", lambda path: read_arrays(A, path)
            path.write_bytes(mutated_text(right.getvalue(), rng))
        elif kind == 1:
            path, load = tmp_path / "mutant.mtx.gz", read_matrix_market
            content = mutated_text(rng.choice(sources), rng)
            packed = gzip.compress(content, mtime=0)
            path.write_bytes(packed if rng.random() < 0.5 else mutated_bytes(packed, rng))
        else:
            path, load = tmp_path / "mutant.mtx", read_matrix_market
            path.write_bytes(mutated_text(rng.choice(sources), rng))
        refused += check(path, load, ValueError, case) is not None
    assert COUNT / 4 < refused < COUNT


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("coordinate real general\n1000000000 1000000000 1\n1 1 1.0\n", "claims 1000000000 rows"),
        ("coordinate real general\n3 3 1000000000\n1 1 1.0\n", "claims 1000000000 entries"),
        ("array real general\n100000 100000\n1.0\n", "claims 10000000000 entries"),
        ("array real symmetric\n100000 100000\n1.0\n", "claims 5000050000 entries"),
        ("array real general\n1 2\n1.0\n2.0\n", "1 x 2 matrix"),
        ("array real symmetric\n1 2\n1.0\n2.0\n", "1 x 2 matrix"),
        ("coordinate real general\n1 1 1\n1 1 1.0\n1 1 2.0\n", "claims 1 entries of 3 numbers"),
        ("coordinate real general\n1 1 1\n1 1 1.0E", "no number"),
        ("coordinate real general\n2 2 2\n1 1 1.0\n2 3 1.0\n", "not within"),
        ("coordinate real general\n2 2 2\n1 1 1.0\n2 1.5 1.0\n", "not within"),
        ("coordinate real lopsided\n1 1 1\n1 1 1.0\n", "lopsided"),
        ("coordinate real general\n-1 -1 1\n1 1 1.0\n", "sizes"),
        ("coordinate real general\n" + "9" * 5000 + " 1 1\n1 1 1.0\n", "sizes"),
    ],
)
def test_claims_of_a_matrix_market_file_are_checked_first(tmp_path, text, reason):
    path = tmp_path / "claims.mtx"
    path.write_text("%%MatrixMarket matrix " + text)
    with pytest.raises(ValueError, match=reason) as caught:
        read_matrix_market(path)
    assert str(path) in str(caught.value)
    assert str(path) in fail(1, "solve", path)


def test_a_right_hand_side_of_empty_columns_is_refused(tmp_path):
    scipy.io.mmwrite(tmp_path / "a.mtx", sp.eye_array(3))
    path = tmp_path / "b.mtx"
    path.write_text("%%MatrixMarket matrix coordinate real general\n3 100000000 1\n1 1 1.0\n")
    with pytest.raises(ValueError, match="leave out the columns"):
        read_arrays(tmp_path / "a.mtx", path)


def test_skew_symmetric_and_many_digits(tmp_path):
    """By hand; SciPy's reader crashes on numbers of 25 digits."""
    path = tmp_path / "skew.mtx"
    path.write_text("%%MatrixMarket matrix array real skew-symmetric\n2 2\n3\n")
    np.testing.assert_array_equal(read_matrix_market(path).A, [[0, -3], [3, 0]])
    path.write_text(
        "%%MatrixMarket matrix coordinate real skew-symmetric\n2 2 1\n"
        "2 1 3.0000000000000000000000001\n"
    )
    np.testing.assert_array_equal(read_matrix_market(path).A.toarray(), [[0, -3], [3, 0]])


# The command


def test_commands_end_with_one_line(tables, tuners, tmp_path):
    matrix, policy, table = tmp_path / "a.mtx", tmp_path / "policy.json", tmp_path / "t.sqlite"
    scipy.io.mmwrite(matrix, SYSTEM.A)
    policy.write_text('{"schema": "roundwise-tuner", "version": ' + "9" * 5000 + "}")
    assert str(policy) in fail(1, "solve", matrix, "--policy", policy)
    policy.write_text(tuners[0].read_text().replace('"version": 1', '"version": null'))
    assert str(policy) in fail(1, "solve", matrix, "--policy", policy)
    shutil.copy(tables[1][0], table)
    with sqlite3.connect(table) as other:
        other.execute("UPDATE outcome SET status = 'zzz' WHERE rowid = 1")
    other.close()
    for command in (("merge", tmp_path / "out.sqlite", table), ("info", "--table", table)):
        line = fail(1, *command)
        assert str(table) in line
        assert "is no outcome" in line
    with pytest.raises(OutcomeTableError, match="is no outcome"):
        OutcomeTable(table)
