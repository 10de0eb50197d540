"""Where every experiment departs from the paper, and the paper's numbers from its text.

The reproduction follows the *text*. The paper's numbers come from its released code, which differs
from it. What is said about that code comes from reading it (https://github.com/inEXASCALE/rlops);
it was not run. `roundwise reproduce departures` measures what each departure does to the numbers.
The texts are in ``departures.toml``.
"""

import tomllib
from pathlib import Path

_TEXTS = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
_SECTIONS = {
    name: tuple((title, " ".join(text.split())) for title, text in section.items())
    for name, section in _TEXTS.items()
}

EVERYWHERE, NATIVE, NATIVE_PAPER, NATIVE_GPU, RELEASED = (
    _SECTIONS[name] for name in ("everywhere", "native", "native_paper", "native_gpu", "released")
)
"""(title, explanation) of what concerns all simulated experiments, our harder variant of the native
study, the native study as published, the former on a GPU, and the released code, with a short name
for a title."""

OF_DATA = {data: _SECTIONS[data] for data in ("dense", "sparse", "pde")}
"""Those of one data set of the simulated experiments."""
