"""Actions and action spaces: counts, order, pruning, text form."""

import copy
import itertools
import json
import math
import pickle

import pytest

import roundwise as rw
from roundwise.actions import (
    Action,
    ActionSpace,
    as_action,
    full_space,
    implied_failures,
    list_space,
    monotone_space,
)

STAGES = ("factor", "update", "gmres", "residual")
PAPER = ("bf16", "tf32", "fp32", "fp64")
LADDER = [rw.FloatFormat(f"p{p}", p, -126, 127) for p in (4, 8, 11, 17, 24)]


def test_text_form_round_trip():
    action = as_action("bf16-fp32-fp64-fp64", STAGES)
    assert action == (rw.BF16, rw.FP32, rw.FP64, rw.FP64)
    assert str(action) == "bf16-fp32-fp64-fp64"
    assert as_action("BF16 - fp32") == (rw.BF16, rw.FP32)


@pytest.mark.parametrize("m", range(1, 6))
@pytest.mark.parametrize("k", range(1, 5))
def test_counts(m, k):
    stages = STAGES[:k]
    assert len(full_space(stages, LADDER[:m])) == m**k
    assert len(monotone_space(stages, LADDER[:m])) == math.comb(m + k - 1, k)


def test_full_space_counts_up_like_digits():
    space = full_space(("a", "b", "c"), ["fp64", "bf16", "fp32"])
    digit = {"bf16": 0, "fp32": 1, "fp64": 2}
    numbers = [sum(digit[f.name] * 3**i for i, f in enumerate(reversed(a))) for a in space]
    assert numbers == list(range(27))


def test_monotone_space_is_the_filtered_full_space():
    full, monotone = full_space(STAGES, PAPER), monotone_space(STAGES, PAPER)
    wanted = [a for a in full if all(a[i].p <= a[i + 1].p for i in range(3))]
    assert list(monotone) == wanted
    assert monotone.names[0] == "bf16-bf16-bf16-bf16"
    assert monotone.names[-1] == "fp64-fp64-fp64-fp64"


def test_formats_with_equal_bits_may_stand_in_either_order():
    # fp16 and tf32 both have 11 bits; fp16 comes first, its exponent range being smaller.
    assert monotone_space(("a", "b"), ["tf32", "fp16"]).names == (
        "fp16-fp16",
        "fp16-tf32",
        "tf32-fp16",
        "tf32-tf32",
    )


def test_paper_drops_exactly_the_actions_with_bf16_in_factor_and_update():
    space = monotone_space(STAGES, PAPER)
    kept = space.last(25)
    assert len(space) == 35
    dropped = [a for a in space if a not in kept.actions]
    assert dropped == [a for a in space if a[0] == a[1] == rw.BF16]
    assert len(dropped) == 10


def test_safe_action():
    assert monotone_space(STAGES, PAPER).safe == 34
    assert list_space(("a", "b"), ["fp64-fp64", "bf16-bf16"]).safe == 0
    # None has most bits everywhere: the last stage decides, then the one before.
    assert list_space(("a", "b"), ["fp64-bf16", "bf16-fp32", "tf32-fp32"]).safe == 2


def test_index_takes_text_formats_and_names():
    space = monotone_space(STAGES, PAPER)
    for i, action in enumerate(space):
        assert space.index(action) == space.index(space.names[i]) == i
        assert space.index([f.name for f in action]) == i
        assert space[i] == action
    with pytest.raises(ValueError, match="not in the space"):
        space.index("fp64-bf16-bf16-bf16")


def test_implied_failures_brute_force():
    space = full_space(("a", "b", "c"), PAPER)
    for failed, limit in enumerate(space):
        # These formats differ in bits alone, so that "no higher" is "no more bits".
        wanted = [
            i
            for i, action in enumerate(space)
            if i != failed and not any(f.p > g.p for f, g in zip(action, limit, strict=True))
        ]
        assert implied_failures(space, failed) == wanted


def test_implied_failures_respects_the_exponent_range():
    space = list_space(("a",), ["fp16", "bf16", "e5m2", "tf32", "fp32"])
    by_name = {
        n: {space.names[i] for i in implied_failures(space, space.index(n))} for n in space.names
    }
    assert by_name == {
        "fp16": {"e5m2"},  # bf16 has fewer bits, but what overflows fp16 may fit bf16
        "bf16": {"e5m2"},
        "e5m2": set(),
        "tf32": {"fp16", "bf16", "e5m2"},
        "fp32": {"fp16", "bf16", "e5m2", "tf32"},
    }


def test_implied_failures_is_transitive():
    space = monotone_space(STAGES, PAPER)
    below = [set(implied_failures(space, i)) for i in range(len(space))]
    assert below[space.safe] == set(range(34))
    for i, j in itertools.product(range(35), repeat=2):
        if j in below[i]:
            assert below[j] < below[i]


def test_saved_space_comes_back_with_its_own_formats():
    space = monotone_space(("a", "b"), [rw.FloatFormat("mine", 13, -30, 31), "fp64"])
    again = ActionSpace.from_dict(json.loads(json.dumps(space.to_dict())))
    assert again == space
    assert again[0][0].p == 13


@pytest.mark.parametrize("saved", [{}, {"stages": ["a"], "formats": [], "actions": ["fp64"]}])
def test_foreign_dict_is_refused(saved):
    with pytest.raises(ValueError, match="not a saved action space"):
        ActionSpace.from_dict(saved)


@pytest.mark.parametrize(
    ("make", "error", "match"),
    [
        (lambda: list_space(STAGES, []), ValueError, "at least one action"),
        (lambda: full_space(STAGES, []), ValueError, "at least one action"),
        (lambda: full_space((), PAPER), ValueError, "stages"),
        (lambda: full_space(("a", "a"), PAPER), ValueError, "each with its own name"),
        (lambda: full_space("ab", PAPER), TypeError, "tuple of names"),
        (lambda: full_space(STAGES, "fp64"), TypeError, "list of names"),
        (lambda: full_space(STAGES, ["fp63"]), rw.UnknownNameError, "known: "),
        (lambda: list_space(("a",), ["fp64", "fp64"]), ValueError, "listed twice"),
        (lambda: list_space(("a", "b"), ["fp64"]), ValueError, "one for each stage"),
        (lambda: list_space(("a", "b"), [["fp64"]]), ValueError, "one for each stage"),
        (lambda: list_space(("a",), "fp64"), TypeError, "list of actions"),
        (lambda: full_space(("a",), PAPER).last(0), ValueError, "at least one"),
        (lambda: implied_failures(full_space(("a",), PAPER), 4), IndexError, "4 actions"),
        (lambda: implied_failures(full_space(("a",), PAPER), -1), IndexError, "4 actions"),
        (lambda: ActionSpace(("a",), ("fp64",)), TypeError, "list_space"),
        (lambda: as_action("fp64", STAGES), ValueError, "one for each stage"),
        (lambda: as_action(7), TypeError, "str"),
        (
            lambda: full_space(("a",), ["fp64", rw.FloatFormat("fp64", 9, -9, 9)]),
            ValueError,
            "share a name",
        ),
    ],
)
def test_garbage(make, error, match):
    with pytest.raises(error, match=match):
        make()


# Methods, and actions as objects


def test_an_action_is_a_tuple_of_formats_with_a_method():
    plain = Action(["bf16", "fp64"])
    assert plain == (rw.BF16, rw.FP64)
    assert plain == (rw.BF16, rw.FP64)
    assert hash(plain) == hash((rw.BF16, rw.FP64))
    assert plain.method == ""
    assert str(plain) == "bf16-fp64"
    named = Action(plain, "cholesky/amd")
    assert str(named) == "cholesky/amd:bf16-fp64"
    assert named != plain
    assert named != (rw.BF16, rw.FP64)
    assert named != (rw.BF16, rw.FP64)
    assert tuple(named) == (rw.BF16, rw.FP64)
    assert named != Action(plain, "lu")
    assert len({plain, tuple(plain), named, Action(plain, "lu")}) == 3
    assert plain != "bf16-fp64"


@pytest.mark.parametrize("text", ["fp64", "bf16-fp32-fp64-fp64", "lu:fp32-fp64", "a/b:fp16-tf32"])
def test_text_pickle_and_copy_give_the_same_action(text):
    action = Action.parse(text)
    assert str(action) == text
    for again in (
        Action.parse(str(action)),
        pickle.loads(pickle.dumps(action)),
        copy.deepcopy(action),
        copy.copy(action),
        eval(repr(action)),
    ):
        assert type(again) is Action
        assert again == action
        assert (again.method, hash(again), str(again)) == (action.method, hash(action), text)


def test_a_registered_format_is_known_by_name_in_an_actions_text():
    mine = rw.FloatFormat("mine17", 17, -126, 127)
    with pytest.raises(rw.UnknownNameError, match="mine17"):
        Action.parse("mine17-fp64")
    rw.register_format(mine)
    try:
        assert Action.parse("lu:mine17-fp64")[0] is mine
        assert rw.LuIR().formats("mine17-fp64-fp64")[0] is mine
        problem = rw.problems.randsvd(20, 10, rng=0)
        outcome = rw.LuIR().run(problem, "mine17-fp64-fp64")
        assert outcome.nbe <= 1e-15
        assert outcome.action == "mine17-fp64-fp64"
        rw.register_format(mine)  # twice is harmless
        with pytest.raises(ValueError, match="mine17"):
            rw.register_format(rw.FloatFormat("mine17", 18, -126, 127))
    finally:
        del rw.formats.NAMED_FORMATS["mine17"]


METHODS = list_space(
    STAGES,
    [
        "cholesky:fp32-fp64-fp64-fp64",
        "cholesky:fp64-fp64-fp64-fp64",
        "lu:bf16-fp64-fp64-fp64",
        "lu:fp32-fp64-fp64-fp64",
        "lu:fp64-fp64-fp64-fp64",
    ],
)


def test_spaces_with_methods():
    assert METHODS.methods == ("cholesky", "lu")
    assert monotone_space(STAGES, PAPER).methods == ("",)
    assert METHODS.names[METHODS.safe] == "lu:fp64-fp64-fp64-fp64"  # the later method is safer
    reverse = ActionSpace(STAGES, METHODS.actions[::-1])
    assert reverse.names[reverse.safe] == "cholesky:fp64-fp64-fp64-fp64"
    assert METHODS.index("cholesky:fp64-fp64-fp64-fp64") == 1
    assert METHODS.index(METHODS[3]) == 3
    assert METHODS.find(Action.parse("lu:fp32-fp64-fp64-fp64")) == 3
    assert METHODS.find(Action.parse("fp32-fp64-fp64-fp64")) is None
    with pytest.raises(ValueError, match="not in the space"):
        METHODS.index("fp32-fp64-fp64-fp64")
    again = ActionSpace.from_dict(json.loads(json.dumps(METHODS.to_dict())))
    assert again == METHODS
    assert again.methods == METHODS.methods
    with pytest.raises(ValueError, match="listed twice"):
        list_space(("a",), ["lu:fp64", "lu:fp64"])
    assert len(list_space(("a",), ["lu:fp64", "fp64", "qr:fp64"])) == 3


def test_a_failure_implies_others_of_its_method_alone():
    assert implied_failures(METHODS, 4) == [2, 3]
    assert implied_failures(METHODS, 1) == [0]


def test_climbs_of_a_space_end_with_the_safe_action():
    assert [METHODS.climb(i) for i in range(5)] == [(0, 1, 4), (1, 4), (2, 3, 4), (3, 4), (4,)]
    # Without the safe formats in the other stages, straight to the safe action.
    space = monotone_space(("a", "b"), ["bf16", "fp32", "fp64"])
    names = [space.names[i] for i in space.climb(space.index("bf16-fp32"))]
    assert names == ["bf16-fp32", "fp32-fp64", "fp64-fp64"]
    for i in range(len(space)):
        assert space.climb(i)[-1] == space.safe
        assert len(set(space.climb(i))) == len(space.climb(i))


def test_algorithms_without_methods_refuse_them():
    problem = rw.problems.randsvd(5, 10, rng=0)
    with pytest.raises(ValueError, match="LuIR has no methods; leave out 'lu:'"):
        rw.LuIR().run(problem, "lu:fp64-fp64-fp64")
