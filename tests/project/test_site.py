"""The tools of the documentation site: its pages and navigation, the reference, and the check of the links.

`make site` and .ci/run build the site itself, which needs Sphinx.
"""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import staging_tf1
from staging_tf1.cli.main import COMMANDS

ROOT = Path(__file__).parents[2]

Load = Callable[[str], Any]


@pytest.fixture
def tool(monkeypatch: pytest.MonkeyPatch) -> Iterator[Load]:
    """A function that imports a module of tools/docs_site, which is no package."""
    monkeypatch.syspath_prepend(str(ROOT / "tools" / "docs_site"))
    for name in ("COLUMNS", "NO_COLOR"):  # the tools set them
        monkeypatch.setenv(name, "80")
    yield importlib.import_module
    for name in ("files", "links", "navigation", "pages", "reference"):
        sys.modules.pop(name, None)


def test_the_navigation_lists_every_page_once(tool: Load) -> None:
    entries = [entry for found in tool("navigation").sections().values() for entry in found]
    listed = [re.sub(r"^.* <(.*)>$", r"\1", entry) for entry in entries]
    pages = tool("pages")
    docs = [path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").rglob("*.md")]
    expected = {pages.page_of(file) for file in [*docs, *pages.OTHER_PAGES]} - {"index.md"}
    # rules/index.md lists the pages of the rules.
    assert sorted(listed) == sorted(page for page in expected if "/STG" not in page)


@pytest.mark.parametrize(
    ("file", "text", "expected"),
    [
        ("docs/a.md", "[sources.md](sources.md)", "[](sources.md)"),
        ("docs/a.md", "[read](sources.md#shards)", "[read](sources.md#shards)"),
        ("docs/a.md", "[x](../README.md)", "[x](readme.md)"),
        ("docs/a.md", "![plot](images/scaling.png)", "![plot](images/scaling.png)"),
        ("docs/rules/STG101.md", "[x](../sources.md)", "[x](../sources.md)"),
        ("README.md", "[digits](staging_tf1/data)", "digits"),
        ("README.md", "[x](docs/rules/README.md)", "[x](rules/index.md)"),
        ("README.md", "[x](https://pypi.org) and [y](#here)", "[x](https://pypi.org) and [y](#here)"),
        ("examples/README.md", "[x](cluster.py)", "[x](cluster.py.md)"),
        ("docs/a.md", "```py\n[x](../README.md)\n```", "```py\n[x](../README.md)\n```"),
        ("docs/a.md", "```mermaid\nx\n```", "```text\nx\n```"),
        ("docs/a.md", "```console\nls\n```", "```shell\nls\n```"),
        ("docs/a.md", "```console\n$ ls\na\n```", "```console\n$ ls\na\n```"),
    ],
)
def test_links_lead_to_pages(tool: Load, tmp_path: Path, file: str, text: str, expected: str) -> None:
    assert tool("pages")._with_page_links(text, file, tmp_path) == expected


def test_a_program_that_is_linked_becomes_a_page(tool: Load, tmp_path: Path) -> None:
    tool("pages")._with_page_links("[x](cluster.py)", "examples/README.md", tmp_path)
    assert '# cluster.py\n\n```python\n"""' in (tmp_path / "examples" / "cluster.py.md").read_text(encoding="utf-8")


def test_the_design_lists_every_file_with_what_it_is(tool: Load, tmp_path: Path) -> None:
    tool("pages").write_pages(tmp_path)
    listed = (tmp_path / "design.md").read_text(encoding="utf-8").partition("## 7. The files")[2]
    rows = re.findall(r"^(?:### (\S+)|\| `(\S+\.py)` \| (.*) \|)$", listed, re.MULTILINE)
    folder, files = "", {}
    for heading, name, text in rows:
        folder = heading or folder
        if name:
            files[f"{folder}{name}"] = text
    assert set(files) == {path.relative_to(ROOT).as_posix() for path in (ROOT / "staging_tf1").rglob("*.py")}
    assert [file for file, text in files.items() if not re.fullmatch(r"[^|]{10,140}[.:]", text)] == []


def test_the_reference_has_a_page_for_each_name_and_command(tool: Load, tmp_path: Path) -> None:
    listed = tool("reference").write_reference(tmp_path)
    written = {path.stem for path in (tmp_path / "reference").iterdir()}
    modules = ("", ".sources", ".testing", ".errors")
    names = {
        f"staging_tf1{module}.{name}"
        for module in modules
        for name in importlib.import_module(f"staging_tf1{module}").__all__
        # Errors have their pages among the errors.
        if not (module == ".sources" and name in staging_tf1.errors.__all__)
    }
    assert written >= {f"staging-tf1-{command}" for command in COMMANDS}
    page = (tmp_path / "reference" / "staging_tf1.staged.rst").read_text(encoding="utf-8")
    assert 0 < page.index("return prefetched tensors of the same structure.\n\n") < page.index(".. autofunction::")
    # Modules have a page with their names.
    assert names <= written
    assert {f"reference/staging_tf1{module}" for module in modules} < set(listed)


def test_the_help_fits_the_page(tool: Load, tmp_path: Path) -> None:
    reference = tool("reference")
    reference.write_reference(tmp_path)
    pages = sorted((tmp_path / "reference").glob("staging-tf1-*.rst"))
    assert [page.name for page in pages if max(map(len, page.read_text().splitlines())) > 95] == []


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        ('<a href="b.html">', None),
        ('<a href="b.html#there">', None),
        ('<a href="#here"><p id="here">', None),
        ('<a href="https://pypi.org">', None),
        ('<a href="c.html">', "a.html: the link c.html leads nowhere"),
        ('<a href="b.html#gone">', "a.html: the link b.html#gone leads nowhere"),
        ('<a href="#gone">', "a.html: the link #gone leads nowhere"),
        ('<img src="gone.png">', "a.html: the link gone.png leads nowhere"),
        ('<script src="https://cdn.example/x.js">', "a.html: loads https://cdn.example/x.js from another server"),
        ('<link href="//fonts.example/x.css">', "a.html: loads //fonts.example/x.css from another server"),
    ],
)
def test_broken_links_are_found(tool: Load, tmp_path: Path, body: str, problem: str | None) -> None:
    (tmp_path / "a.html").write_text(body, encoding="utf-8")
    (tmp_path / "b.html").write_text('<h1 id="there">', encoding="utf-8")
    assert tool("links").problems(tmp_path) == ([] if problem is None else [problem])
