"""The compiled module refuses hostile arguments: a small part of `make fuzz-native`."""

import subprocess
import sys
from pathlib import Path

import fuzz_native

from roundwise import _kernels


def test_what_is_not_fuzzed_is_still_there():
    assert set(fuzz_native.NOT_FUZZED) <= set(dir(_kernels))
    assert all(fuzz_native.NOT_FUZZED.values())


def test_every_entry_point_computes_or_refuses():
    """In a process of its own, which a crash would end. A new entry point fails here until
    tests/fuzz_native.py calls it."""
    program = Path(fuzz_native.__file__)
    command = [sys.executable, program, "--inputs", "8000", "--each", "8000", "--first", "1000"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
