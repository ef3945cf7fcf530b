"""The navigation of the site, taken from docs/index.md: each heading is a section, and its links are the pages.

A link whose words are not the name of the file gives the page another title in the navigation.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path

from pages import ROOT, links, page_of

# The section that also lists the pages that `reference.py` writes.
_REFERENCE = "Reference"
_HEADING = re.compile(r"^## (.+)$", re.MULTILINE)


def sections() -> dict[str, list[str]]:
    """Return the entries of each section, as a toctree takes them: paths on the site, or titles and paths."""
    parts = _HEADING.split((ROOT / "docs" / "index.md").read_text(encoding="utf-8"))
    return {heading: _entries("docs/index.md", text) for heading, text in zip(parts[1::2], parts[2::2])}


def add_navigation(target: Path, reference: list[str]) -> None:
    """Add the sections to the start page, and the pages of the rules to the page that lists them."""
    found = sections()
    found[_REFERENCE] += reference
    _append(target / "index.md", "".join(map(_toctree, found, found.values())))
    rules = target / "rules" / "index.md"
    names = dict.fromkeys(link for _, link in links(rules.read_text(encoding="utf-8")))
    _append(rules, _toctree("", [name for name in names if "/" not in name]))


def _append(page: Path, text: str) -> None:
    page.write_text(page.read_text(encoding="utf-8") + text, encoding="utf-8")


def _entries(file: str, text: str) -> list[str]:
    found = []
    for words, link in links(text):
        page = page_of(posixpath.normpath(posixpath.join(posixpath.dirname(file), link)))
        found.append(page if words.endswith(".md") else f"{words} <{page}>")
    return found


def _toctree(caption: str, entries: list[str]) -> str:
    shown = f":caption: {caption}\n" if caption else ""
    return f"\n```{{toctree}}\n:hidden:\n{shown}\n" + "\n".join(entries) + "\n```\n"
