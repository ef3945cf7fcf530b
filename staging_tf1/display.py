"""HTML for notebooks: tables and pictures. All text of the program is escaped."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Sequence
from html import escape

__all__ = ["picture", "table"]


def table(title: str, heads: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return a table with a caption.

    >>> table("sizes", ["name", "bytes"], [["a<b", 1]])
    '<table><caption>sizes</caption><tr><th>name</th><th>bytes</th></tr><tr><td>a&lt;b</td><td>1</td></tr></table>'
    """
    lines = [_row("th", heads)] if heads else []
    lines += [_row("td", row) for row in rows]
    return f"<table><caption>{escape(title)}</caption>{''.join(lines)}</table>"


def picture(svg: str, title: str) -> str:
    """Return an image of an SVG file. Inline, its style would apply to the whole notebook.

    >>> picture("<svg/>", "an area")
    '<img alt="an area" src="data:image/svg+xml;base64,PHN2Zy8+">'
    """
    content = base64.b64encode(svg.encode()).decode()
    return f'<img alt="{escape(title)}" src="data:image/svg+xml;base64,{content}">'


def _row(kind: str, cells: Sequence[object]) -> str:
    return f"<tr>{''.join(f'<{kind}>{escape(str(cell))}</{kind}>' for cell in cells)}</tr>"
