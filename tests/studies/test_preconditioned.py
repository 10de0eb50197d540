"""The study of preconditioned Krylov methods, on few small systems."""

import numpy as np
import pytest

from roundwise_studies import preconditioned as study

SMALL = [case for case in study.cases(m=6, n=12) if case.name in ("dense, kappa 1e2", "Poisson")]


def test_the_table_has_the_lowest_format_of_each_stage():
    rows = study.sufficient(SMALL).rows
    assert [row[0] for row in rows] == ["dense, kappa 1e2", "Poisson"]
    for row in rows:
        assert row[-1] == "fp64 (1.00)"  # what the residual is computed in decides
    assert rows[1][3].startswith("bf16")


def test_iterations_by_bits_end_with_those_of_fp64():
    pytest.importorskip("matplotlib")
    curves = study.by_bits(SMALL[1:])
    assert list(curves) == ["preconditioner", "krylov"]
    for lines in curves.values():
        for ratios in lines.values():
            assert len(ratios) == len(study.BITS)
            assert ratios[-1] == 1.0
            assert np.isinf(ratios[0]) or ratios[0] >= 1.0
    assert len(study.drawn(curves).axes) == 2
