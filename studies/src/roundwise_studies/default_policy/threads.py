"""Measures how rates change with threads: ``costs/thread_scaling.json``, which ships.

``python -m roundwise_studies.default_policy.threads`` on an idle machine with many cores (a
minute). Threads are doubled from one to all.
"""

from __future__ import annotations

import json
from pathlib import Path

import roundwise.costs
from roundwise.costs import calibrate
from roundwise.costs.thread_scaling import FILE, ThreadScaling
from roundwise.machine.identity import Machine
from roundwise.machine.threads import set_num_threads, usable_cores

SHIPPED = Path(roundwise.costs.__file__).with_name(FILE)
SECONDS = 0.05


def main() -> None:
    cores, machine = usable_cores(), Machine.this()
    counts = [count for count in (2**i for i in range(11)) if count < cores] + [cores]
    profiles = {}
    for count in counts:
        set_num_threads(count)
        profiles[count] = calibrate(seconds_per_kernel=SECONDS, sparse={}).profile()
    source = f"python -m roundwise_studies.default_policy.threads on {machine}"
    text = json.dumps(ThreadScaling(profiles, source).to_dict(), indent=1)
    SHIPPED.write_text(text + "\n", encoding="utf-8")
    print(SHIPPED)


if __name__ == "__main__":
    main()
