"""Checks the built site: every link within it leads to a page and an anchor, and no page loads from other servers."""

from __future__ import annotations

from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

# What a browser loads by itself. A link that a reader clicks may lead to another server.
_LOADED = {"script": "src", "img": "src", "link": "href", "iframe": "src"}


class _Page(HTMLParser):
    """Collects the anchors, the links and the loaded files of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.anchors, self.links, self.loaded = set[str](), set[str](), set[str]()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value for name, value in attrs if value}
        self.anchors |= {values[name] for name in ("id", "name") if name in values}
        if tag == "a" and "href" in values:
            self.links.add(values["href"])
        if values.get(_LOADED.get(tag, "")) and values.get("rel") != "canonical":
            self.loaded.add(values[_LOADED[tag]])


def problems(folder: Path) -> list[str]:
    """Return one line for each broken link and each file that is loaded from another server."""
    pages = {path: _Page(path.read_text(encoding="utf-8")) for path in sorted(folder.rglob("*.html"))}
    found = []
    for path, page in pages.items():
        where = path.relative_to(folder)
        elsewhere = sorted(link for link in page.loaded if urlsplit(link).netloc)
        found += [f"{where}: loads {link} from another server" for link in elsewhere]
        broken = sorted(link for link in page.links | page.loaded if not _leads_somewhere(link, path, pages))
        found += [f"{where}: the link {link} leads nowhere" for link in broken]
    return found


def _leads_somewhere(link: str, path: Path, pages: dict[Path, _Page]) -> bool:
    parts = urlsplit(link)
    if parts.scheme or parts.netloc:
        return True
    target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
    if target in pages and parts.fragment:
        return unquote(parts.fragment) in pages[target].anchors
    return target.exists()
