"""scikit-fem: the torsion of a square bar, on finer and finer meshes."""

import skfem
from skfem.models.poisson import laplace, unit_load

mesh = skfem.MeshTri().refined(5)
for _ in range(4):
    basis = skfem.Basis(mesh, skfem.ElementTriP1())
    stiffness, load = laplace.assemble(basis), unit_load.assemble(basis)
    u = skfem.solve(*skfem.condense(stiffness, load, D=mesh.boundary_nodes()))
    print(f"{len(u)} nodes: largest {u.max():.8f}, mean {load @ u:.8f}")
    mesh = mesh.refined()
