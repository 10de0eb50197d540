import dataclasses
import math

import ml_dtypes
import numpy as np
import pytest
from cases import FORMATS, PATTERNS, all_values

import roundwise as rw

# Carson & Chen, Table 1: u, x_min, x_max, t, e_min, e_max, three digits each. The paper prints
# u = 9.77e-4 = 2^-10 and x_max = 1.70e38 for TF32; with 11 significand bits u is 2^-11 = 4.88e-4,
# and with emax = 127 the largest number is 3.40e38. These two are corrected here.
PAPER_TABLE = {
    "bf16": ("3.91e-03", "1.18e-38", "3.39e+38", 8, -126, 127),
    "fp16": ("4.88e-04", "6.10e-05", "6.55e+04", 11, -14, 15),
    "tf32": ("4.88e-04", "1.18e-38", "3.40e+38", 11, -126, 127),
    "fp32": ("5.96e-08", "1.18e-38", "3.40e+38", 24, -126, 127),
    "fp64": ("1.11e-16", "2.23e-308", "1.80e+308", 53, -1022, 1023),
}


@pytest.mark.parametrize("name", PAPER_TABLE)
def test_paper_table(name):
    fmt = rw.get_format(name)
    digits = tuple(f"{value:.2e}" for value in (fmt.unit_roundoff, fmt.min_normal, fmt.max))
    assert (*digits, fmt.p, fmt.emin, fmt.emax) == PAPER_TABLE[name]


def test_tf32_has_eleven_bits():
    assert rw.formats.TF32.unit_roundoff == 2**-11


@pytest.mark.parametrize("name", PATTERNS)
def test_extreme_numbers_are_those_of_the_bit_patterns(name):
    fmt, values = rw.get_format(name), all_values(name)
    positive = values[np.isfinite(values) & (values > 0)]
    assert fmt.max == positive.max()
    assert fmt.min_subnormal == positive.min()
    assert fmt.min_normal == float(ml_dtypes.finfo(PATTERNS[name][0]).smallest_normal)


@pytest.mark.parametrize(("name", "dtype"), [("fp32", np.float32), ("fp64", np.float64)])
def test_hardware_formats_agree_with_numpy(name, dtype):
    fmt, info = rw.get_format(name), np.finfo(dtype)
    assert (fmt.max, fmt.min_normal) == (info.max, info.smallest_normal)
    assert fmt.min_subnormal == info.smallest_subnormal
    assert 2 * fmt.unit_roundoff == info.eps


def test_sizes_are_those_of_the_encodings():
    bits = {"e4m3": 8, "e5m2": 8, "bf16": 16, "fp16": 16, "tf32": 19, "fp32": 32, "fp64": 64}
    bits |= {"fp64x2": 128, "fp16x2": 27, "bf16x3": 32}
    assert {name: fmt.bits for name, fmt in rw.formats.NAMED_FORMATS.items()} == bits
    stored = {"e4m3": 1, "e5m2": 1, "bf16": 2, "fp16": 2, "tf32": 4, "fp32": 4, "fp64": 8}
    stored |= {"fp64x2": 16, "fp16x2": 4, "bf16x3": 4}
    assert {name: fmt.storage_bytes for name, fmt in rw.formats.NAMED_FORMATS.items()} == stored


def test_without_subnormals_the_smallest_number_is_normal():
    flushing = dataclasses.replace(rw.FP16, subnormals=False)
    assert flushing.min_subnormal == flushing.min_normal == 2.0**-14


def test_get_format_takes_names_and_objects():
    assert rw.get_format("BF16") is rw.BF16
    custom = rw.FloatFormat("mine", 5, -3, 3)
    assert rw.get_format(custom) is custom
    assert str(custom) == "mine"


def test_unknown_name_lists_the_known_ones():
    with pytest.raises(rw.UnknownNameError, match=r"bf17.*bf16.*fp64") as error:
        rw.get_format("bf17")
    assert "\n" not in str(error.value)
    with pytest.raises(TypeError, match="a name or a FloatFormat, got int"):
        rw.get_format(16)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"p": 1}, "p = 1 is out of range; choose 2 <= p <= 53"),
        ({"p": 54}, "p = 54 is out of range"),
        ({"p": 8.0}, "p must be an int"),
        ({"emin": 1}, "choose -1022 <= emin <= 0 <= emax <= 1023"),
        ({"emax": 1024}, "float64 can carry"),
        ({"emin": -1023}, "float64 can carry"),
        ({"overflow": "wrap"}, "choose one of inf, nan, saturate"),
        ({"top_code_is_nan": True}, "has no infinity"),
        ({"name": "my-format"}, "choose a text without spaces, '-' and ':'"),
        ({"name": None}, "choose a text"),
    ],
)
def test_impossible_formats_are_refused(arguments, message):
    with pytest.raises((ValueError, TypeError), match=message):
        rw.FloatFormat(**({"name": "bad", "p": 8, "emin": -14, "emax": 15} | arguments))


@pytest.mark.parametrize("fmt", FORMATS, ids=str)
def test_formats_are_frozen_and_hashable(fmt):
    assert fmt in {fmt}
    with pytest.raises(dataclasses.FrozenInstanceError):
        fmt.p = 3
    assert math.isfinite(fmt.max)
