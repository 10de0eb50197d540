"""Costs of work: machine profiles, `calibrate` to measure one, and prices of a solve's work.

>>> profile = calibrate()                      # doctest: +SKIP
>>> save_profile(profile)                      # doctest: +SKIP
>>> reward = CostReward(load_profile())        # doctest: +SKIP
"""

from roundwise.costs.calibration import calibrate
from roundwise.costs.machines import (
    BITS_PROPORTIONAL,
    GENERIC_AVX512_CPU,
    H200_LIKE,
    PROFILES,
    MachineProfile,
    MeasuredTime,
    OutcomeRow,
    Rate,
)
from roundwise.costs.prices import current_prices
from roundwise.costs.rates import (
    ProfileError,
    ProfileMissingError,
    ProfileWarning,
    load_profile,
    save_profile,
)
from roundwise.methods.contract import Shape, Work
