"""
Formats as data
===============

A format is a few numbers: the bits of its significand and the range of its exponent. Rounding to
it is exact, and any algorithm runs in it. Needs roundwise[plot].
"""

import matplotlib.pyplot as plt
import numpy as np

import roundwise as rw

# %%
# Named ones, and one of your own
# -------------------------------

mine = rw.FloatFormat("mine", p=6, emin=-30, emax=31)
formats = [rw.get_format(name) for name in ("fp64", "fp32", "tf32", "fp16", "bf16", "e4m3")]
for fmt in [*formats, mine]:
    print(f"{fmt.name:5}  u = {fmt.unit_roundoff:.1e}  {fmt.min_normal:.1e} to {fmt.max:.1e}")

# %%
# The error of rounding
# ---------------------
# At most the unit roundoff, within the range. Below the smallest normal number digits are lost;
# above the largest there is infinity, or NaN.

values = np.logspace(-12, 8, 4000)
fig, axis = plt.subplots(figsize=(8, 3.6), layout="constrained")
for fmt, color in zip([*formats[1:], mine], plt.colormaps["tab10"].colors, strict=False):
    rounded = rw.round_to(values, fmt)
    error = np.abs(rounded - values) / values
    shown = np.isfinite(rounded)
    axis.loglog(values[shown], error[shown], ".", ms=1.5, color=color, label=fmt.name)
axis.set(xlabel="value", ylabel="relative error of rounding", ylim=(1e-10, 2))
axis.legend(ncols=6, loc="lower center", markerscale=6)

# %%
# What that means for a solve
# ---------------------------
# GMRES-IR with factors in each format and all else in FP64, for condition numbers from 10 to 1e10.
# Every operation is rounded. GMRES makes up for poor factors: fewer bits take more iterations.
# (A field without a number would be a run that failed.)

kappas = np.logspace(1, 10, 10)
systems = [rw.problems.randsvd(50, kappa, rng=0) for kappa in kappas]
algorithm = rw.GmresIR(stop=rw.algorithms.DeploymentRule())
tried = ("e4m3", "bf16", "fp16", "tf32", "fp32", "fp64")
steps = np.full((len(tried), len(kappas)), np.nan)
for i, name in enumerate(tried):
    for j, system in enumerate(systems):
        outcome = algorithm.run(system, f"{name}-fp64-fp64-fp64")
        if outcome.status is rw.OutcomeStatus.CONVERGED:
            steps[i, j] = outcome.inner_iterations

fig, axis = plt.subplots(figsize=(8, 3.2), layout="constrained")
image = axis.imshow(np.log2(1 + steps), cmap="viridis_r", aspect="auto", vmin=0, vmax=8)
axis.set(
    xticks=range(len(kappas)),
    xticklabels=[f"1e{k:.0f}" for k in np.log10(kappas)],
    yticks=range(len(tried)),
    yticklabels=tried,
    xlabel="condition number",
    title="GMRES iterations until the gate's tolerance, by format of the factors",
)
for (i, j), count in np.ndenumerate(steps):
    if np.isfinite(count):
        dark = count > 15
        axis.text(
            j, i, f"{count:.0f}", ha="center", va="center", color="white" if dark else "black"
        )
plt.show()
