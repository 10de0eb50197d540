"""What a release says of itself agrees with itself."""

import re
import tomllib
from pathlib import Path

import roundwise

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def test_types_are_shipped():
    assert (Path(roundwise.__file__).parent / "py.typed").is_file()
    assert "Typing :: Typed" in PROJECT["classifiers"]


def test_the_oldest_versions_that_are_tested_are_those_declared():
    pinned = re.findall(r"^(\w+)==([\d.]+)$", (ROOT / "packaging/oldest.txt").read_text(), re.M)
    declared = [re.fullmatch(r"(\w+)>=([\d.]+)", text).groups() for text in PROJECT["dependencies"]]
    assert pinned == [(name, f"{version}.0") for name, version in declared]
    recipe = (ROOT / "packaging/conda-forge/recipe.yaml").read_text(encoding="utf-8")
    for name, version in declared:
        assert f"- {name} >={version}\n" in recipe


def test_versions_agree():
    version = PROJECT["version"]
    studies = tomllib.loads((ROOT / "studies/pyproject.toml").read_text(encoding="utf-8"))[
        "project"
    ]
    assert studies["version"] == version
    assert studies["dependencies"] == [f"roundwise[cli,plot]=={version}"]
    assert f"\nversion: {version}\n" in (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    recipe = (ROOT / "packaging/conda-forge/recipe.yaml").read_text(encoding="utf-8")
    assert f'version: "{version}"' in recipe
    assert f"\n## {version}" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


def test_tests_are_in_the_folders_of_what_they_test():
    tests = ROOT / "tests"
    folders = {file.parent.relative_to(tests) for file in tests.rglob("test_*.py")}
    rooms = {folder for folder in folders if (ROOT / "src" / "roundwise" / folder).is_dir()}
    assert folders - rooms == {Path("gpu"), Path("studies")}
