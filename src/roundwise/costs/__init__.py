"""What this machine's native kernels cost: measured once, stored, and priced by rewards.

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
from roundwise.costs.stored import (
    ProfileError,
    cache_folder,
    load_profile,
    profile_path,
    save_profile,
)

__all__ = [
    "QUICK_SIZES",
    "SIZES",
    "Calibration",
    "ProfileError",
    "cache_folder",
    "calibrate",
    "load_profile",
    "profile_path",
    "save_profile",
]
