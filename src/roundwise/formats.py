"""Floating-point formats as data: a new format needs no new code.

A format holds the numbers ``±m * 2**(e - p + 1)`` with an integer significand
``m < 2**p`` and ``emin <= e <= emax``; ``p`` counts the implicit bit.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from inspect import Signature, signature
from typing import Any, Literal, get_args

from roundwise._forking import cached_property
from roundwise.exceptions import UnknownNameError

Overflow = Literal["inf", "nan", "saturate"]


_made: dict[tuple[Any, ...], Any] = {}


class _OneOfAKind(type):
    """Formats with the same numbers and name are one object, so that comparing them costs nothing.

    Every solve compares some, and looks them up.
    """

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        made = super().__call__(*args, **kwargs)
        return _made.setdefault((cls, made._facts), made)

    @property
    def __signature__(cls) -> Signature:  # that of `__call__` names nothing
        _, *parameters = signature(vars(cls)["__init__"]).parameters.values()
        return Signature(parameters)


@dataclass(frozen=True, eq=False)
class FloatFormat(metaclass=_OneOfAKind):
    """A binary floating-point format, no wider than the sum of two float64 numbers.

    Parameters
    ----------
    name : str
        Used in messages, actions and saved files.
    p : int
        Significand bits, the implicit one included; 2 to 53, or 106 for a number that is kept as
        the sum of two float64 ones (``fp64x2``), in which only native kernels compute.
    emin, emax : int
        Exponents of the smallest and largest normal binade (IEEE 754's convention).
    subnormals : bool
        Without them, rounding chooses between 0 and ``min_normal`` by the rounding
        mode, a tie going to 0.
    overflow : {"inf", "nan", "saturate"}
        What a value becomes that rounds to more than `max`. OCP's E4M3 has no
        infinity: its conversions give NaN, or saturate at `max` (take
        ``dataclasses.replace(E4M3, name="e4m3sat", overflow="saturate")``).
    top_code_is_nan : bool
        The largest significand of the top binade encodes NaN, as in OCP's E4M3, so
        that `max` is the number below it.

    Examples
    --------
    >>> mine = rw.FloatFormat("mine", p=6, emin=-30, emax=31)
    >>> mine.unit_roundoff, mine.max
    (0.015625, 4227858432.0)
    """

    name: str
    p: int
    emin: int
    emax: int
    subnormals: bool = True
    overflow: Overflow = "inf"
    top_code_is_nan: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name or set("-: \t\n") & set(self.name):
            raise ValueError(
                f"name = {self.name!r}; choose a text without spaces, '-' and ':', which "
                "separate the parts of an action"
            )
        for field in ("p", "emin", "emax"):
            if type(getattr(self, field)) is not int:
                raise TypeError(f"{field} must be an int, got {getattr(self, field)!r}")
        if not 2 <= self.p <= 53 and self.p != 106:
            raise ValueError(f"p = {self.p} is out of range; choose 2 <= p <= 53, or 106")
        if not -1022 <= self.emin <= 0 <= self.emax <= 1023:
            raise ValueError(
                f"emin = {self.emin}, emax = {self.emax}; choose -1022 <= emin <= 0 <= emax <= "
                "1023, so that 1 fits and float64 can carry the values"
            )
        if self.overflow not in get_args(Overflow):
            raise ValueError(
                f"overflow = {self.overflow!r}; choose one of {', '.join(get_args(Overflow))}"
            )
        if self.top_code_is_nan and self.overflow == "inf":
            raise ValueError(
                "a format whose top code is NaN has no infinity; choose another overflow"
            )

    @cached_property
    def unit_roundoff(self) -> float:
        """``u = 2**-p``: the largest relative error of rounding to nearest, in range."""
        return math.ldexp(1.0, -self.p)

    @property
    def max(self) -> float:
        """The largest finite number, rounded down to float64 if that cannot hold it."""
        if self.p > 53:
            return math.ldexp(2**53 - 1, self.emax - 52)
        lost = 2 if self.top_code_is_nan else 1
        return math.ldexp(2**self.p - lost, self.emax - self.p + 1)

    @property
    def min_normal(self) -> float:
        """The smallest positive normal number, ``2**emin``."""
        return math.ldexp(1.0, self.emin)

    @property
    def min_subnormal(self) -> float:
        """The smallest positive number: `min_normal` in a format without subnormals."""
        return math.ldexp(1.0, self.emin - self.p + 1) if self.subnormals else self.min_normal

    @property
    def bits(self) -> int:
        """Bits of an encoding: sign, exponent (zero and specials included) and fraction."""
        if self.p > 53:
            return 2 * FP64.bits
        exponents = self.emax - self.emin + 2 + (self.overflow == "inf")
        return 1 + (exponents - 1).bit_length() + self.p - 1

    @cached_property
    def storage_bytes(self) -> int:
        """Bytes a number takes in memory: the next power of two (TF32's 19 bits take four)."""
        return 1 << max(0, math.ceil(math.log2(self.bits / 8)))

    def __str__(self) -> str:
        return self.name

    @cached_property
    def _facts(self) -> tuple[Any, ...]:
        return tuple(getattr(self, field.name) for field in fields(self))

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), self._facts


FP64X2 = FloatFormat("fp64x2", 106, -969, 1023)
"""Twice the precision of float64: a format of residuals, which native kernels compute in it."""

FP64 = FloatFormat("fp64", 53, -1022, 1023)
FP32 = FloatFormat("fp32", 24, -126, 127)
TF32 = FloatFormat("tf32", 11, -126, 127)
FP16X2 = FloatFormat("fp16x2", 22, -14, 15)
"""The sum of two fp16 numbers, multiplied on 16-bit units and summed in FP32."""

BF16X3 = FloatFormat("bf16x3", 24, -126, 127)
"""The sum of three bf16 numbers, multiplied on 16-bit units and summed in FP32."""

BF16 = FloatFormat("bf16", 8, -126, 127)
FP16 = FloatFormat("fp16", 11, -14, 15)
E5M2 = FloatFormat("e5m2", 3, -14, 15)
E4M3 = FloatFormat("e4m3", 4, -6, 8, overflow="nan", top_code_is_nan=True)

NAMED_FORMATS: dict[str, FloatFormat] = {
    fmt.name: fmt for fmt in (E4M3, E5M2, BF16, FP16, TF32, FP16X2, BF16X3, FP32, FP64, FP64X2)
}


def register_format(fmt: FloatFormat) -> FloatFormat:
    """Make a format of your own known by its name, in actions' texts and everywhere else.

    Parameters
    ----------
    fmt : FloatFormat

    Returns
    -------
    FloatFormat
        `fmt` itself.

    Examples
    --------
    >>> fmt = rw.register_format(rw.FloatFormat("docs12", p=9, emin=-6, emax=7))
    >>> rw.get_format("docs12") is fmt
    True
    """
    if not isinstance(fmt, FloatFormat):
        raise TypeError(f"got {type(fmt).__name__}; pass a FloatFormat")
    if NAMED_FORMATS.setdefault(fmt.name.lower(), fmt) != fmt:
        raise ValueError(f"another format is called {fmt.name}; choose a new name")
    return fmt


def get_format(fmt: str | FloatFormat) -> FloatFormat:
    """The format of that name, case ignored; a `FloatFormat` is returned as it is.

    Parameters
    ----------
    fmt : str or FloatFormat

    Examples
    --------
    >>> rw.get_format("BF16").p
    8
    """
    if isinstance(fmt, FloatFormat):
        return fmt
    if not isinstance(fmt, str):
        raise TypeError(f"a format is a name or a FloatFormat, got {type(fmt).__name__}")
    try:
        return NAMED_FORMATS[fmt.lower()]
    except KeyError:
        raise UnknownNameError("format", fmt, list(NAMED_FORMATS)) from None
