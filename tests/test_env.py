"""`PrecisionEnv` as Gymnasium wants it, and as the rewards say."""

import copy
import subprocess
import sys
from pathlib import Path

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env, data_equivalence

import roundwise as rw
from roundwise import env as env_module
from roundwise.actions import list_space, monotone_space
from roundwise.costs import H200_LIKE
from roundwise.env import PrecisionEnv
from roundwise.outcomes import OutcomeTable, fill
from roundwise.rewards import PAPER_W1, CostReward
from roundwise.tuning import PAPER_CONTEXT, Context, view_contexts, view_rewards

ALGORITHM = rw.GmresIR.paper()
SPACE = monotone_space(ALGORITHM.stages, ["bf16", "fp32", "fp64"])
SMALL = list_space(("one", "two"), ["bf16-fp32", "fp32-fp32", "fp64-fp64"])
CONTEXTS = [[1.0, 0.5], [3.0, 0.25]]
REWARDS = [[1.0, 4.0, 2.0], [-1.0, -3.0, 0.0]]
REWARD = CostReward(H200_LIKE)


def make_problems():
    rng = np.random.default_rng(5)
    return [rw.problems.randsvd(15, 10.0**k, mode=2, rng=rng) for k in (1, 4, 7)]


@pytest.fixture(scope="module")
def problems():
    return make_problems()


@pytest.fixture(scope="module")
def view(problems, tmp_path_factory):
    table = OutcomeTable(tmp_path_factory.mktemp("env") / "outcomes.sqlite")
    fill(table, ALGORITHM, problems, SPACE)
    return table.view(ALGORITHM, problems, SPACE)


def replay():
    return PrecisionEnv(CONTEXTS, REWARDS, SMALL)


def live(problems):
    return PrecisionEnv.from_problems(problems, ALGORITHM, SPACE, REWARD)


def play(env, seed, episodes=20):
    """What an agent sees that chooses at random."""
    rng = np.random.default_rng(seed)
    seen = []
    for episode in range(episodes):
        seen.append(env.reset(seed=seed if episode == 0 else None))
        seen.append(env.step(int(rng.integers(env.action_space.n))))
    return seen


def test_gymnasium_checks(problems, view):
    for env in (replay(), live(problems), PrecisionEnv.from_view(view, REWARD)):
        check_env(env)
    check_env(PrecisionEnv([[1.0, 1e300]], [[0.0, 0.0, 0.0]], SMALL))  # constant features
    check_env(PrecisionEnv(CONTEXTS, [[0.0], [1.0]], list_space(("one",), ["fp64"])))


def test_rewards_and_info_are_those_of_the_table():
    env = replay()
    for problem, row in enumerate(REWARDS):
        for action, reward in enumerate(row):
            observation, info = env.reset(options={"problem": problem})
            assert info == {"problem": problem}
            assert observation.tolist() == CONTEXTS[problem]
            after, got, terminated, truncated, info = env.step(action)
            assert (got, terminated, truncated) == (reward, True, False)
            assert after.tolist() == CONTEXTS[problem]
            assert info == {
                "problem": problem,
                "action": SMALL.names[action],
                "oracle_regret": max(row) - reward,
            }


def test_spaces():
    env = replay()
    assert env.action_space == gymnasium.spaces.Discrete(3)
    assert env.observation_space.low.tolist() == [1.0, 0.25]
    assert env.observation_space.high.tolist() == [3.0, 0.5]
    assert env.observation_space.dtype == np.float64
    constant = PrecisionEnv([[1.0, 1e300]], [[0.0, 0.0, 0.0]], SMALL).observation_space
    assert (constant.low[0], constant.high[0]) == (0.0, 2.0)
    assert constant.low[1] < 1e300 < constant.high[1]


def test_problems_are_drawn_uniformly():
    env = replay()
    env.reset(seed=1)
    draws = np.array([env.reset()[1]["problem"] for _ in range(2000)])
    assert abs(draws.mean() - 0.5) < 5 * 0.5 / np.sqrt(2000)  # five standard deviations


def test_same_seed_same_episodes(problems, view):
    for env in (replay(), live(problems), PrecisionEnv.from_view(view, REWARD)):
        twin = copy.deepcopy(env)
        first = play(env, seed=7)
        assert data_equivalence(first, play(twin, seed=7), exact=True)
        assert data_equivalence(first, play(env, seed=7), exact=True)  # whatever was before
        assert data_equivalence(first, play(env.spec.make().unwrapped, seed=7), exact=True)
        assert not data_equivalence(first, play(env, seed=8), exact=True)


def test_what_is_returned_may_be_changed():
    env, contexts, rewards = replay(), np.array(CONTEXTS), np.array(REWARDS)
    own = PrecisionEnv(contexts, rewards, SMALL)
    for array in (contexts, rewards, env.reset(seed=0)[0], own.reset(seed=0)[0]):
        array[:] = -99
    for other in (own, own.spec.make().unwrapped):
        assert data_equivalence(play(other, 1), play(env, 1), exact=True)


@pytest.mark.parametrize("reward", [PAPER_W1, REWARD])
def test_view_live_and_tuner_agree(problems, view, reward):
    table = view_rewards(view, reward, SPACE)
    replayed = PrecisionEnv.from_view(view, reward)
    solved = PrecisionEnv.from_problems(problems, ALGORITHM, SPACE, reward)
    np.testing.assert_array_equal(replayed.contexts, view_contexts(view, PAPER_CONTEXT))
    np.testing.assert_allclose(solved.contexts, replayed.contexts, rtol=1e-12)
    for problem in range(len(problems)):
        for action in range(len(SPACE)):
            rewards = []
            for env in (replayed, solved):
                env.reset(options={"problem": problem})
                rewards.append(env.step(action)[1])
            assert rewards[0] == table[problem, action]
            # Solving here may use other BLAS threads than filling, so the last bits may differ.
            assert rewards[1] == pytest.approx(rewards[0], rel=1e-3, abs=1e-3)


def test_live_runs_each_action_once(problems, monkeypatch):
    runs = []
    run = rw.GmresIR.run

    def counted(self, problem, action, backend="operation", shared=None):
        runs.append((problem.fingerprint, action))
        return run(self, problem, action, backend, shared)

    monkeypatch.setattr(rw.GmresIR, "run", counted)
    env = live(problems)
    assert runs == []
    for _ in range(2):
        env.reset(options={"problem": 1})
        *_, info = env.step(0)
        assert "oracle_regret" not in info
        assert runs == [  # the baseline, too
            (problems[1].fingerprint, SPACE[SPACE.safe]),
            (problems[1].fingerprint, SPACE[0]),
        ]
    for action in range(len(SPACE)):
        env.reset(options={"problem": 1})
        env.step(action)
    assert len(runs) == len(set(runs)) == len(SPACE)


@pytest.mark.parametrize("arithmetic", ["operation", "native"])
def test_features_of_live_problems_come_from_the_same_arithmetic(problems, arithmetic, monkeypatch):
    asked = []
    original = env_module.compute_with_factors

    def noted(problem, names, arithmetic):
        asked.append(arithmetic)
        return original(problem, names, arithmetic)

    monkeypatch.setattr(env_module, "compute_with_factors", noted)
    space = monotone_space(ALGORITHM.stages, ["fp32", "fp64"])
    context = Context(("kappa_est",), (1.0,))
    env = PrecisionEnv.from_problems(problems, ALGORITHM, space, REWARD, context, arithmetic)
    assert asked == [arithmetic] * len(problems)
    assert env.contexts[:, 0] == pytest.approx([1, 4, 7], abs=1.5)


def test_function_of_rewards():
    env = PrecisionEnv(CONTEXTS, lambda problem, action: REWARDS[problem][action], SMALL)
    env.reset(options={"problem": 1})
    _, reward, *_, info = env.step(np.array(2))  # as Stable-Baselines3 gives it
    assert reward == REWARDS[1][2]
    assert info == {"problem": 1, "action": "fp64-fp64"}


def test_garbage_is_refused(problems, view):
    for contexts in ([], [1.0, 2.0], [[]], [[1.0], [np.nan]], [[1.0], [np.inf]]):
        with pytest.raises(ValueError, match="contexts h"):
            PrecisionEnv(contexts, REWARDS, SMALL)
    for rewards in (REWARDS[0], REWARDS[:1], [[1.0, 2.0]] * 2, np.full((2, 3), np.nan)):
        with pytest.raises(ValueError, match="rewards h"):
            PrecisionEnv(CONTEXTS, rewards, SMALL)
    no_kappa = Context(("norm_inf",), (1.0,))
    with pytest.raises(ValueError, match="needs a condition number"):
        PrecisionEnv.from_problems(problems, ALGORITHM, SPACE, PAPER_W1, no_kappa)
    with pytest.raises(ValueError, match="features lack kappa_est"):
        PrecisionEnv.from_view(view, REWARD, Context(("kappa_est",), (1.0,)))
    with pytest.raises(ValueError, match="stages one, two"):
        PrecisionEnv.from_problems(problems, ALGORITHM, SMALL, REWARD)
    with pytest.raises(ValueError, match="contexts have shape"):
        PrecisionEnv.from_problems([], ALGORITHM, SPACE, REWARD)


def test_steps_need_a_reset_and_a_valid_action():
    env = replay()
    with pytest.raises(gymnasium.error.ResetNeeded, match="call reset"):
        env.step(0)
    env.reset(seed=0)
    for action in (-1, 3):
        with pytest.raises(ValueError, match="choose 0 to 2"):
            env.step(action)
    for action in (1.0, "fp64-fp64", None, np.array([1, 2])):
        with pytest.raises(TypeError, match="whole number"):
            env.step(action)
    env.step(2)  # an action that was refused does not end the episode
    with pytest.raises(gymnasium.error.ResetNeeded):
        env.step(2)
    with pytest.raises(ValueError, match="problem = 2; choose 0 to 1"):
        env.reset(options={"problem": 2})


def test_without_gymnasium_the_remedy_is_named():
    code = "import sys; sys.modules['gymnasium'] = None; import roundwise.env"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert run.returncode == 1
    assert "ImportError" in run.stderr
    assert "pip install roundwise[gym]" in run.stderr


def test_the_example_learns():
    example = Path(__file__).parent.parent / "examples" / "gym_agent.py"
    run = subprocess.run(
        [sys.executable, "-W", "error", example], capture_output=True, text=True, check=True
    )
    regrets = [float(line.split()[-1]) for line in run.stdout.splitlines()[-2:]]
    assert regrets[1] < regrets[0] / 10
