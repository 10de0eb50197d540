"""What dense work costs on a GPU, in seconds, before it is done.

`roundwise.methods.gpu` has the formulas; `roundwise calibrate --device cuda` measures the rates.
"""

from __future__ import annotations

import json
import math
import warnings
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from roundwise._files import read_json, replace_file
from roundwise.costs.stored import ProfileError, ProfileWarning, cache_folder
from roundwise.exceptions import RoundwiseError
from roundwise.machine import Machine
from roundwise.machine.rates import shipped_rates
from roundwise.methods import METHODS, Seconds, Shape, Work
from roundwise.methods.gpu import correction

SCHEMA = "roundwise-device-prices"
VERSION = 1


@dataclass(frozen=True)
class FactorPrice:
    """The rates of a factorization by one method in one format."""

    flops_per_second: float
    column: float  # seconds
    launch: float = 0.0  # seconds


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
        """Whether work by this method in this format has a price."""
        return self._priced(Shape(1, 1), method, fmt) is not None

    def seconds(self, shape: Shape, method: str, fmt: str, work: Work) -> float:
        """The seconds that this work takes."""
        return self._known(shape, method, fmt).of(work, shape.columns)

    def factor_seconds(self, method: str, fmt: str, n: int) -> float:
        return self._known(Shape(n, n * n), method, fmt).factor

    def step_seconds(self, fmt: str, n: int, columns: int = 1) -> float:
        """Seconds of a substitution with the factors, and of a residual, for each column."""
        return correction(self, fmt, n, columns)

    def _priced(self, shape: Shape, method: str, fmt: str) -> Seconds | None:
        known = METHODS.get(method)
        return known.device_price(self, shape, fmt) if known and known.device_price else None

    def _known(self, shape: Shape, method: str, fmt: str) -> Seconds:
        found = self._priced(shape, method, fmt)
        if found is None:
            raise ValueError(f"{method} has no price in {fmt} on a GPU; ask `prices` before")
        return found

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
        return cls.from_rates({name: x for name, x in saved.items() if name not in known})

    @classmethod
    def from_rates(cls, saved: Any) -> DevicePrices:
        """From a part of `roundwise.machine.rates`."""
        try:
            factors = {
                method: {fmt: FactorPrice(**price) for fmt, price in by_format.items()}
                for method, by_format in saved["factors"].items()
            }
            made = cls(**saved | {"factors": factors})
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
    return DevicePrices.from_rates(shipped_rates("cuda"))


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
