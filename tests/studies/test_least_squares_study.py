"""The study of least squares, on few small problems."""

from roundwise_studies import least_squares as study


def test_the_study_makes_its_tables():
    small = study.Settings(
        m=12, n=4, kappas=(1e0, 1e12), residuals=(1.0,), draws=1, training=3, testing=2
    )
    rows = study.sufficient(small).rows
    assert rows[0][1].startswith("bf16 / ")
    assert rows[1][1] == "fp64 / none"
    learned = study.learned(small)
    assert [row[0] for row in learned.rows] == ["all fp64", "bf16 factors", "Tuner"]
    assert learned.rows[0][1] == 100.0
