"""The pages of the site: which files of the repository become which page, and how links between them change.

docs/ becomes the root of the site. Its files stay as they are: this module writes copies whose links lead to the pages.
"""

from __future__ import annotations

import posixpath
import re
import shutil
from pathlib import Path

from files import ROOT, as_markdown

# Pages outside docs/: the file in the repository, and its name on the site.
OTHER_PAGES = {
    "README.md": "readme.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
    "examples/README.md": "examples/index.md",
    "benchmarks/README.md": "benchmarks/index.md",
}
_LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)\s]+)\)")
_FENCE = re.compile(r"^(```.*?^```)$", re.MULTILINE | re.DOTALL)
_ORPHAN = "---\norphan: true\n---\n\n"
# Where docs/design.md wants the list of all files.
_FILES = "<!-- files -->"


def page_of(file: str) -> str:
    """Return where a file of the repository stands on the site. Both are relative paths.

    >>> page_of("docs/rules/README.md"), page_of("README.md"), page_of("examples/cluster.py")
    ('rules/index.md', 'readme.md', 'examples/cluster.py.md')
    """
    if file in OTHER_PAGES:
        return OTHER_PAGES[file]
    page = file.removeprefix("docs/")
    if posixpath.basename(page) == "README.md":
        return posixpath.join(posixpath.dirname(page), "index.md")
    return f"{page}.md" if page.endswith(".py") else page


def links(text: str) -> list[tuple[str, str]]:
    """Return the links of a Markdown text, outside code blocks and without other servers: the words and the target."""
    found = (link for part in _FENCE.split(text)[::2] for link in _LINK.findall(part))
    return [(words, target) for _, words, target in found if ":" not in target]


def write_pages(target: Path) -> None:
    """Write all pages, and the files that they link to, into the folder `target`."""
    docs = (path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").rglob("*.md"))
    for file in sorted([*docs, *OTHER_PAGES]):
        text = _with_page_links((ROOT / file).read_text(encoding="utf-8"), file, target)
        if _FILES in text:
            text = text.replace(_FILES, as_markdown())
        _write(target / page_of(file), text)


def _with_page_links(text: str, file: str, target: Path) -> str:
    def linked(match: re.Match[str]) -> str:
        bang, words, link = match.groups()
        if ":" in link or link.startswith("#"):
            return match[0]
        path, hash_sign, anchor = link.partition("#")
        found = posixpath.normpath(posixpath.join(posixpath.dirname(file), path))
        if (ROOT / found).is_dir():
            return words  # code hosts list a folder; the site has no page for it
        _add_linked(found, target)
        relative = posixpath.relpath(page_of(found), posixpath.dirname(page_of(file)) or ".")
        if words == posixpath.basename(path) and path.endswith(".md"):
            words = ""  # MyST shows the title of the page
        return f"{bang}[{words}]({relative}{hash_sign}{anchor})"

    parts = _FENCE.split(text)
    # Lines without a prompt count as output in a block of `console`, and are gray.
    parts[1::2] = (part if "\n$ " in part else part.replace("```console", "```shell", 1) for part in parts[1::2])
    # Code hosts draw diagrams of Mermaid. Here they are shown as text: its script takes 3 MB. Pictures serve both.
    parts[1::2] = (part.replace("```mermaid", "```text", 1) for part in parts[1::2])
    return "".join(part if index % 2 else _LINK.sub(linked, part) for index, part in enumerate(parts))


def _add_linked(file: str, target: Path) -> None:
    """Add a file that a page links to, unless it is a page: programs as pages of their own, others as they are."""
    is_page = file in OTHER_PAGES or (file.startswith("docs/") and file.endswith(".md"))
    if is_page or not (ROOT / file).exists():
        return  # Sphinx reports a link to a page that does not exist
    page = target / page_of(file)
    if file.endswith((".py", ".md")):
        text = (ROOT / file).read_text(encoding="utf-8")
        program = f"# {posixpath.basename(file)}\n\n```python\n{text}```\n"
        _write(page, _ORPHAN + (program if file.endswith(".py") else text))
        return
    page.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(ROOT / file, page)


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
