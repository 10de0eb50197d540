"""What dense work costs on a GPU, in seconds, before it is done.

A factorization is bound by its panels where n is small, and by products where it is large:

    n column + 2/3 n^3 / rate + launch

with the seconds of a `column` of a panel, those that do not depend on n (`launch`), and the rate of
products, all by method and format. A correction is a substitution and a residual, bound by memory.
`roundwise calibrate --device cuda` measures them.
"""

from __future__ import annotations

import json
import math
import warnings
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from roundwise._files import read_json, replace_file
from roundwise.costs.stored import ProfileError, ProfileWarning, cache_folder
from roundwise.exceptions import RoundwiseError
from roundwise.formats import FP64
from roundwise.machine import Machine

SCHEMA = "roundwise-device-prices"
VERSION = 1


@dataclass(frozen=True)
class FactorPrice:
    """The price of a factorization by one method in one format."""

    flops_per_second: float
    column: float  # seconds
    launch: float = 0.0  # seconds

    def seconds(self, n: int, share: float = 1.0) -> float:
        """Seconds for n unknowns; `share` is the flops over those of LU, half for Cholesky."""
        return self.launch + n * self.column + share * 2 / 3 * n**3 / self.flops_per_second


@dataclass(frozen=True)
class DevicePrices:
    """The prices of one GPU, and where they come from."""

    device: str
    factors: Mapping[str, Mapping[str, FactorPrice]]  # by method and format
    bytes_per_second: float  # of passes over a matrix
    step: float  # seconds of a correction that do not depend on n
    step_column: float  # seconds of a correction per unknown: substitution is a chain of blocks
    transfer: float = 2.5e10  # bytes a second between processor and device
    source: str = field(default="", repr=False)

    def prices(self, method: str, fmt: str) -> bool:
        return fmt in self.factors.get(method, {})

    def factor_seconds(self, method: str, fmt: str, n: int) -> float:
        share = 0.5 if method == "cholesky" else 1.0
        return self.factors[method][fmt].seconds(n, share)

    def step_seconds(self, fmt: str, n: int, columns: int = 1) -> float:
        """Seconds of a substitution with the factors, and of a residual, for each column."""
        factors = 8 if fmt == FP64.name else 4
        passes = n * n * (8 + factors) / self.bytes_per_second
        return columns * (self.step + n * self.step_column + passes)

    def to_dict(self) -> dict[str, Any]:
        return {"schema": SCHEMA, "version": VERSION, **asdict(self)}

    @classmethod
    def from_dict(cls, saved: Any) -> DevicePrices:
        known = {"schema": SCHEMA, "version": VERSION}
        if not isinstance(saved, dict) or {name: saved.get(name) for name in known} != known:
            raise RoundwiseError(
                "no prices of a device that this Roundwise reads; run `roundwise calibrate "
                "--device cuda`"
            )
        rest = {name: value for name, value in saved.items() if name not in known}
        try:
            factors = {
                method: {fmt: FactorPrice(**price) for fmt, price in by_format.items()}
                for method, by_format in rest.pop("factors").items()
            }
            made = cls(factors=factors, **rest)
            for method, by_format in factors.items():
                for fmt in by_format:
                    if not 0 < made.factor_seconds(method, fmt, 1000) < math.inf:
                        raise ValueError(f"{method} in {fmt} has no price")
            return made
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise RoundwiseError(
                f"damaged prices of a device ({error!r}); run `roundwise calibrate --device cuda`"
            ) from error


@cache
def generic_device_prices() -> DevicePrices:
    """The prices that come with the package, measured on the device that they name."""
    text = files("roundwise.costs").joinpath("generic_prices_cuda.json").read_text("utf-8")
    return DevicePrices.from_dict(json.loads(text))


def device_prices_path(machine: Machine) -> Path:
    """Where the prices of a device are stored."""
    return cache_folder() / f"prices-{machine.key}.json"


def save_device_prices(prices: DevicePrices, path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    replace_file(path, json.dumps(prices.to_dict(), indent=1, allow_nan=False).encode() + b"\n")
    return path


@cache
def device_prices(machine: Machine) -> DevicePrices:
    """As `roundwise calibrate --device cuda` measured them here; else the generic ones.

    They are looked up once in a process. A file that cannot be used is a `ProfileWarning`: prices
    cost time, no digits.
    """
    try:
        return DevicePrices.from_dict(read_json(device_prices_path(machine)))
    except (ProfileError, FileNotFoundError):  # there is no cache folder, or nobody has measured
        return generic_device_prices()
    except (OSError, ValueError, RoundwiseError) as error:
        warnings.warn(f"generic prices decide: {error}", ProfileWarning, stacklevel=2)
        return generic_device_prices()
