"""Python imports this at the start of the processes that a program under `roundwise run` starts.

It calls the `sitecustomize` that it stands in front of, and replaces NumPy's and SciPy's functions
there, too.
"""

import importlib.util
import os
import sys
from importlib.machinery import PathFinder

_here = os.path.dirname(os.path.abspath(__file__))
_others = [folder for folder in sys.path if os.path.abspath(folder or ".") != _here]
_hidden = PathFinder.find_spec("sitecustomize", _others)
if _hidden is not None and _hidden.loader is not None:
    _hidden.loader.exec_module(importlib.util.module_from_spec(_hidden))

# Another Python, which has no Roundwise, goes on without.
if "ROUNDWISE_RUN" in os.environ and importlib.util.find_spec("roundwise") is not None:
    from roundwise.integrations.running import begin_in_subprocess

    begin_in_subprocess()
