"""The site: its sources fit together, and what `make site` has built works in a browser.

The second half looks at ``build/site/html`` and is skipped where nothing was built.
"""

import contextlib
import functools
import http.server
import importlib.util
import re
import sys
import threading
from pathlib import Path

import pytest
from browser import chromium

ROOT = Path(__file__).parents[1]
SITE = ROOT / "docs" / "site"
HTML = ROOT / "build" / "site" / "html"
BUILT = ROOT / "build" / "site" / "built"
PAGES = [
    *("index", "theory", "guide", "guide/start", "benchmarks", "switching", "gallery/index"),
    *("gallery/refinement", "api/roundwise", "api/roundwise/solve"),
]
SCREENS = {"laptop": (1440, 900), "phone": (390, 844)}
MOST_SCREENS = 10


def load(name):
    if str(SITE) not in sys.path:
        sys.path.append(str(SITE))  # where its modules find each other
    spec = importlib.util.spec_from_file_location(name, SITE / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


assemble, folding = load("assemble"), load("folding")


def test_every_page_has_its_place():
    pages = {page.stem for page in (ROOT / "docs").glob("*.md")}
    assert pages <= assemble.listed_pages() | set(assemble.other_pages())
    assert {"switching", "accuracy", "architecture", "departures"} <= assemble.listed_pages()
    guide = {f"guide/{page.stem}" for page in (ROOT / "docs" / "guide").glob("*.md")}
    assert guide <= assemble.listed_pages()


def test_long_tables_and_sections_are_folded():
    rows = [f"| {i} | {i * i} |" for i in range(30)]
    table = ["| n | n^2 |", "|--:|--:|", *rows]
    short = "\n".join(["# A page", "", "Text.", "", *table[:10], ""])
    assert folding.folded(short) == short
    page = folding.folded("\n".join(["# A page", "", *table, "", "After."]))
    assert ":::{dropdown} Table of 30 rows: n, n^2" in page
    assert all(row in page for row in rows)
    paragraphs = "\n\n".join(["A paragraph of some words, and of some more. " * 8] * 60)
    page = folding.folded(f"# A page\n\nShort.\n\n## Long\n\nIts head.\n\n{paragraphs}\n")
    head, _, rest = page.partition(":::::{dropdown} Long: the details")
    assert "Its head." in head
    assert rest.count("A paragraph") == 480


def test_a_new_page_comes_into_the_reference(tmp_path, monkeypatch):
    (tmp_path / "images").mkdir()
    (tmp_path / "brand-new.md").write_text(
        "# Brand new\n\n[an example](../examples/solve_dense.py)"
    )
    monkeypatch.setattr(assemble, "DOCS", tmp_path)
    assemble.gather(tmp_path / "source")
    guide = (tmp_path / "source" / "reference.md").read_text(encoding="utf-8")
    assert "brand-new" in guide.partition("API reference")[2]
    page = (tmp_path / "source" / "brand-new.md").read_text(encoding="utf-8")
    assert "[an example](gallery/solve_dense.rst)" in page


def test_a_section_that_readme_has_not_is_an_error():
    assert "backward" in assemble.readme_section("What is guaranteed")
    with pytest.raises(SystemExit, match="no section 'Nothing'"):
        assemble.adapted("<!-- README: Nothing -->")


def test_links_lead_to_files():
    """Those of all pages, as they stand in the repository."""
    pages = [*(ROOT / "docs").glob("*.md"), *(ROOT / "docs").glob("guide/*.md"), *ROOT.glob("*.md")]
    for page in pages:
        for target in re.findall(r"\]\(([^)#\s]+)", page.read_text(encoding="utf-8")):
            if not target.startswith(("http:", "https:", "mailto:")):
                assert (page.parent / target).exists(), f"{page.name} links to {target}"


@pytest.fixture(scope="module")
def address():
    """The built site, served on this machine."""
    if not BUILT.exists():
        pytest.skip("the site is not built; make site builds it (pip install '.[site]')")
    sources = [
        *(ROOT / "docs").rglob("*.md"),
        *SITE.rglob("*.*"),
        *(ROOT / "examples").glob("*.py"),
    ]
    if max(path.stat().st_mtime for path in sources) > BUILT.stat().st_mtime:
        pytest.skip("the built site is older than its sources; make site builds it anew")
    handler = functools.partial(QuietHandler, directory=str(HTML))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()
    thread.join()


class QuietHandler(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *args):
        pass


@pytest.fixture(scope="module")
def window(address):
    with contextlib.ExitStack() as stack:
        yield stack.enter_context(chromium())


def visit(window, url, screen="laptop", scheme="light"):
    width, height = SCREENS[screen]
    size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": screen == "phone"}
    window.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    features = [{"name": "prefers-color-scheme", "value": scheme}]
    window.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
    window.get(url)


def test_search_finds_pages_and_functions(address, window):
    from selenium.webdriver.common.by import By
    from selenium.webdriver.support.ui import WebDriverWait

    for words, page in {"backward error": "accuracy.html", "randsvd": "roundwise.problems"}.items():
        visit(window, f"{address}/search.html?q={words.replace(' ', '+')}")
        found = WebDriverWait(window, 20).until(
            lambda w: w.find_elements(By.CSS_SELECTOR, "#search-results li a") or None
        )
        WebDriverWait(window, 20).until(
            lambda w: "found" in w.find_element(By.ID, "search-results").text.lower()
        )
        found = window.find_elements(By.CSS_SELECTOR, "#search-results li a")
        assert any(page in (link.get_attribute("href") or "") for link in found)


# Text that ends beyond the screen, apart from what scrolls in a box of its own.
CUT_OFF = """
const width = document.documentElement.clientWidth;
const scrolls = e => e && (['auto', 'scroll'].includes(getComputedStyle(e).overflowX)
  && e.scrollWidth > e.clientWidth && e.clientWidth < width || scrolls(e.parentElement));
const texts = document.querySelectorAll('main article :is(h1, h2, h3, p, li, dt, td, th)');
return [...texts].filter(e => {
  const range = document.createRange(); range.selectNodeContents(e);
  const cut = range.getBoundingClientRect().right > width + 1;
  return cut && !e.querySelector('table') && !scrolls(e);
}).map(e => e.tagName + ': ' + e.textContent.slice(0, 40));
"""


@pytest.mark.parametrize("screen", SCREENS)
@pytest.mark.parametrize("page", PAGES)
def test_no_page_is_wider_than_the_screen(address, window, page, screen):
    visit(window, f"{address}/{page}.html", screen)
    excess = "return document.documentElement.scrollWidth - document.documentElement.clientWidth"
    assert window.execute_script(excess) <= 0
    assert window.execute_script(CUT_OFF) == []


# Words of a table's cell that stand on more than one line.
BROKEN = """
const broken = [];
for (const cell of document.querySelectorAll('main article :is(td, th)')) {
  const walker = document.createTreeWalker(cell, NodeFilter.SHOW_TEXT);
  for (let node; node = walker.nextNode();)
    for (const word of node.data.matchAll(/[\\w.+-]+/g)) {
      const range = document.createRange();
      range.setStart(node, word.index); range.setEnd(node, word.index + word[0].length);
      const tops = [...range.getClientRects()].map(r => Math.round(r.top));
      // A hyphen may end a line: only what stands between two of them must not be cut.
      const parts = word[0].split('-').length;
      if (new Set(tops).size > parts) broken.push(word[0]);
    }
}
return broken.slice(0, 10);
"""


def documentation():
    """All pages but those of the API reference, as the built site has them."""
    pages = (page.relative_to(HTML).with_suffix("").as_posix() for page in HTML.rglob("*.html"))
    return sorted(p for p in pages if not p.startswith(("api/", "_", "genindex", "py-modindex")))


@pytest.mark.parametrize("screen", SCREENS)
def test_tables_scroll_and_break_no_word(address, window, screen):
    excess = "return document.documentElement.scrollWidth - document.documentElement.clientWidth"
    for page in documentation():
        visit(window, f"{address}/{page}.html", screen)
        window.execute_script("document.querySelectorAll('details').forEach(d => d.open = true)")
        assert window.execute_script(BROKEN) == [], page
        assert window.execute_script(excess) <= 0, page


def test_no_page_is_longer_than_ten_screens(address, window):
    height = SCREENS["laptop"][1]
    article, long = "return document.querySelector('main article')?.scrollHeight ?? 0", {}
    for page in documentation():
        visit(window, f"{address}/{page}.html")
        screens = window.execute_script(article) / height
        if screens > MOST_SCREENS:
            long[page] = round(screens, 1)
    assert long == {}


# The contrast of every visible piece of text with what is behind it, by WCAG's formula; large text
# may have less.
CONTRAST = """
const lum = ([r, g, b]) => { const f = c => { c /= 255;
  return c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4; };
  return 0.2126 * f(r) + 0.7152 * f(g) + 0.0722 * f(b); };
const parse = s => { const m = s.match(/[0-9.]+/g).map(Number);
  return s.startsWith('color(srgb') ? [...m.slice(0, 3).map(c => 255 * c), m[3] ?? 1]
                                    : [...m.slice(0, 3), m[3] ?? 1]; };
const behind = e => { for (; e; e = e.parentElement) {
  const c = parse(getComputedStyle(e).backgroundColor); if (c[3] > 0.99) return c; }
  return [255, 255, 255, 1]; };
const poor = new Set();
for (const e of document.querySelectorAll('main *, header *')) {
  const own = [...e.childNodes].some(n => n.nodeType === 3 && n.textContent.trim().length > 1);
  if (!own || !e.checkVisibility({visibilityProperty: true, opacityProperty: true})) continue;
  const style = getComputedStyle(e), size = parseFloat(style.fontSize);
  const large = size >= 24 || (size >= 18.6 && parseInt(style.fontWeight) >= 700);
  const [a, b] = [lum(parse(style.color)), lum(behind(e))];
  const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
  if (ratio < (large ? 3 : 4.5))
    poor.add(`${e.tagName} ${e.className}: ${e.textContent.slice(0, 30)} ${ratio.toFixed(2)}`);
}
return [...poor];
"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("page", PAGES)
def test_text_stands_out_from_its_background(address, window, page, scheme):
    visit(window, f"{address}/{page}.html", scheme=scheme)
    # A colour on its way from one to another is neither.
    window.execute_script("document.getAnimations().forEach(animation => animation.finish())")
    assert window.execute_script("return document.documentElement.dataset.theme") == scheme
    assert window.execute_script(CONTRAST) == []


def test_pages_load_without_errors_and_fetch_nothing_from_elsewhere(address, window):
    window.get_log("browser")
    for page in PAGES:
        visit(window, f"{address}/{page}.html")
        fetched = "return performance.getEntriesByType('resource').map(entry => entry.name)"
        assert all(name.startswith((address, "data:")) for name in window.execute_script(fetched))
    assert [e["message"] for e in window.get_log("browser") if e["level"] == "SEVERE"] == []


def test_the_theory_has_its_figure_and_formulas(address, window):
    visit(window, f"{address}/theory.html")
    assert window.execute_script("return document.querySelectorAll('main math').length") > 10
    drawn = "return document.querySelector('main img[src*=sphx_glr_refinement]').naturalWidth"
    assert window.execute_script(drawn) > 500


def test_every_example_comes_as_a_notebook(address):
    examples = {path.stem for path in (ROOT / "examples").glob("*.py")} - {"demo"}
    notebooks = {path.stem for path in (HTML / "_downloads").rglob("*.ipynb")}
    assert examples <= notebooks
