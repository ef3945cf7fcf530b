"""The files of the package, room by room, each with the first line of its docstring: `python tools/docs_site/files.py`.

The site shows the list on the page of the design, so that a reader who has no checkout finds the file for a line.
"""

from __future__ import annotations

import ast
from itertools import groupby
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "staging_tf1"


def lines() -> list[tuple[str, str, str]]:
    """Return the folder, the name and the first line of the docstring of every file, folder by folder."""
    files = sorted((path.parent.relative_to(ROOT).as_posix(), path.name) for path in PACKAGE.rglob("*.py"))
    return [(folder, name, _first_line(ROOT / folder / name)) for folder, name in files]


def as_markdown() -> str:
    """Return the list in Markdown: a table for each folder."""
    tables = []
    for folder, rows in groupby(lines(), key=lambda line: line[0]):
        table = "\n".join(f"| `{name}` | {text} |" for _, name, text in rows)
        tables.append(f"### {folder}/\n\n| file | what it is |\n|---|---|\n{table}\n")
    return "\n".join(tables)


def _first_line(path: Path) -> str:
    docstring = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    return docstring.partition("\n\n")[0].replace("\n", " ").replace("``", "`")


if __name__ == "__main__":
    print(as_markdown())
