"""Every trial of `make torture`, for a second."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

if sys.platform != "linux":
    pytest.skip("the limits are Linux's", allow_module_level=True)

from torture import HANGING, TRIALS


@pytest.mark.parametrize("kind", TRIALS)
def test_a_trial_ends_well(kind):
    script = Path(__file__).with_name("torture.py")
    command = [sys.executable, str(script), "--one", kind, "--seed", "1", "--seconds", "1"]
    environment = os.environ | {"OPENBLAS_NUM_THREADS": "1", "ROUNDWISE_NUM_THREADS": "2"}
    run = subprocess.run(
        command, capture_output=True, text=True, timeout=HANGING, check=False, env=environment
    )
    assert run.returncode == 0, run.stderr
