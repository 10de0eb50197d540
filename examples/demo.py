"""Formats, rounding traps, and what an LU factorization loses in each format."""

import numpy as np

import roundwise as rw


def formats_table() -> None:
    print("Formats\n")
    print("  name     p   emin   emax         u        min  min normal        max")
    for fmt in rw.NAMED_FORMATS.values():
        print(
            f"  {fmt.name:<6}{fmt.p:>4}{fmt.emin:>7}{fmt.emax:>7}{fmt.unit_roundoff:>10.2e}"
            f"{fmt.min_subnormal:>11.2e}{fmt.min_normal:>12.2e}{fmt.max:>11.2e}"
        )


def rounding_table() -> None:
    values = {
        "1 + 2^-8 + 2^-40": 1 + 2**-8 + 2**-40,
        "pi": np.pi,
        "70000": 70000.0,
        "3e-8": 3e-8,
        "-1e-40": -1e-40,
    }
    names = ["bf16", "fp16", "tf32", "e4m3"]
    print("\nRounding to nearest, and once: the first line through float32 would be 1 in bf16\n")
    print(f"  {'x':<18}" + "".join(f"{name:>14}" for name in names))
    for label, x in values.items():
        print(f"  {label:<18}" + "".join(f"{rw.round_to(x, name):>14.7g}" for name in names))


def lu_table(n: int = 300) -> None:
    rng = np.random.default_rng(0)
    A = rng.standard_normal((n, n)) / np.sqrt(n)
    x_true = rng.standard_normal(n)
    b = A @ x_true
    kappa = np.linalg.cond(A)
    print(f"\nLU factorization and solve, n = {n}, condition number {kappa:.0f}")
    print("Backward error of x over u, when every operation is rounded, or only what is stored\n")
    print(f"  {'format':<8}{'operation':>12}{'storage':>12}")
    for fmt in rw.NAMED_FORMATS.values():
        row = ""
        for arithmetic in ("operation", "storage"):
            try:
                x = rw.get_backend(arithmetic).matrix(A, fmt).lu().solve(b)
            except rw.ArithmeticFailure as failure:
                row += f"{failure.status.name.lower():>12}"
                continue
            size = np.abs(A).sum(axis=1).max() * np.abs(x).max() + np.abs(b).max()
            row += f"{np.abs(b - A @ x).max() / size / fmt.unit_roundoff:>12.2f}"
        print(f"  {fmt.name:<8}{row}")


if __name__ == "__main__":
    formats_table()
    rounding_table()
    lu_table()
