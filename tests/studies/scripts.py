"""Programs of benchmarks/ and docs/, as modules."""

import importlib.util
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def loaded(path):
    """The program at this path below the root, imported as when it is run."""
    spec = importlib.util.spec_from_file_location(Path(path).stem, ROOT / path)
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)  # for dataclasses
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend((ROOT / path).parent)  # modules beside it can be imported
        spec.loader.exec_module(module)
    return module
