"""The default policy: cheap contexts, facts, prices, and choices by hand."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest
from scipy import sparse

import roundwise as rw
from roundwise.backends import NativeBackend
from roundwise.costs.prices import Prices, SparsePrices, current_prices, generic_prices
from roundwise.experiments.default_policy.facts import Record, cross_validate, main
from roundwise.policies.facts import (
    ENOUGH,
    NEIGHBOURS,
    Experience,
    Facts,
    FactsError,
    Start,
    Work,
    climb_of,
    experience_of,
    row_of,
    shipped_facts,
)
from roundwise.policies.look import KINDS, Context, context_of
from roundwise.policies.neighbours import DefaultPolicy, cheapest, get_policy
from roundwise.problems import poisson_2d, randsvd
from roundwise.rewards import MachineProfile, Rate
from roundwise.solver.inputs import checked_matrix
from roundwise.solver.solution import Attempt

SPARSE = SparsePrices(
    analysis=1e-8,
    matvec=1e-9,
    factor={
        "sparse": {"fp32": 5e-8, "fp64": 1e-7},
        "sparse unsymmetric": {"fp32": 1e-7, "fp64": 1e-7},
    },
    update={
        "sparse": {"fp32": 1e-10, "fp64": 2e-10},
        "sparse unsymmetric": {"fp32": 0.0, "fp64": 0.0},
    },
    solve={"fp32": 1e-9, "fp64": 2e-9},
    conversion=1e-8,
    iteration=2e-9,
)
PROFILE = MachineProfile(
    "by hand",
    {"bf16": Rate(400e9, 10e9), "fp32": Rate(200e9, 10e9), "fp64": Rate(100e9, 10e9)},
)
CHOLESKY = {"fp32": 0.5, "fp64": 0.5}
PRICES = Prices(PROFILE, {"bf16": 1e-9, "fp32": 1e-9}, CHOLESKY, SPARSE)
N = 3000
DENSE = Context("dense", N, 0.02, 1.0, N * N)


def context(A, positive_definite=False, columns=1):
    return context_of(checked_matrix(A, NativeBackend()), positive_definite, columns)


def facts(*known):
    """Facts of systems like `DENSE`."""
    return Facts.gathered([(DENSE, Experience(100, 0.0, dict(known)))])


def start(fmt, sufficed, steps=0, iterations=0, climbed=()):
    """A start of 100 systems; `climbed` are (format, runs, steps)."""
    work = {fmt: Work(100, steps, iterations)}
    return fmt, Start(sufficed, work | {f: Work(runs, steps, 0) for f, runs, steps in climbed})


FP64_START = start("fp64", 100)


# Contexts


def test_the_coherence_is_what_theory_says():
    """n sum(s^4) / sum(s^2)^2 - 1 for randomly rotated singular values."""
    n, rng = 400, np.random.default_rng(0)
    assert context(randsvd(n, 1e3, 2, rng=rng).A).coherence < 0.1  # all but one are equal
    gaussian = np.mean([context(rng.standard_normal((n, n))).coherence for _ in range(8)])
    assert gaussian == pytest.approx(1.0, rel=0.2)
    for kappa in (1e4, 1e10):
        found = np.mean([context(randsvd(n, kappa, 3, rng=rng).A).coherence for _ in range(8)])
        assert found == pytest.approx(math.log(kappa) - 1, rel=0.2)
    assert context(randsvd(n, 1e6, 1, rng=rng).A).coherence == pytest.approx(n, rel=0.01)


@pytest.mark.parametrize("order", ["C", "F"])
def test_the_diagonal_share_of_a_heavy_diagonal(order):
    n = 300
    A = np.array(np.random.default_rng(0).standard_normal((n, n)) / math.sqrt(n), order=order)
    assert context(A).diagonal_share < 0.1
    assert context(A + 3 * np.eye(n)).diagonal_share == pytest.approx(3 / math.sqrt(10), rel=0.03)


def test_kinds():
    n = 70
    A = np.random.default_rng(0).standard_normal((n, n))
    assert context(A).kind == "dense"
    assert context(A @ A.T, positive_definite=True).kind == "positive definite"
    assert context(poisson_2d(12).A).kind == "sparse"
    triangle = sparse.csr_array(np.triu(A))
    assert context(triangle).kind == "sparse unsymmetric"
    assert context(triangle).entries == n * (n + 1) // 2


def test_zero_rows_and_tiny_matrices_have_a_context():
    assert context(np.zeros((3, 3))).coherence == 0
    assert context(np.zeros((3, 3))).diagonal_share == 0
    assert context([[2.0]]).diagonal_share == 1
    assert context(sparse.csr_array((200, 200))).kind == "sparse unsymmetric"


def test_the_remainder_is_what_theory_says():
    """One singular value outweighs all others: rows differ by 1 / kappa, and by no more."""
    n, rng = 400, np.random.default_rng(0)
    assert context(rng.standard_normal((n, n))).remainder > 0.9
    for kappa in (1e4, 1e5, 1e6, 1e7):  # what a row has of u_1 is about 1 / sqrt(n), often less
        found = context(randsvd(n, kappa, 1, rng=rng).A).remainder
        assert 1 < found * kappa / math.sqrt(n) < 30
    assert context(randsvd(n, 1e12, 1, rng=rng).A).remainder <= 1e-7
    assert context(np.ones((n, n))).remainder == 1e-8


def test_units_of_measurement_do_not_matter():
    n, rng = 300, np.random.default_rng(0)
    A = randsvd(n, 1e4, 3, rng=rng).A
    rows, columns = (2.0 ** rng.integers(-20, 20, n) for _ in range(2))
    plain, scaled = context(A), context(rows[:, None] * A * columns)
    assert scaled.coherence == pytest.approx(plain.coherence, rel=0.1)
    assert scaled.remainder == pytest.approx(plain.remainder, rel=0.1)
    assert context(rows[:, None] * A).coherence == pytest.approx(plain.coherence, rel=1e-12)


def test_bins_and_positions_of_all_kinds():
    for kind in KINDS:
        near, far = Context(kind, 700, 0.5, 3.0, 7000), Context(kind, 700, 0.5, 3.0, 70_000)
        assert near.bin.startswith(f"{kind}, ")
        assert (near.bin != far.bin) == near.is_sparse
        assert (near.position != far.position).any() == near.is_sparse


def test_contexts_cost_little():
    """64 rows, whatever n: the rest of the matrix may be NaN."""
    n = 640
    A = np.full((n, n), np.nan)
    A[:: n // 64] = 1.0
    matrix = checked_matrix(np.ones((n, n)), NativeBackend())
    object.__setattr__(matrix, "A", A)
    assert context_of(matrix, False).coherence == pytest.approx(n)


# Prices, by hand


def test_the_price_of_dense_work():
    n = float(N)
    product = 8 * n**2 / 10e9
    step = 4 * n**2 / 10e9 + product
    iteration = 1e-9 * n**2 + (1 + 30 / n) * product
    expected = 2 / 3 * n**3 / 200e9 + 3 * step + 7 * iteration
    assert PRICES.seconds(DENSE, {"fp32": Work(1, 2, 7)}) == pytest.approx(expected)


def test_cholesky_takes_half():
    spd = Context("positive definite", N, 1.0, 0.0, N * N)
    run, none = {"fp64": Work(1, -1, 0)}, {"fp64": Work(0, 0, 0)}
    assert PRICES.seconds(spd, run) == pytest.approx(PRICES.seconds(DENSE, run) / 2)
    assert PRICES.seconds(spd, none) == 0


def test_many_columns_are_bound_by_arithmetic():
    many = Context("dense", N, 0.02, 1.0, N * N, columns=1000)
    one_step = PRICES.seconds(many, {"fp64": Work(0, 1, 0)})
    assert one_step == pytest.approx(2 * (2 * N * N * 1000 / 100e9))


def test_the_price_of_sparse_work():
    grid = Context("sparse", 10_000, 0.9, 0.0, 50_000, columns=2)
    expected = 1e-8 * 50_000 + (5e-8 + 1e-8) * 400_000 + 1e-10 * 400_000**2 / 10_000
    expected += 2 * 2 * (1e-9 * 400_000 + 1e-9 * 50_000)
    expected += 2 * 3 * (2e-9 * 400_000 + 1e-9 * 50_000)
    assert PRICES.seconds(grid, {"fp32": Work(1, 1, 3)}, fill=8) == pytest.approx(expected)


def test_prices_survive_json():
    saved = json.loads(json.dumps(PRICES.to_dict()))
    assert Prices.from_dict(saved) == PRICES
    with pytest.raises(rw.RoundwiseError, match="install it again"):
        Prices.from_dict(saved | {"version": 99})


def test_shipped_prices_say_where_they_come_from():
    prices = generic_prices()
    assert "policy_prices" in prices.source
    assert {"bf16", "fp32", "fp64"} <= set(prices.profile.rates)
    rates = [prices.profile.rate(fmt, 1500).flops_per_second for fmt in ("bf16", "fp32", "fp64")]
    assert rates == sorted(rates, reverse=True)


def test_a_calibrated_machine_is_priced_by_its_own_profile(tmp_path, monkeypatch):
    from roundwise.costs import calibrate, save_profile

    monkeypatch.setenv("ROUNDWISE_CACHE", str(tmp_path))
    current_prices.cache_clear()
    assert current_prices() is generic_prices()
    save_profile(calibrate(sizes=(10, 20), seconds_per_kernel=1e-4))
    current_prices.cache_clear()
    assert set(current_prices().profile.sizes) == {10, 20}
    assert current_prices().sparse == generic_prices().sparse
    current_prices.cache_clear()


# Choices


def test_the_expectation_includes_the_climb():
    half = start("fp32", 50, steps=300, iterations=2000, climbed=[("fp64", 50, 0)])
    policy = DefaultPolicy(facts(half, FP64_START), PRICES)
    expected = policy.expectations(DENSE)
    by_hand = (
        PRICES.seconds(DENSE, {"fp32": Work(1, 3, 20)})
        + PRICES.seconds(DENSE, {"fp64": Work(1, 0, 0)}) / 2
    )
    assert expected["fp32"].seconds == pytest.approx(by_hand)
    assert (expected["fp32"].sufficed, expected["fp32"].systems) == (50, 100)
    assert policy.choose_for(DENSE).formats == ("fp64",)


def test_the_cheapest_start_wins_and_the_reason_has_the_numbers():
    good = start("fp32", 97, steps=200, climbed=[("fp64", 3, 0)])
    policy = DefaultPolicy(facts(good, FP64_START), PRICES)
    expected = policy.expectations(DENSE)
    choice = policy.choose_for(DENSE)
    assert choice.formats == ("fp32", "fp64")
    ours, theirs = (f"{1e3 * expected[fmt].seconds:.3g} ms" for fmt in ("fp32", "fp64"))
    assert choice.reason == (
        "FP32 first: it sufficed on 97 % of 100 systems like this; "
        f"expected {ours} against {theirs} in FP64."
    )


def test_equal_costs_go_to_the_higher_format():
    assert cheapest({"bf16": 1.0, "fp32": 1.0, "fp64": 2.0}) == "fp32"


def test_small_systems_go_straight_to_fp64():
    policy = DefaultPolicy(facts(FP64_START), PRICES)
    crossover = policy.crossover("dense")
    context_below = Context("dense", crossover - 1, 0, 0, 0)
    assert 64 < crossover < 1000
    below = checked_matrix(np.eye(crossover - 1), NativeBackend())
    choice = policy.choose(below, False)
    assert choice.formats == ("fp64",)
    assert str(crossover) in choice.reason
    assert context_below.n < crossover


def test_unknown_systems_go_to_fp64_and_the_reason_says_so():
    strange = Context("positive definite", N, 0.99, 1000.0, N * N)
    choice = DefaultPolicy(facts(FP64_START), PRICES).choose_for(strange)
    assert choice.formats == ("fp64",)
    assert "nothing is known" in choice.reason


def test_the_nearest_cases_tell():
    few = (DENSE, Experience(ENOUGH - 1, 0.0, {"fp64": Start()}))
    assert Facts.gathered([few]).of(DENSE) is None
    smaller = Context("dense", 600, 0.02, 1.0, 600 * 600)
    one = Experience(1, 0.0, {"fp64": Start(1)})
    both = Facts.gathered([few, (smaller, one)]).of(DENSE)
    assert both.systems == ENOUGH
    assert both.starts["fp64"].sufficed == 1
    unlike = Context("dense", N, 0.02, 40.0, N * N)
    assert Facts.gathered([few, (unlike, one)]).of(DENSE) is None  # too far away
    of_another_kind = Context("positive definite", N, 0.02, 1.0, N * N)
    assert Facts.gathered([few, (of_another_kind, one)]).of(DENSE) is None
    crowd = [(DENSE, one)] * NEIGHBOURS + [(smaller, Experience(1, 0.0, {"fp64": Start(0)}))] * 5
    assert Facts.gathered(crowd).of(DENSE).starts["fp64"].sufficed == NEIGHBOURS


def test_experience_survives_as_numbers_and_adds_up():
    fp32 = Start(1, {"fp32": Work(1, 2, 3), "fp64": Work(1, 0, 0)})
    one = Experience(1, 0.5, {"fp32": fp32, "fp64": Start(1, {"fp64": Work(1, 1, 0)})})
    row = np.array(row_of(DENSE, one))
    assert experience_of("dense", row) == one  # bf16 was not tried
    twice = experience_of("dense", row + row)
    assert twice.systems == 2
    assert twice.log_fill == 1.0
    assert twice.starts["fp32"].work["fp32"] == Work(2, 4, 6)


def test_a_start_that_often_fails_is_not_risked():
    """Cheap in the mean, but if FP32 is in vain, the solve takes far longer than LU."""
    climbed = [("fp64", 20, 0)]
    risky = facts(start("fp32", 80, steps=100, climbed=climbed), FP64_START)
    policy = DefaultPolicy(risky, PRICES)
    expected = policy.expectations(DENSE)
    mean = policy.price(DENSE, risky.of(DENSE).starts["fp32"].work) / 100
    assert mean < expected["fp64"].seconds < expected["fp32"].seconds
    assert policy.choose_for(DENSE).formats == ("fp64",)
    # Cholesky twice takes no longer than LU, and is risked.
    spd = replace(DENSE, kind="positive definite")
    fp32 = start("fp32", 80, steps=100, climbed=climbed)
    known = Facts.gathered([(spd, Experience(100, 0.0, dict([fp32, FP64_START])))])
    assert DefaultPolicy(known, PRICES).choose_for(spd).formats[0] == "fp32"


def test_formats_without_a_price_or_an_instruction_are_not_chosen(monkeypatch):
    bf16 = start("bf16", 100, steps=500)
    full = facts(bf16, start("fp32", 100, steps=200), FP64_START)
    runnable = "bf16" in [fmt.name for fmt in rw.backends.native_formats()]
    first = DefaultPolicy(full, PRICES).choose_for(DENSE).formats[0]
    assert first == ("bf16" if runnable else "fp32")
    rates = {fmt: PROFILE.rates[fmt] for fmt in ("fp32", "fp64")}
    without = Prices(MachineProfile("no bf16", rates), {}, CHOLESKY, SPARSE)
    assert DefaultPolicy(full, without).choose_for(DENSE).formats[0] == "fp32"


def test_many_columns_make_low_precision_less_attractive():
    known = facts(start("fp32", 100, steps=300), FP64_START)
    policy = DefaultPolicy(known, PRICES)
    many = Context("dense", N, 0.02, 1.0, N * N, columns=5 * N)
    assert policy.choose_for(DENSE).formats[0] == "fp32"
    assert policy.choose_for(many).formats[0] == "fp64"


# Facts and their file


def test_climbs_count_attempts():
    attempts = [
        Attempt("bf16-fp64-fp64-fp64", "gmres", 4, 40, 1e-9, False, "", 0.1),
        Attempt("fp64-fp64-fp64-fp64", "none", 0, 0, math.inf, False, "", 0.1),
        Attempt("fp64-fp64-fp64-fp64", "refinement", 1, 0, 1e-17, True, "", 0.1),
    ]
    assert climb_of(attempts) == {"bf16": Work(1, 4, 40), "fp64": Work(2, 1, 0)}


def test_the_shipped_facts_are_sound():
    known = shipped_facts()
    for entry in ("command", "seed", "roundwise", "systems", "machine", "cross-validation"):
        assert known.provenance[entry] is not None
    rows = [(kind, row) for kind, table in known.tables.items() for row in table]
    assert len(rows) == known.provenance["systems"] > 500
    for experience in (experience_of(kind, row) for kind, row in rows):
        for first, begun in experience.starts.items():
            assert 0 <= begun.sufficed <= experience.systems
            # Every system runs its first format, and only those it did not suffice for climb.
            assert begun.work[first].runs >= experience.systems
            higher = sum(work.runs for fmt, work in begun.work.items() if fmt != first)
            assert higher >= (experience.systems - begun.sufficed if first != "fp64" else 0)


def test_facts_survive_json():
    known = shipped_facts()
    again = Facts.from_dict(json.loads(known.to_json()))
    for kind in KINDS:
        assert np.array_equal(again.tables[kind], known.tables[kind], equal_nan=True)  # four digits
    assert again.provenance == known.provenance


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"schema": "other"}, "no facts"),
        ({"version": 1}, "version 1"),
        ({"cases": {"dense": [[1, 2, 3]]}}, "damaged"),
        ({"cases": 3}, "damaged"),
    ],
)
def test_other_files_are_refused(change, complaint):
    with pytest.raises(FactsError, match=complaint):
        Facts.from_dict(json.loads(shipped_facts().to_json()) | change)


def test_the_shipped_policy_decides_sensibly(monkeypatch):
    policy = DefaultPolicy(prices=generic_prices())
    n, rng = 700, np.random.default_rng(0)
    gaussian = policy.choose_for(context(rng.standard_normal((n, n))))
    assert gaussian.formats[0] == "fp32"
    hopeless = policy.choose_for(context(randsvd(n, 1e15, 3, rng=rng).A))
    assert hopeless.formats[0] == "fp64"
    assert "%" in gaussian.reason
    assert "%" in hopeless.reason


def test_solve_uses_the_default_policy():
    assert isinstance(get_policy("default"), DefaultPolicy)
    rng = np.random.default_rng(0)
    A, b = rng.standard_normal((900, 900)), rng.standard_normal(900)
    solution = rw.solve(A, b, full_output=True)
    assert "systems like this" in solution.decision
    assert solution.attempts[0].action.startswith("fp32")


# The command


def test_the_command_makes_a_policy_and_resumes(tmp_path, capsys):
    out, log = tmp_path / "policy.json", tmp_path / "log.jsonl"
    options = [
        "--scale",
        "0.1",
        "--every",
        "12",
        "--jobs",
        "1",
        "--out",
        str(out),
        "--log",
        str(log),
    ]
    main(options)
    made = out.read_text()
    known = Facts.from_dict(json.loads(made))
    assert sum(map(len, known.tables.values())) == known.provenance["systems"]
    lines = log.read_text().splitlines(keepends=True)
    # A line that was cut off by an interruption is solved again, the others are not.
    log.write_text("".join(lines[:-3]) + lines[-3][:20])
    main(options)
    assert out.read_text() == made
    records = [Record.from_json(line) for line in lines]
    assert [r.to_json() + "\n" for r in records] == lines
    capsys.readouterr()


def test_cross_validation_judges_by_price():
    """Two groups: FP32 always suffices, or never; each fold learns it from the others."""
    easy = Context("dense", N, 0.02, 1.0, N * N)
    hard = Context("dense", N, 0.02, 30.0, N * N)
    fp64 = {"fp64": Work(1, 0, 0)}
    records = []
    for i in range(40):
        failed = {"fp32": Work(1, 3, 40), **fp64}
        climb = {"fp32": Work(1, 2, 0)} if i % 2 else failed
        climbs, sufficed = {"fp32": climb, "fp64": fp64}, {"fp32": bool(i % 2), "fp64": True}
        records.append(Record(f"{i}", easy if i % 2 else hard, 0.0, climbs, sufficed))
    verdict = cross_validate(records, PRICES)[-1]
    assert (verdict.group, verdict.systems, verdict.best) == ("all", 40, 1.0)
    assert verdict.seconds["policy"] == pytest.approx(verdict.seconds["best"])
    assert verdict.seconds["always FP32 first"] > verdict.seconds["best"]
    assert verdict.seconds["always FP64"] > verdict.seconds["best"]
