"""Settings of Sphinx for the site; ``make site`` builds it (see assemble.py)."""

import re
import sys
from pathlib import Path

SITE = Path(__file__).parent
ROOT = SITE.parents[1]
sys.path[:0] = [str(SITE)]

import reference  # noqa: E402
from latex2mathml.converter import convert  # noqa: E402

import roundwise  # noqa: E402

project = "Roundwise"
author = "The Roundwise developers"
project_copyright = author
release = version = roundwise.__version__

extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "numpydoc",
    "myst_parser",
    "sphinx_design",
    "sphinx_copybutton",
    "sphinx_gallery.gen_gallery",
]
source_suffix = {".md": "markdown", ".rst": "restructuredtext"}
exclude_patterns = ["gallery/*.py", "gallery/*.ipynb", "sg_execution_times.rst"]

# Single backticks in docstrings name things; what has no page of its own is shown as code.
default_role = "py:obj"
nitpick_ignore_regex = [("py:.*", ".*")]  # types in signatures: NumPy's, SciPy's, and our private
autosummary_generate = False
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
autodoc_member_order = "bysource"
autodoc_preserve_defaults = True
autodoc_type_aliases = {name: name for name in ("ArrayLike", "ActionLike", "Vector", "Array")}
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 88
numpydoc_show_class_members = False

myst_enable_extensions = ["colon_fence", "dollarmath"]
myst_heading_anchors = 4
html_math_renderer = "mathml"  # browsers know it: no script, nothing fetched

sphinx_gallery_conf = {
    "examples_dirs": str(ROOT / "examples"),
    "gallery_dirs": "gallery",
    "filename_pattern": r"\.py",
    "ignore_pattern": r"demo\.py",  # `make demo` runs it
    "download_all_examples": False,
    "remove_config_comments": True,
    "show_memory": False,
    "show_signature": False,
    "abort_on_example_error": True,
    "within_subsection_order": "gallery_order.EasyFirst",
    "write_computation_times": False,
    "min_reported_time": 1e9,
    "plot_gallery": "True",
    "default_thumb_file": str(ROOT / "docs" / "images" / "solve.png"),
    "notebook_images": False,
}

html_theme = "pydata_sphinx_theme"
html_title = "Roundwise"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_show_sourcelink = False
html_theme_options = {
    "show_prev_next": True,
    "navigation_with_keys": True,
    "show_toc_level": 2,
    "header_links_before_dropdown": 7,
    "footer_start": ["copyright"],
    "footer_end": [],
    "secondary_sidebar_items": ["page-toc"],
    "pygments_light_style": "a11y-high-contrast-light",
    "pygments_dark_style": "a11y-high-contrast-dark",
}
html_sidebars = {page: [] for page in ("index", "theory", "benchmarks", "search")}
html_context = {"default_mode": "auto"}  # light or dark, as the reader's system is


def _inline(translator, node):
    translator.body.append(convert(node.astext()))
    raise _skip()


def _block(translator, node):
    translator.body.append(f'<div class="math">{convert(node.astext(), display="block")}</div>')
    raise _skip()


def _skip():
    from docutils.nodes import SkipNode

    return SkipNode()


def _rubrics(app, what, name, obj, options, lines):
    """Gymnasium's headings, ``## Reward``, as Sphinx has them within a docstring."""
    lines[:] = [f".. rubric:: {line[3:]}\n" if line.startswith("## ") else line for line in lines]


def _defaults(app, what, name, obj, options, signature, returns):
    """Defaults that are no expressions, as ``<factory>``, keep Sphinx from reading a signature."""
    return re.sub(r"<[^<>]*>", "...", signature or "") or None, returns


def setup(app):
    app.connect("autodoc-process-signature", _defaults)
    app.connect("autodoc-process-docstring", _rubrics, priority=400)
    app.add_html_math_renderer("mathml", (_inline, None), (_block, None))
    reference.write_pages(Path(app.srcdir) / "api")
