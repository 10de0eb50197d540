"""
Why refinement works
====================

Factors in low precision give an answer with few digits; refinement adds the others, a few in each
step, as long as ``kappa u_f < 1``. Here are a hundred unknowns, three formats and four condition
numbers. Needs roundwise[plot].
"""

import matplotlib.pyplot as plt
import numpy as np

import roundwise as rw

STEPS = 12
FORMATS = ("bf16", "fp16", "fp32")
KAPPAS = (1e1, 1e2, 1e4, 1e8)

# %%
# The error after each step
# -------------------------
# The factors are in the low format, with every operation rounded to it; the update and the residual
# are in FP64. A rule that allows k corrections, and never finds that they stagnate, shows the error
# after step k.


def errors(system: rw.LinearSystem, fmt: str) -> list[float]:
    """The relative error of x after 1, 2, ... corrections by LU factors in the format."""
    rules = [rw.algorithms.PaperRule(tau=np.inf, max_steps=k) for k in range(1, STEPS + 1)]
    outcomes = [rw.LuIR(stop=rule).run(system, f"{fmt}-fp64-fp64") for rule in rules]
    return [outcome.ferr for outcome in outcomes]


systems = {kappa: rw.problems.randsvd(100, kappa, rng=0) for kappa in KAPPAS}
history = {fmt: {kappa: errors(systems[kappa], fmt) for kappa in KAPPAS} for fmt in FORMATS}

for fmt in FORMATS:
    u = rw.get_format(fmt).unit_roundoff
    for kappa in KAPPAS:
        last = history[fmt][kappa][-1]
        print(f"{fmt}  kappa u_f = {kappa * u:8.1e}  error after {STEPS} steps {last:.1e}")

# %%
# The slope is the rate, about ``kappa u_f``: the smaller that is, the steeper the line. From 1 on,
# the error does not shrink.

colors = plt.colormaps["viridis"](np.linspace(0.0, 0.8, len(KAPPAS)))
fig, axes = plt.subplots(1, 3, figsize=(10, 3.6), sharey=True, layout="constrained")
for axis, fmt in zip(axes, FORMATS, strict=True):
    u = rw.get_format(fmt).unit_roundoff
    for kappa, color, marker in zip(KAPPAS, colors, "os^D", strict=True):
        label = f"$\\kappa$ = {kappa:.0e}"
        axis.semilogy(
            range(1, STEPS + 1), history[fmt][kappa], marker, ls="-", ms=4, color=color, label=label
        )
    axis.axhline(2.0**-53, color="gray", lw=0.8)
    axis.set(
        title=f"factors in {fmt}, $u_f$ = {u:.0e}", xlabel="refinement step", ylim=(1e-17, 1e3)
    )
    axis.set_xticks(range(2, STEPS + 1, 2))
axes[0].set_ylabel("relative error of x")
axes[-1].legend(frameon=False, loc="center right")
plt.show()
