"""
The paper's three algorithms
============================

Carson & Chen, "Precision autotuning for linear solvers via contextual bandit-based RL", in a
minute: GMRES-IR in four formats (their Algorithm 2), a bandit that chooses the formats (Algorithm
1), and both together (Algorithm 3), on forty small systems. Needs roundwise[plot].
"""

import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

import roundwise as rw
from roundwise.policies import TabularQ
from roundwise.rewards import PAPER_W1, PAPER_W2

rng = np.random.default_rng(0)
systems = [rw.problems.randsvd(40, 10.0 ** rng.uniform(1, 8), mode=2, rng=i) for i in range(60)]
training, unseen = systems[:40], systems[40:]

# %%
# Algorithm 2: GMRES-IR in four formats
# -------------------------------------
# An action names a format for each stage: the LU factors, the update of x, GMRES, the residual.
# What a run gives is an outcome: errors, iterations, operations; not yet a reward.

solver = rw.GmresIR.paper(tau=1e-6)
for action in ("fp64-fp64-fp64-fp64", "fp32-fp64-fp64-fp64", "bf16-fp32-fp32-fp64"):
    outcome = solver.run(training[0], action)
    print(
        f"{action}: forward error {outcome.ferr:.0e}, {outcome.outer_iterations} steps, "
        f"{outcome.inner_iterations} GMRES iterations"
    )

# %%
# Algorithm 1: a bandit chooses
# -----------------------------
# The state is a bin of log10 kappa and log10 of the norm. With probability epsilon, which falls
# from 1 to 0.1, a random action is tried, else the one with the largest value so far; its value
# moves half of the way to the reward. That is all of it, here for two actions and two states
# whose rewards are known:

bandit, states = TabularQ(alpha=0.5), np.array([[1.0, 0.0], [8.0, 0.0]])
bandit.start(states, rw.actions.list_space(["factor"], ["fp32", "fp64"]))
for t in range(100):
    for state, rewards in zip(bandit.encode(states), [(1.0, 0.0), (-1.0, 0.0)], strict=True):
        action = bandit.explore(state, rng, t / 100)
        bandit.update(state, action, rewards[action])
print("low kappa, high kappa:", [bandit.space.names[a] for a in bandit.predict(states)])

# %%
# Algorithm 3: both together
# --------------------------
# ``Tuner`` runs every action once on every training system, and keeps the outcomes in a file;
# episodes replay them. So the second of the paper's two weightings, W2, solves nothing again.

tuners = {}
with tempfile.TemporaryDirectory() as folder:
    for name, reward in {"W1": PAPER_W1, "W2": PAPER_W2}.items():
        table = Path(folder) / "outcomes.sqlite"
        tuner = rw.Tuner(solver, ("bf16", "tf32", "fp32", "fp64"), reward=reward, table=table)
        tuners[name] = tuner.fit(training)

# %%
# Above is the mean reward of each episode under W2, and what the best actions would have earned
# more. Below is the table of values over the two features: where training has been, how often,
# and by how much the best action of a state leads.

tuners["W2"].plot()
plt.show()

# %%
# On unseen systems
# -----------------
# How many of the four stages each policy puts below FP64, and the largest forward error that this
# cost.

for name, tuner in tuners.items():
    chosen = [tuner.predict(system) for system in unseen]
    low = [sum(fmt.name != "fp64" for fmt in action) for action in chosen]
    worst = max(solver.run(p, a).ferr for p, a in zip(unseen, chosen, strict=True))
    print(f"{name}: {np.mean(low):.2f} of 4 stages below FP64, largest forward error {worst:.0e}")
