"""Measures how rates change with threads: ``threads`` of ``machine/rates.json``, which ships.

``python -m roundwise_studies.default_policy.threads`` on an idle machine with many cores (a
minute). Threads are doubled from one to all.
"""

from __future__ import annotations

from roundwise.costs import calibrate
from roundwise.costs.rates import ThreadScaling
from roundwise.machine.identity import Machine
from roundwise.machine.rates import write_rates
from roundwise.machine.threads import set_num_threads, usable_cores

SECONDS = 0.05


def main() -> None:
    cores, machine = usable_cores(), Machine.this()
    counts = [count for count in (2**i for i in range(11)) if count < cores] + [cores]
    profiles = {}
    for count in counts:
        set_num_threads(count)
        profiles[count] = calibrate(seconds_per_kernel=SECONDS, sparse={}).profile()
    source = f"python -m roundwise_studies.default_policy.threads on {machine}"
    print(write_rates("threads", ThreadScaling(profiles, source).to_dict()))


if __name__ == "__main__":
    main()
