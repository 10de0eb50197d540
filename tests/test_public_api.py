"""Every public callable says what it takes, what it returns, and shows how to call it.

What is public, `docs/site/reference.py` tells; the pages of the API reference are made from the
same list. Examples are run with ``np`` and ``rw``, as the reference says.
"""

import doctest
import enum
import importlib.util
import inspect
import re
from itertools import pairwise
from pathlib import Path
from types import FunctionType

import numpy as np
import pytest

import roundwise as rw

pytest.importorskip("gymnasium", reason="roundwise.env needs it; pip install '.[gym]'")
pytest.importorskip("sklearn", reason="training needs it; pip install '.[tune]'")

PATH = Path(__file__).parents[1] / "docs" / "site" / "reference.py"
SPEC = importlib.util.spec_from_file_location("reference", PATH)
assert SPEC is not None
assert SPEC.loader is not None
reference = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(reference)

PUBLIC = {
    f"{module}.{name}": value
    for module, objects in reference.described().items()
    for name, value in objects.items()
    if reference.is_callable(value)
}
CALLED = [
    rw.Action,
    rw.Algorithm,
    rw.Factorization,
    rw.LinearSystem,
    rw.Solution,
    rw.Solver,
    rw.Tuner,
]
"""Classes whose methods people call, and which are described as functions are."""

METHODS = {
    f"roundwise.{owner.__name__}.{name}": getattr(owner, name)
    for owner in CALLED
    for name, value in vars(owner).items()
    if not name.startswith("_")
    and isinstance(value, FunctionType | classmethod | staticmethod)
    and name not in owner.__dict__.get("__abstractmethods__", ())
}
SHOWN = {name: value for name, value in PUBLIC.items() if not reference.is_error(value)} | METHODS


def sections(value) -> set[str]:
    """The headings of a docstring: lines that are underlined."""
    lines = (inspect.getdoc(value) or "").splitlines()
    return {line for line, below in pairwise(lines) if line and below == "-" * len(line)}


def takes_arguments(value) -> bool:
    if inspect.isclass(value) and issubclass(value, enum.Enum):
        return False
    return bool(set(inspect.signature(value).parameters) - {"self"})


def returns_what_the_signature_does_not_tell(value) -> bool:
    """Arrays, alternatives, what belongs to other packages: not a named class, nor simple types."""
    annotation = str(inspect.signature(value).return_annotation)
    vague = r"NDArray|ArrayLike|Any|Callable|Axes|\||Vector|InverseOperator"
    return not inspect.isclass(value) and re.search(vague, annotation) is not None


def test_the_list_has_what_people_import():
    assert {"roundwise.solve", "roundwise.Tuner", "roundwise.policies.TabularQ"} <= set(SHOWN)
    assert {"roundwise.problems.randsvd", "roundwise.SolveFailed"} <= set(PUBLIC)
    assert len(SHOWN) > 120
    assert all(not name.rpartition(".")[2].startswith("_") for name in PUBLIC)


def test_the_top_level_has_few_names():
    assert len(rw.__all__) <= 40
    assert set(rw.__all__) <= {*dir(rw), "problems"}
    for name in rw.__all__:
        assert getattr(rw, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'get_backend'"):
        rw.get_backend  # noqa: B018
    assert rw.machine.threads.simd_levels() == rw.machine.simd_levels()


@pytest.mark.parametrize("name", PUBLIC)
def test_it_says_what_it_does(name):
    first = (inspect.getdoc(PUBLIC[name]) or "").split("\n\n")[0]
    assert first.endswith(".")  # neither nothing nor the signature that a dataclass gives itself


@pytest.mark.parametrize("name", SHOWN)
def test_parameters_returns_and_an_example_are_documented(name):
    value = SHOWN[name]
    needed = {"Examples"}
    if takes_arguments(value):
        needed.add("Parameters")
    if returns_what_the_signature_does_not_tell(value):
        needed.add("Returns")
    assert needed <= sections(value)


@pytest.mark.parametrize("name", [name for name, value in SHOWN.items() if takes_arguments(value)])
def test_every_parameter_is_named(name):
    doc = inspect.getdoc(SHOWN[name]) or ""
    part = doc.partition("Parameters\n----------\n")[2].split("\n\n")[0].splitlines()
    heads = [line.partition(" : ")[0] for line in part if not line.startswith(" ")]
    named = {word.strip("* ") for head in heads for word in head.split(",")}
    asked = set(inspect.signature(SHOWN[name]).parameters) - {"self"}
    assert asked <= named or "others" in named, asked - named
    assert named - {"others"} <= asked, "these are no parameters"


@pytest.mark.parametrize("name", SHOWN)
def test_its_example_runs(name, monkeypatch):
    monkeypatch.setattr("roundwise.formats.NAMED_FORMATS", dict(rw.formats.NAMED_FORMATS))
    doc = inspect.getdoc(SHOWN[name]) or ""
    example = doctest.DocTestParser().get_doctest(doc, {"np": np, "rw": rw}, name, name, lineno=0)
    assert example.examples
    report: list[str] = []
    runner = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE)
    assert runner.run(example, out=report.append).failed == 0, "".join(report)
