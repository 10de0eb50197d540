"""The neighbour policy, which ships as the default: facts, prices, and choices by hand."""

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import roundwise as rw
from roundwise.backends import NativeBackend
from roundwise.costs import MachineProfile, Rate, Shape, Work, current_prices
from roundwise.costs.prices import Prices, SparsePrices, _prices_of, dense_threads, generic_prices
from roundwise.machine.identity import Machine
from roundwise.methods import METHODS
from roundwise.policies import Facts, FactsError, NeighbourPolicy, shipped_facts
from roundwise.policies.facts import COUNTS, ENOUGH, NEIGHBOURS, Experience, Tried, columns_of
from roundwise.policies.neighbours import Expectation
from roundwise.policies.profile import KINDS, PLACE, Profile
from roundwise.problems import poisson_2d, randsvd
from roundwise.solver import default_policy
from roundwise.solver.decide import decide
from roundwise.solver.policy_argument import parse_policy
from roundwise.solver.prepare import Options, prepare
from roundwise.tuning import PROBE_CONTEXT

MMD, COLAMD = "superlu/mmd", "superlu/colamd"
# Seconds per matrix, unknown, entry of A, entry of L, flop, and row square.
SPARSE = SparsePrices(
    factor={
        MMD: {
            "fp32": [1e-5, 1e-9, 1e-8, 5e-8, 1e-10, 0],
            "fp64": [1e-5, 1e-9, 1e-8, 1e-7, 2e-10, 1e-9],
        },
        COLAMD: {"fp32": [0, 0, 1e-8, 1e-7, 0, 0], "fp64": [0, 0, 1e-8, 1e-7, 0, 0]},
    },
    solve={method: {"fp32": 1e-9, "fp64": 2e-9} for method in (MMD, COLAMD)},
    matvec=1e-9,
    conversion=1e-8,
)
PROFILE = MachineProfile(
    "by hand", {"bf16": Rate(400e9, 10e9), "fp32": Rate(200e9, 10e9), "fp64": Rate(100e9, 10e9)}
)
CHOLESKY = {"fp32": 0.5, "fp64": 0.5}
PRICES = Prices(PROFILE, {"bf16": 1e-9, "fp32": 1e-9}, CHOLESKY, SPARSE)
N = 3000
DENSE = Profile("dense", N, N * N, 0.02, 1.0)
SHAPE = Shape(N, N * N)
MET, FP64_AT_ONCE = Tried(True, 2, 0), Tried(True, 0, 0)


def facts(fp32_met=10, seen=DENSE, systems=NEIGHBOURS, **formats):
    """Of ten systems: FP32 suffices on so many, with two corrections; other formats as given."""
    cases = []
    for i in range(systems):
        fp32 = MET if i < fp32_met else Tried(False, 3, 20)
        tried = {"fp32": fp32, "fp64": FP64_AT_ONCE} | formats
        cases.append((seen, 1.0, tried))
    return Facts.gathered(cases)


def started(policy):
    policy.start(
        np.empty((0, len(PROBE_CONTEXT.features))), rw.VerifiedSolve().starts((False, True))
    )
    return policy


def policy_of(known, prices=PRICES):
    return started(NeighbourPolicy(known, prices))


def first(policy, seen):
    return policy.space[policy.rank(seen).first][0].name


def expected(policy, seen):
    return {e.fmt: e for e in policy.expectations(seen).values()}


# Prices, by hand


def test_the_price_of_dense_work():
    n = float(N)
    product = 8 * n**2 / 10e9
    step = 4 * n**2 / 10e9 + product
    iteration = 1e-9 * n**2 + (1 + 30 / n) * product
    by_hand = 2 / 3 * n**3 / 200e9 + 3 * step + 7 * iteration
    assert PRICES.seconds(SHAPE, "lu", "fp32", Work(1, 2, 7)) == pytest.approx(by_hand)


def test_cholesky_takes_half():
    run = Work(1, -1, 0)
    half = PRICES.seconds(SHAPE, "cholesky", "fp64", run)
    assert half == pytest.approx(PRICES.seconds(SHAPE, "lu", "fp64", run) / 2)
    assert PRICES.seconds(SHAPE, "cholesky", "fp64", Work()) == 0


def test_many_columns_are_bound_by_arithmetic():
    one_step = PRICES.seconds(replace(SHAPE, columns=1000), "lu", "fp64", Work(0, 1, 0))
    assert one_step == pytest.approx(2 * (2 * N * N * 1000 / 100e9))


def test_the_price_of_sparse_work():
    grid = Shape(10_000, 50_000, columns=2, filled=400_000, flops=1e8)
    by_hand = 1e-5 + 1e-9 * 10_000 + 1e-8 * 50_000 + (5e-8 + 1e-8) * 400_000 + 1e-10 * 1e8
    by_hand += 2 * 2 * (1e-9 * 400_000 + 1e-9 * 50_000)
    by_hand += 2 * 3 * (2e-9 * 400_000 + 1e-9 * 50_000)
    assert PRICES.seconds(grid, MMD, "fp32", Work(1, 1, 3)) == pytest.approx(by_hand)


def test_what_has_a_price():
    assert PRICES.prices("lu", "bf16")
    assert not PRICES.prices("cholesky", "bf16")
    assert not PRICES.prices("lu", "fp16")
    assert PRICES.prices(MMD, "fp32")
    assert not PRICES.prices(MMD, "bf16")


def test_prices_survive_json():
    saved = json.loads(json.dumps(PRICES.to_dict()))
    assert Prices.from_dict(saved) == PRICES
    for wrong in ({}, [], saved | {"applied": {"fp32": -1.0}}, saved | {"profile": None}):
        with pytest.raises(rw.RoundwiseError, match="install Roundwise again"):
            Prices.from_dict(wrong)


def test_shipped_prices_say_where_they_come_from():
    prices = generic_prices()
    assert "prices" in prices.source
    assert {"bf16", "fp32", "fp64"} <= set(prices.profile.rates)
    rates = [prices.profile.rate(fmt, 1500).flops_per_second for fmt in ("bf16", "fp32", "fp64")]
    assert rates == sorted(rates, reverse=True)
    assert all(prices.prices(method.name, "fp64") for method in KINDS.values())


def test_a_sparse_method_without_a_price_is_not_priced_as_a_dense_one():
    assert PRICES.prices(MMD, "fp64")
    assert PRICES.prices("lu", "bf16")
    assert PRICES.prices("cholesky", "fp32")
    assert not PRICES.prices("cholesky", "bf16")
    for unpriced in ("pardiso/mmd", "lu/amd", "cholesky/amd"):
        assert not PRICES.prices(unpriced, "fp64")


def test_a_calibrated_machine_is_priced_by_its_own_profile(tmp_path, monkeypatch):
    from roundwise.costs import calibrate, save_profile

    monkeypatch.setenv("ROUNDWISE_CACHE", str(tmp_path))
    _prices_of.cache_clear()
    assert current_prices() is generic_prices(dense_threads(Machine.this()))
    save_profile(calibrate(sizes=(10, 20), seconds_per_kernel=1e-4, sparse={}))
    _prices_of.cache_clear()
    assert set(current_prices().profile.sizes) == {10, 20}
    assert current_prices().sparse == generic_prices().sparse
    _prices_of.cache_clear()


def test_prices_follow_the_number_of_threads(tmp_path, monkeypatch, threads):
    """Those that were calibrated with one thread do not hold for two, and come back with one."""
    from roundwise.costs import calibrate, save_profile

    monkeypatch.setenv("ROUNDWISE_CACHE", str(tmp_path))
    threads(1)
    save_profile(calibrate(sizes=(10, 20), seconds_per_kernel=1e-4, sparse={}))
    _prices_of.cache_clear()
    policy = default_policy()
    try:
        assert set(policy.prices.profile.sizes) == {10, 20}
        threads(2)
        measured = policy.prices  # as before, scaled to two threads
        assert set(measured.profile.sizes) == {10, 20}
        assert measured.source == "measured on this machine with 1 thread"
        threads(1)
        assert set(policy.prices.profile.sizes) == {10, 20}
    finally:
        _prices_of.cache_clear()


# Facts


def test_columns_have_names():
    assert columns_of("positive definite") == (
        *PLACE,
        "fill",
        *(f"{fmt} {count}" for fmt in ("fp32", "fp64") for count in COUNTS),
    )
    for kind, method in KINDS.items():
        assert len(columns_of(kind)) == len(PLACE) + 1 + 3 * len(method.formats)
        assert shipped_facts().tables[kind].shape[1] == len(columns_of(kind))


def test_climbs_are_composed_of_what_each_format_did():
    """Three systems by hand: BF16 fails on two of them, FP32 on one of these."""
    cases = [
        {"bf16": Tried(True, 5, 1), "fp32": Tried(True, 2, 0), "fp64": Tried(True, 0, 0)},
        {"bf16": Tried(False, 7, 3), "fp32": Tried(True, 3, 4), "fp64": Tried(True, 1, 0)},
        {"bf16": Tried(False, 1, 2), "fp32": Tried(False, 6, 40), "fp64": Tried(True, 2, 5)},
    ]
    known = Facts.gathered([(DENSE, 4.0**i, tried) for i, tried in enumerate(cases)])
    experience = Experience.of("dense", known.tables["dense"])
    assert experience.systems == 3
    assert experience.fill == pytest.approx(4.0)  # the geometric mean of 1, 4 and 16
    assert experience.met == {"bf16": 1, "fp32": 2, "fp64": 3}
    assert experience.climbs == {
        "bf16": {"bf16": Work(3, 13, 6), "fp32": Work(2, 9, 44), "fp64": Work(1, 2, 5)},
        "fp32": {"fp32": Work(3, 11, 44), "fp64": Work(1, 2, 5)},
        "fp64": {"fp64": Work(3, 3, 5)},
    }


def test_formats_that_were_not_tried_are_left_out():
    known = facts().tables["dense"]
    experience = Experience.of("dense", known)
    assert set(experience.climbs) == set(experience.met) == {"fp32", "fp64"}
    assert np.isnan(known[:, columns_of("dense").index("bf16 met")]).all()


def test_the_nearest_cases_tell():
    few = facts(systems=ENOUGH - 1).tables["dense"]
    assert Facts({"dense": few}).of(DENSE) is None
    smaller = facts(seen=replace(DENSE, n=600, entries=600 * 600), systems=1).tables["dense"]
    both = Facts({"dense": np.vstack([few, smaller])}).of(DENSE)
    assert both.systems == ENOUGH
    unlike = facts(seen=replace(DENSE, coherence=40.0), systems=1).tables["dense"]
    assert Facts({"dense": np.vstack([few, unlike])}).of(DENSE) is None  # too far away
    assert Facts({"positive definite": few}).of(DENSE) is None
    crowd = np.vstack([facts(10).tables["dense"], facts(0).tables["dense"]])
    assert Facts({"dense": crowd}).of(DENSE).systems == NEIGHBOURS


def test_the_shipped_facts_are_sound():
    known = shipped_facts()
    for entry in ("command", "seed", "roundwise", "systems", "machine"):
        assert known.provenance[entry] is not None
    rows = [(kind, row) for kind, table in known.tables.items() for row in table]
    assert len(rows) == known.provenance["systems"] > 500
    for kind, row in rows:
        experience = Experience.of(kind, row[None])
        assert experience.fill > 0
        for fmt, climb in experience.climbs.items():
            # Every system runs its first format, and only those it did not suffice for climb.
            assert climb[fmt].runs == 1
            assert (len(climb) > 1) <= (experience.met[fmt] == 0)
            assert all(min(vars_of(work)) >= 0 for work in climb.values())


def vars_of(work):
    return work.runs, work.steps, work.iterations


def test_facts_survive_json():
    known = shipped_facts()
    again = Facts.from_dict(json.loads(known.to_json()))
    for kind in KINDS:
        assert np.array_equal(again.tables[kind], known.tables[kind], equal_nan=True)  # four digits
    assert again.provenance == known.provenance
    assert again.to_json() == known.to_json()
    untried = facts()
    again = Facts.from_dict(json.loads(untried.to_json()))
    assert np.array_equal(again.tables["dense"], untried.tables["dense"], equal_nan=True)


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"schema": "other"}, "no facts"),
        ({"version": 1}, "version 1"),
        ({"tables": {"dense": {"columns": ["n"], "rows": [[1]]}}}, "damaged.*columns"),
        ({"tables": {"strange": {"columns": [], "rows": []}}}, "damaged"),
        ({"tables": {"dense": {"columns": columns_of("dense"), "rows": [[1, 2]]}}}, "damaged"),
        ({"tables": {"dense": {"columns": columns_of("dense"), "rows": [["x"] * 15]}}}, "damaged"),
        ({"tables": 3}, "damaged"),
    ],
)
def test_other_files_are_refused(change, complaint):
    with pytest.raises(FactsError, match=complaint) as caught:
        Facts.from_dict(json.loads(shipped_facts().to_json()) | change)
    assert "\n" not in str(caught.value)
    with pytest.raises(FactsError, match="no facts"):
        Facts.from_dict([])


# Choices


def test_the_expectation_includes_the_climb():
    policy = policy_of(facts(5))
    found = expected(policy, DENSE)
    steps, iterations = (5 * 2 + 5 * 3) / 10, 5 * 20 / 10
    by_hand = PRICES.seconds(SHAPE, "lu", "fp32", Work(1, 0, 0))
    by_hand += steps * PRICES.seconds(SHAPE, "lu", "fp32", Work(0, 1, 0))
    by_hand += iterations * PRICES.seconds(SHAPE, "lu", "fp32", Work(0, 0, 1))
    by_hand += PRICES.seconds(SHAPE, "lu", "fp64", Work(1, 0, 0)) / 2
    assert found["fp32"].seconds == pytest.approx(by_hand)
    assert (found["fp32"].met, found["fp32"].systems) == (5, 10)
    assert first(policy, DENSE) == "fp64"


def test_the_cheapest_start_wins_and_the_reason_has_the_numbers():
    policy = policy_of(facts(9))
    found, ranking = expected(policy, DENSE), policy.rank(DENSE)
    assert policy.space.names[ranking.first] == "lu:fp32-fp64-fp64-fp64"
    ours, theirs = (f"{1e3 * found[fmt].seconds:.3g} ms" for fmt in ("fp32", "fp64"))
    assert ranking.reason == (
        "Chose FP32: it sufficed on 9 of 10 similar systems; "
        f"expected {ours}, against {theirs} in FP64."
    )
    assert ranking.costs[:2] == (found["fp32"].seconds, found["fp64"].seconds)
    assert all(math.isnan(cost) for cost in ranking.costs[2:])
    assert policy.choose(DENSE) == ranking.first
    values = policy.expected(DENSE)
    assert values[ranking.first] == -found["fp32"].seconds == values.max()
    assert np.isneginf(values).sum() == len(policy.space) - 2


def test_equal_costs_go_to_the_higher_format(monkeypatch):
    policy = policy_of(facts())
    actions = [policy.space.index(f"lu:{fmt}-fp64-fp64-fp64") for fmt in ("fp32", "fp64")]
    equal = {i: Expectation("lu", policy.space[i][0].name, 1.0, 9, 10, 1.0, 1.0) for i in actions}
    monkeypatch.setattr(policy, "_expectations", lambda *arguments: equal)
    assert policy.rank(DENSE).actions[:2] == tuple(actions[::-1])
    assert policy.choose(DENSE) == actions[1]


def test_small_systems_go_straight_to_fp64():
    policy = policy_of(facts())
    crossover = policy.crossover("dense")
    assert 64 < crossover < 2000
    assert policy.express_below == crossover
    assert str(crossover) in policy.small("dense", crossover - 1)
    assert policy.small("dense", crossover) is None
    assert "entries" in policy.small("sparse", 100)
    below = prepare(-np.eye(crossover - 1))  # no Cholesky
    plan = decide(below, parse_policy(policy), Options(structure="general"))
    assert str(plan.ladder[0]) == "lu:fp64-fp64-fp64-fp64"
    assert str(crossover) in plan.reason


def test_the_documented_crossovers_are_those_of_the_shipped_prices():
    policy = default_policy()
    if "bf16" not in policy.formats(KINDS["dense"], generic_prices(2)):
        pytest.skip("the page has those of processors with BF16")
    found = [policy._find_crossover("dense", generic_prices(threads)) for threads in (2, 4, 8, 16)]
    told = "n = {} with two threads, {} with four, {} with eight and {} with sixteen".format(*found)
    page = (Path(__file__).parents[2] / "docs" / "native.md").read_text(encoding="utf-8")
    assert told in " ".join(page.split())


def test_unknown_systems_go_to_fp64_and_the_reason_says_so():
    strange = Profile("positive definite", N, N * N, 0.99, 1000.0)
    policy = policy_of(facts())
    ranking = policy.rank(strange)
    assert policy.space.names[ranking.first] == "cholesky:fp64-fp64-fp64-fp64"
    assert "no similar systems" in ranking.reason


def test_an_infinite_context_goes_to_the_safe_action():
    policy = policy_of(facts())
    context = np.zeros((1, len(PROBE_CONTEXT.features)))
    context[0, 6] = math.inf
    (state,) = policy.encode(context)
    assert state is None
    assert policy.rank(state).first == policy.choose(state) == policy.space.safe


def test_a_start_that_often_fails_is_not_risked():
    """Cheap in the mean, but if FP32 is in vain, the solve takes far longer than LU."""
    cheap_miss = [
        (DENSE, 1.0, {"fp32": Tried(i < 8, 1, 0), "fp64": FP64_AT_ONCE}) for i in range(10)
    ]
    risky = Facts.gathered(cheap_miss)
    policy = policy_of(risky)
    found = expected(policy, DENSE)
    mean = policy.priced(DENSE, risky.of(DENSE).climbs["fp32"]) / 10
    assert mean < found["fp64"].seconds < found["fp32"].seconds
    assert found["fp32"].intolerable
    assert first(policy, DENSE) == "fp64"
    assert "a failure would cost too much" in policy.rank(DENSE).reason
    # Cholesky twice takes no longer than LU, and is risked.
    definite = replace(DENSE, kind="positive definite")
    known = Facts.gathered([(definite, fill, tried) for _, fill, tried in cheap_miss])
    assert first(policy_of(known), definite) == "fp32"


def test_formats_without_a_price_or_an_instruction_are_not_chosen():
    full = facts(bf16=Tried(True, 5, 0))
    runnable = rw.BF16 in rw.backends.native_formats()
    assert first(policy_of(full), DENSE) == ("bf16" if runnable else "fp32")
    rates = {fmt: PROFILE.rates[fmt] for fmt in ("fp32", "fp64")}
    without = Prices(MachineProfile("no bf16", rates), {}, CHOLESKY, SPARSE)
    assert first(policy_of(full, without), DENSE) == "fp32"


def test_many_columns_make_low_precision_less_attractive():
    policy = policy_of(facts(fp32=Tried(True, 3, 0)))
    assert first(policy, DENSE) == "fp32"
    assert first(policy, replace(DENSE, columns=5 * N)) == "fp64"


def test_allowed_actions_alone_are_ranked():
    policy = policy_of(facts())
    allowed = [i for i, action in enumerate(policy.space) if action[0] == rw.FP64]
    ranking = policy.rank(DENSE, allowed)
    assert set(ranking.actions) == set(allowed)
    assert policy.space.names[ranking.first] == "lu:fp64-fp64-fp64-fp64"


def test_the_shipped_policy_decides_sensibly():
    policy = policy_of(shipped_facts(), generic_prices())
    n, rng = 700, np.random.default_rng(0)

    def seen(A):
        problem = rw.problems.LinearSystem(A, np.ones(n))
        values = rw.features.compute_features(problem, PROBE_CONTEXT.features)
        return policy.encode(PROBE_CONTEXT.vector(values)[None])[0]

    gaussian, hopeless = seen(rng.standard_normal((n, n))), seen(randsvd(n, 1e15, 3, rng=rng).A)
    assert first(policy, gaussian) == "fp32"
    assert first(policy, hopeless) == "fp64"
    for state in (gaussian, hopeless):
        assert policy.rank(state).reason.startswith("Chose FP")


def test_solve_uses_the_default_policy():
    rng = np.random.default_rng(0)
    A, b = rng.standard_normal((900, 900)), rng.standard_normal(900)
    solution = rw.solve(A, b, full_output=True)
    assert solution.decision.startswith("Chose ")
    assert solution.attempts[0].action.startswith("lu:fp32")
    problem = poisson_2d(210)  # 220 000 entries: too many for one call
    solution = rw.solve(problem.A, problem.b, full_output=True)
    assert solution.attempts[0].action.startswith("multigrid/")
    assert "a factorization is expected to take at least" in solution.decision


def test_the_default_policy_is_a_policy_like_others():
    policy = default_policy()
    assert policy is default_policy()
    assert isinstance(policy, NeighbourPolicy)
    chosen = {m.name for m in METHODS.values() if m.chosen}
    runnable = {m for sparse in (False, True) for m in NativeBackend().methods(sparse)}
    assert set(policy.space.methods) == chosen & runnable
    again = rw.policies.load_policy(policy.to_dict(), policy.arrays())
    assert again.rank(DENSE) == policy.rank(DENSE)
    assert parse_policy(policy).on(NativeBackend()).policy is policy


def test_corrupt_arrays_are_refused():
    policy = policy_of(facts())
    saved, arrays = policy.to_dict(), policy.arrays()
    for wrong in ({"strange": np.ones((1, 3))}, {"dense": np.ones((2, 3))}, {"dense": np.ones(15)}):
        with pytest.raises(ValueError, match="corrupt"):
            rw.policies.load_policy(saved, arrays | wrong)
