"""What work costs: machine profiles, `calibrate` to measure one, and prices of a solve's work.

>>> profile = calibrate()                      # doctest: +SKIP
>>> save_profile(profile)                      # doctest: +SKIP
>>> reward = CostReward(load_profile())        # doctest: +SKIP
"""

from roundwise.costs.calibration import (
    QUICK_SIZES,
    SIZES,
    Calibration,
    calibrate,
)
from roundwise.costs.machines import (
    BITS_PROPORTIONAL,
    GENERIC_AVX512_CPU,
    H200_LIKE,
    PROFILES,
    MachineProfile,
    MeasuredTime,
    OutcomeRow,
    Rate,
    cost_matrix,
)
from roundwise.costs.prices import (
    Prices,
    Shape,
    SparsePrices,
    Work,
    current_prices,
    generic_prices,
)
from roundwise.costs.stored import (
    ProfileError,
    cache_folder,
    load_profile,
    profile_path,
    save_profile,
)

__all__ = [
    "BITS_PROPORTIONAL",
    "GENERIC_AVX512_CPU",
    "H200_LIKE",
    "PROFILES",
    "QUICK_SIZES",
    "SIZES",
    "Calibration",
    "MachineProfile",
    "MeasuredTime",
    "OutcomeRow",
    "Prices",
    "ProfileError",
    "Rate",
    "Shape",
    "SparsePrices",
    "Work",
    "cache_folder",
    "calibrate",
    "cost_matrix",
    "current_prices",
    "generic_prices",
    "load_profile",
    "profile_path",
    "save_profile",
]
