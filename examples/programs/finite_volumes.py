"""FiPy: heat that spreads through a plate, in implicit steps."""

import os

os.environ["FIPY_SOLVERS"] = "scipy"  # before it is imported

from fipy import CellVariable, DiffusionTerm, Grid2D, LinearLUSolver, TransientTerm

mesh = Grid2D(nx=100, ny=100)
heat = CellVariable(mesh=mesh, value=0.0)
heat.constrain(1.0, mesh.facesLeft)
heat.constrain(0.0, mesh.facesRight)
equation = TransientTerm() == DiffusionTerm(coeff=1.0)
for _ in range(8):
    equation.solve(var=heat, dt=100.0, solver=LinearLUSolver())
print(f"heat {heat.value.sum():.6f}")
