"""
A policy of your own
====================

It ranks actions by their mean reward, whatever the problem.
It is trained, saved, loaded and asked like the policies of the library. Needs roundwise[tune].
"""

# sphinx_gallery_thumbnail_path = "images/thumb-custom_policy.png"

import tempfile
from pathlib import Path

import numpy as np

import roundwise as rw
from roundwise.policies import Policy

# %%
# The policy, whole
# -----------------
# ``begin`` forgets everything, ``expected`` predicts the reward of each action, ``update`` learns.


class MeanReward(Policy):
    """Ranks the actions by their mean reward over all problems."""

    name = "mean"

    def begin(self, contexts):
        self.sums, self.counts = np.zeros((2, len(self.space)))

    def expected(self, state):
        if not self.counts.any():
            return None  # the safe action comes first
        return np.where(self.counts > 0, self.sums / np.maximum(self.counts, 1), -np.inf)

    def update(self, state, action, reward):
        mean = self.sums[action] / max(self.counts[action], 1)
        self.sums[action] += reward
        self.counts[action] += 1
        return reward - mean

    def arrays(self):
        return {"sums": self.sums, "counts": self.counts}

    def restore(self, settings, arrays):
        self.sums, self.counts = arrays["sums"].copy(), arrays["counts"].copy()


# %%
# Trained by replay of outcomes
# -----------------------------

rng = np.random.default_rng(0)
problems = [rw.problems.randsvd(20, 10.0**k, rng=rng) for k in range(1, 7)]
tuner = rw.Tuner(rw.GmresIR.paper(), ("bf16", "fp32", "fp64"), policy=MeanReward())
tuner.fit(problems)

# %%
# Saved and loaded: JSON and npz, no pickle
# -----------------------------------------

with tempfile.TemporaryDirectory() as folder:
    path = Path(folder) / "tuner.json"
    tuner.save(path)
    policy = rw.Tuner.load(path, policies=[MeanReward]).policy_

# %%
# What it says of a problem
# -------------------------

(state,) = policy.encode(tuner.contexts_[:1])
ranking = policy.rank(state)
for action, cost in list(zip(ranking.actions, ranking.costs, strict=True))[:3]:
    print(f"{policy.space.names[action]}  expected cost {cost:.2f}")
print(ranking.reason)
