"""Calibration: what is measured, what is stored, and when a stored profile is stale."""

import json
import math
import re

import pytest
from calibrated import VECTOR_KERNELS, calibration
from click.testing import CliRunner

import roundwise as rw
from roundwise.backends import NativeBackend, native_formats
from roundwise.cli import main
from roundwise.commands.calibrate import relative
from roundwise.costs import (
    MachineProfile,
    ProfileError,
    Rate,
    calibrate,
    load_profile,
    rates,
    save_profile,
)
from roundwise.costs import calibration as measuring
from roundwise.costs.rates import cache_folder, profile_path
from roundwise.costs.sparse_calibration import SYSTEMS
from roundwise.machine.identity import Machine
from roundwise.problems import randsvd
from roundwise.rewards import CostReward


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    """A cache folder of the test's own; not made yet."""
    monkeypatch.setenv("ROUNDWISE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def complaint(path=None):
    with pytest.raises(ProfileError) as error:
        load_profile(path)
    assert "\n" not in str(error.value)
    assert "run `roundwise calibrate`" in str(error.value)
    return str(error.value)


def test_every_kernel_of_every_native_format_is_measured():
    seen = []
    measured = calibrate(
        (4, 8),
        seconds_per_kernel=0.0,
        progress=lambda done, total: seen.append((done, total)),
        sparse={},
    )
    names = [fmt.name for fmt in native_formats()]
    assert list(measured.times) == list(measured.overheads) == names
    for by_size in measured.times.values():
        assert list(by_size) == [4, 8]
        assert all(set(times) == {"lu", "solve", "matvec"} for times in by_size.values())
    for overheads in measured.overheads.values():
        assert set(overheads) == {"lu", "solve", "matvec", *VECTOR_KERNELS}
    assert measured.machine == Machine.this()
    total = 3 * len(names)
    assert seen == [(done, total) for done in range(total + 1)]
    profile = measured.profile()
    assert set(profile.rates) == set(names)
    assert list(profile.sizes) == [4, 8]
    assert profile.name == Machine.this().key


def test_the_median_of_a_fake_clock():
    ticks = iter([0.0, 5.0, 10.0, 11.0, 20.0, 22.0])
    calls = []
    assert measuring.median_seconds(lambda: calls.append(1), 8.0, lambda: next(ticks)) == 2.0
    assert len(calls) == 4  # one to warm up, and three


def test_runs_are_bounded_by_budget_and_number():
    def runs(budget, seconds):
        now, calls = [0.0], []

        def clock():
            now[0] += seconds / 2 if len(calls) else 0.0
            return now[0]

        measuring.median_seconds(lambda: calls.append(1), budget, clock)
        return len(calls) - 1

    assert runs(0.0, 1.0) == measuring.FEWEST_RUNS
    assert runs(5.0, 2.0) == 5
    assert runs(math.inf, 1.0) == measuring.MOST_RUNS


def test_a_profile_gives_the_measured_times_back():
    profile = calibration().profile()
    assert profile.rates == profile.sizes[20]
    for n in (10, 20):
        rate = profile.rate("fp64", n)
        assert 2 / 3 * n**3 / rate.flops_per_second == pytest.approx(n**3)
        # matvec takes nothing beyond its overhead; a tenth of its time is left to it
        traffic = 2 * (n * n + 2 * n) * 8
        assert traffic / rate.bytes_per_second == pytest.approx(2 * (n * n + 2 * n) + 0.1)
    assert profile.run_overhead == 2.0  # of fp64: lu and solve
    assert profile.outer_overhead == 7.0
    assert profile.inner_overhead == 6.0


def test_small_sizes_cannot_be_told_from_overhead():
    with pytest.raises(ValueError, match="all greater than 2"):
        calibrate((2, 100))
    with pytest.raises(ValueError, match="pass some"):
        calibrate(())


def test_stored_and_loaded(cache):
    assert complaint() == "this machine has not been measured; run `roundwise calibrate`"
    path = save_profile(calibration())
    assert path == profile_path(Machine.this())
    assert path.parent == cache == cache_folder()
    assert load_profile() == calibration().profile()
    assert load_profile(path) == load_profile()
    saved = json.loads(path.read_text())
    assert saved["version"] == rates.VERSION
    assert saved["times"]["fp64"]["10"]["lu"] == 1001
    assert [file.name for file in cache.iterdir()] == [path.name]  # nothing temporary is left


def test_rewards_price_native_runs_by_it():
    save_profile(calibration())
    problem = randsvd(15, 10.0, rng=0)
    algorithm = rw.LuIR()
    space = rw.actions.monotone_space(algorithm.stages, ["fp32", "fp64"])
    tuner = rw.Tuner(
        algorithm, formats=("fp32", "fp64"), reward=CostReward(load_profile()), arithmetic="native"
    )
    rewards = tuner.fit([problem]).rewards_
    assert rewards.shape == (1, len(space))
    assert rewards[0, space.safe] == 0.0
    saved = CostReward(load_profile()).to_dict()
    assert rw.rewards.reward_from_dict(json.loads(json.dumps(saved))).cost == load_profile()


def test_cache_folders(monkeypatch, tmp_path):
    monkeypatch.delenv("ROUNDWISE_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_folder() == tmp_path / "roundwise"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert cache_folder() == tmp_path / "home" / ".cache" / "roundwise"


@pytest.mark.parametrize(
    "changes", [{"cpu": "i486"}, {"blas": "MKL"}, {"threads": 77, "blas_threads": 77}]
)
def test_another_machine_is_noticed(changes, tmp_path):
    elsewhere = tmp_path / "elsewhere.json"
    save_profile(calibration(**changes), elsewhere)
    line = complaint(elsewhere)
    assert "stale, made with" in line
    save_profile(calibration(**changes))
    save_profile(calibration(cpu="Z80", cores=1, blas="none"))
    line = complaint()  # names the one that differs least
    for name, value in changes.items():
        assert f"{name} {value!r} (now {getattr(Machine.this(), name)!r})" in line


def test_an_older_or_newer_file_is_stale():
    path = save_profile(calibration())
    for version in (rates.VERSION - 1, rates.VERSION + 1):
        path.write_text(json.dumps(json.loads(path.read_text()) | {"version": version}))
        told = f"stale, its version is {version} and this Roundwise reads {rates.VERSION}"
        assert told in complaint()


@pytest.mark.parametrize(
    "content",
    ["", "{", "[]", "{}", '{"schema": "roundwise-machine-profile"}', "\x00", "[" * 100_000],
)
def test_foreign_and_damaged_files(content):
    path = save_profile(calibration())
    path.write_text(content)
    assert str(path) in complaint()


@pytest.mark.parametrize("part", ["machine", "profile"])
def test_damaged_parts(part):
    path = save_profile(calibration())
    for damage in ({}, None, 3):
        path.write_text(json.dumps(json.loads(path.read_text()) | {part: damage}))
        assert "damaged (not a saved machine" in complaint()


def test_a_path_without_a_file(tmp_path):
    assert "no such file; check the path" in complaint(tmp_path / "none.json")


def test_unreadable_neighbours_do_not_hide_the_reason(cache):
    cache.mkdir()
    (cache / "profile-broken.json").write_text("{")
    assert complaint() == "this machine has not been measured; run `roundwise calibrate`"


# The command


def invoke(monkeypatch, *arguments):
    monkeypatch.setattr("roundwise.commands.calibrate.QUICK_SIZES", (4, 6))
    monkeypatch.setattr("roundwise.commands.calibrate.QUICK_SECONDS_PER_KERNEL", 0.0)
    first = "2-D Laplacian, n = 2500"
    monkeypatch.setattr("roundwise.commands.calibrate.QUICK_SYSTEMS", {first: SYSTEMS[first]})
    result = CliRunner().invoke(main, ["calibrate", "--quick", *arguments], prog_name="roundwise")
    assert (result.exit_code, result.stderr) == (0, ""), result.output
    return result.stdout


def test_the_command_stores_a_profile(monkeypatch):
    text = invoke(monkeypatch)
    assert str(profile_path(Machine.this())) in text
    assert "n = 4" in text
    assert re.search(r"^superlu/colamd +fp32 .*, fp64 .*(slower|faster|as fast)$", text, re.M)
    assert set(load_profile().rates) == {fmt.name for fmt in native_formats()}
    info = CliRunner().invoke(main, ["info"], prog_name="roundwise").stdout
    assert f"profile     {profile_path(Machine.this())}" in info


def test_the_command_for_programs(monkeypatch, tmp_path):
    out = tmp_path / "mine.json"
    facts = json.loads(invoke(monkeypatch, "--json", "--out", str(out)))
    assert facts["path"] == str(out)
    assert facts["machine"] == Machine.this().to_dict()
    assert load_profile(out).name == Machine.this().key
    assert not profile_path(Machine.this()).exists()
    info = CliRunner().invoke(main, ["info"], prog_name="roundwise").stdout
    assert "profile     none: this machine has not been measured" in info


def profile_of(**seconds):
    """A profile with these times of LU, in ms, at n = 500 and 1000."""
    sizes = {
        n: {fmt: Rate(2 / 3 * n**3 / (1e-3 * ms[i])) for fmt, ms in seconds.items()}
        for i, n in enumerate((500, 1000))
    }
    return MachineProfile("toy", sizes[1000], sizes=sizes)


def test_what_cannot_be_is_noticed():
    assert rates.impossible(profile_of(fp32=(1, 5), fp64=(2, 9))) == ""
    slow = rates.impossible(profile_of(fp32=(1, 10), fp64=(2, 9)))
    assert slow == "FP32 is slower than FP64 at n = 1000"
    falling = rates.impossible(profile_of(bf16=(4, 3), fp64=(2, 9)))
    assert falling == "BF16 is faster at n = 1000 than at n = 500"


def test_a_stored_profile_that_cannot_be_is_refused(monkeypatch):
    path = save_profile(calibration())
    saved = json.loads(path.read_text())
    saved["profile"] = profile_of(fp32=(9, 99), fp64=(2, 9)).to_dict()
    path.write_text(json.dumps(saved))
    assert "damaged (FP32 is slower than FP64 at n = 500, which cannot be)" in complaint()


def test_times_that_cannot_be_are_measured_again_and_then_refused(monkeypatch, cache):
    monkeypatch.setattr("roundwise.commands.calibrate.impossible", lambda profile: next(verdicts))
    verdicts = iter(["FP32 is slower than FP64 at n = 500", ""])
    invoke(monkeypatch)  # the second measurement is kept
    (path,) = cache.iterdir()
    kept = path.read_bytes()
    verdicts = iter(["FP32 is slower than FP64 at n = 500"] * 2)
    result = CliRunner().invoke(main, ["calibrate", "--quick"], prog_name="roundwise")
    assert result.exit_code == 1
    assert "which cannot be" in result.stderr
    assert "Nothing is stored" in result.stderr
    assert path.read_bytes() == kept


def test_show_and_reset(cache):
    def told(*arguments):
        return CliRunner().invoke(main, ["calibrate", *arguments], prog_name="roundwise")

    assert "this machine has not been measured" in told("--show").stderr
    assert "nothing was stored" in told("--reset").stdout
    mine = save_profile(calibration())
    other_threads = save_profile(calibration(threads=77, blas_threads=77))
    foreign = save_profile(calibration(cpu="Z80"))
    shown = told("--show").stdout
    assert f"profile: {mine}" in shown
    assert "n = 10" in shown
    assert json.loads(told("--show", "--json").stdout)["path"] == str(mine)
    removed = told("--reset").stdout
    assert str(mine) in removed
    assert str(other_threads) in removed
    assert list(cache.iterdir()) == [foreign]
    assert told("--show", "--reset").exit_code == 2
    assert told("--show", "--quick").exit_code == 2


def test_how_times_compare_in_words():
    assert relative(3.02) == "3.0 times slower"
    assert relative(0.5) == "2.0 times faster"
    assert relative(1.01) == "as fast"


def test_kernels_are_those_of_the_backend(monkeypatch):
    asked = []

    class Noted(NativeBackend):
        def matrix(self, A, fmt):
            asked.append((fmt.name, A.shape[0]))
            return super().matrix(A, fmt)

    calibrate((5,), Noted(), [rw.FP64], seconds_per_kernel=0.0, sparse={})
    assert set(asked) == {("fp64", 2), ("fp64", 5)}
    assert asked.count(("fp64", 5)) == 1 + 1 + 3  # to multiply with, to warm up, to measure
