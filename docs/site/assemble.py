"""Gather the sources of the site in one folder, and let Sphinx build it.

    python docs/site/assemble.py              # build/site/html/index.html

Pages of docs/ and docs/guide/ are taken as they are, but what is long is folded (`folding`). A new
page of docs/ needs no entry anywhere: one that no page of docs/site/ lists comes at the end of the
reference, where reference.md says ``other pages``. A page of docs/site/ says ``<!-- README: A
section -->`` where that section of README.md shall stand.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
from pathlib import Path

import thumbnails
from folding import folded

SITE = Path(__file__).parent
DOCS = SITE.parent
ROOT = DOCS.parent
BUILD = ROOT / "build" / "site"
OTHER_PAGES = "<!-- other pages -->"
FINDINGS = "<!-- findings -->"
ELSEWHERE = {"CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changelog.md"}


def listed_pages() -> set[str]:
    """The pages that a page of docs/site/ lists in its table of contents."""
    found: set[str] = set()
    for page in SITE.glob("*.md"):
        for block in re.findall(r"```\{toctree\}(.*?)```", page.read_text("utf-8"), re.DOTALL):
            found |= set(re.findall(r"^(?:.* <)?(\w[\w/-]*)>?$", block, re.M))
    return found


def other_pages() -> list[str]:
    """Pages of docs/ that are listed nowhere."""
    return sorted({page.stem for page in DOCS.glob("*.md")} - listed_pages())


def readme_section(title: str) -> str:
    """What README.md has under a heading of the second level."""
    parts = re.split(r"^## (.*)\n", (ROOT / "README.md").read_text(encoding="utf-8"), flags=re.M)
    sections = dict(zip(parts[1::2], parts[2::2], strict=True))
    if title not in sections:
        raise SystemExit(f"README.md has no section {title!r}; it has {', '.join(sections)}")
    return sections[title].strip()


def findings() -> str:
    """The claims of the paper under their verdicts, from what ``make paper-docs`` has stored."""
    rows = re.findall(
        r"^\| ([^|]*) \| (confirmed|partly|not reproduced) \| [^|]* \| ([^|]*) \|",
        (SITE.parent / "paper-claims.md").read_text(encoding="utf-8"),
        flags=re.M,
    )
    parts = []
    for verdict in ("confirmed", "partly", "not reproduced"):
        claims = [f"- {claim} ({held})" for claim, found, held in rows if found == verdict]
        parts.append(
            f"**{verdict.capitalize()}** ({len(claims)} of {len(rows)}):\n\n" + "\n".join(claims)
        )
    return "\n\n".join(parts)


def adapted(text: str) -> str:
    """A page whose links work on the site: examples are pages of the gallery there."""
    text = re.sub(r"<!-- README: (.*?) -->", lambda found: readme_section(found[1]), text)
    if FINDINGS in text:
        text = text.replace(FINDINGS, findings())
    text = re.sub(r"\[([^]]*)\]\((?:\.\./)?((?:src|cpp)/[^)]*)\)", r"\1 (`\2`)", text)
    text = re.sub(r"\]\(\.\./\.\./examples/(\w+)\.py\)", r"](../gallery/\1.rst)", text)
    text = re.sub(r"\]\((?:\.\./)?examples/(\w+)\.py\)", r"](gallery/\1.rst)", text)
    text = re.sub(r"\]\(\.\./\.\./README\.md#install\)", "](../guide.md#install)", text)
    text = re.sub(r"\]\(docs/", "](", text)
    for name, page in ELSEWHERE.items():
        text = re.sub(rf"\]\((?:\.\./)?{re.escape(name)}", f"]({page}", text)
    return text.replace(OTHER_PAGES, "\n".join(other_pages()))


def write(path: Path, text: str) -> None:
    """Only if it is new, so that Sphinx reads nothing again without need."""
    if not path.exists() or path.read_text(encoding="utf-8") != text:
        path.write_text(text, encoding="utf-8")


def gather(source: Path) -> None:
    """Write the sources to a folder; what is generated there stays."""
    source.mkdir(parents=True, exist_ok=True)
    (source / "guide").mkdir(exist_ok=True)
    pages = {page.name: page for folder in (DOCS, SITE) for page in folder.glob("*.md")}
    pages |= {f"guide/{page.name}": page for page in (DOCS / "guide").glob("*.md")}
    pages |= {page: ROOT / name for name, page in ELSEWHERE.items()}
    for old in [*source.glob("*.md"), *source.glob("guide/*.md")]:
        if old.relative_to(source).as_posix() not in pages:
            old.unlink()
    for name, page in pages.items():
        text = adapted(page.read_text(encoding="utf-8"))
        write(source / name, text if page.parent == SITE else folded(text))
    shutil.copytree(DOCS / "images", source / "images", dirs_exist_ok=True)
    shutil.copytree(SITE / "static", source / "static", dirs_exist_ok=True)
    thumbnails.draw(source / "images")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=BUILD, help="default: build/site")
    out = parser.parse_args().out.resolve()
    gather(out / "source")
    command = [sys.executable, "-m", "sphinx", "-b", "html", "-W", "--keep-going", "-n", "-q"]
    command += ["-j", "auto", "-c", str(SITE), "-d", str(out / "doctrees")]
    built = out / "built"
    code = [*SITE.glob("*.py")]
    if built.exists() and max(path.stat().st_mtime for path in code) > built.stat().st_mtime:
        command.append("-E")  # Sphinx sees changed pages and docstrings, but not changed code here
    status = subprocess.run([*command, str(out / "source"), str(out / "html")]).returncode
    if status == 0:
        built.touch()  # tests compare its age with that of the sources
        print(f"{out / 'html' / 'index.html'}")
    raise SystemExit(status)


if __name__ == "__main__":
    main()
