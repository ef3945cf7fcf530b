"""The changes made to one file, and the ones left to its owner."""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

# As in Python's parser: the lines of a syntax tree end only here.
_LINE_END = re.compile(r"\r\n|\r|\n")
_COMMENT = re.compile(r"#[^\r\n]*")
# What may stand between an element of a list and its comma, and behind that.
_COMMA = re.compile(r"((?:[\s)\\]|#.*)*),(?:[\s\\]|#.*)*")


@dataclass(frozen=True, order=True)
class Note:
    """A line, with the change made there or the one to make by hand."""

    line: int
    text: str
    advice: str = ""


@dataclass
class Changes:
    """The result for one file."""

    path: str
    before: str
    after: str
    done: list[Note] = field(default_factory=list)
    left: list[Note] = field(default_factory=list)

    @property
    def changed(self) -> bool:
        """Whether the text changed."""
        return self.after != self.before


class Edits:
    """A text, its syntax tree, and replacements of parts of it that do not overlap."""

    def __init__(self, text: str, tree: ast.Module | None = None) -> None:
        self.tree = tree or ast.parse(text)
        self._text = text
        self._starts = [0, *(end.end() for end in _LINE_END.finditer(text))]
        first = _LINE_END.search(text)
        self._newline = first.group() if first is not None else "\n"
        self._edits: list[tuple[int, int, str]] = []

    def span(self, node: Any) -> tuple[int, int]:
        """Return where the text of a node begins and ends."""
        return self._place(node.lineno, node.col_offset), self._place(node.end_lineno, node.end_col_offset)

    def before(self, node: Any) -> str:
        """Return the text of a node."""
        start, end = self.span(node)
        return self._text[start:end]

    def after(self, node: Any = None) -> str:
        """Return the text of a node, by default of the whole file, with all replacements in it."""
        start, end = (0, len(self._text)) if node is None else self.span(node)
        parts = []
        for first, last, new in sorted(self._edits):
            if start <= first and last <= end:
                parts += [self._text[start:first], new]
                start = last
        return "".join([*parts, self._text[start:end]])

    def replace(self, node: Any, new: str) -> None:
        """Replace a dotted name. Its comments go behind it."""
        start, end = self.span(node)
        comments = self._comments(node)
        needs_end = comments and _LINE_END.match(self._text, end) is None
        self._edits.append((start, end, new + comments + (self._newline if needs_end else "")))

    def rename(self, node: ast.expr | ast.keyword, old: str, new: str) -> None:
        """Replace the name at the end of an attribute, or that of a keyword argument."""
        start, end = self.span(node)
        place = start if isinstance(node, ast.keyword) else end - len(old)
        self._edits.append((place, place + len(old), new))

    def append(self, node: ast.expr, new: str) -> None:
        """Put a text behind a node."""
        _, end = self.span(node)
        self._edits.append((end, end, new))

    def remove_keyword(self, call: ast.Call, name: str) -> None:
        """Remove a keyword argument of a call that has others."""
        items = [*call.args, *call.keywords]
        self.keep(items, [item for item in items if not isinstance(item, ast.keyword) or item.arg != name])

    def keep(self, items: Sequence[Any], kept: Sequence[Any]) -> None:
        """Remove all other elements of a list with their commas. At least one stays."""
        last = items.index(kept[-1])
        for item in items[:last]:
            if item not in kept:
                start, end = self.span(item)
                self._edits.append((start, self._comma(end).end(), ""))
        if last + 1 < len(items):
            _, end = self.span(items[last])
            self._edits.append((self._comma(end).end(1), self.span(items[-1])[1], ""))

    def stands_alone(self, node: Any) -> bool:
        """Whether a statement has its lines to itself, apart from a comment."""
        start, end = self.span(node)
        return not self._text[self._starts[node.lineno - 1] : start].strip() and not re.match(
            r"[^\S\r\n]*[^\s#]", self._text[end:]
        )

    def replace_line(self, node: Any, lines: Sequence[str]) -> None:
        """Replace an import by other statements. Its comments go behind them."""
        start, end = self.span(node)
        indent = self._text[self._starts[node.lineno - 1] : start]
        self._edits.append((start, end, f"{self._newline}{indent}".join(lines) + self._comments(node)))

    def remove_line(self, node: Any) -> None:
        """Remove a statement with its comment, and the empty lines above."""
        first = node.lineno - 1
        while first > 0 and not self._text[self._starts[first - 1] : self._starts[first]].strip():
            first -= 1
        self._edits.append((self._starts[first], self._below(node.end_lineno), ""))

    def insert_lines(self, line: int, lines: Sequence[str]) -> None:
        """Put lines behind a line, by its number. 0 is the beginning of the file."""
        place = self._below(line)
        is_open = place > 0 and self._text[place - 1] not in "\r\n"
        new = "".join(f"{text}{self._newline}" for text in lines)
        self._edits.append((place, place, (self._newline if is_open else "") + new))

    def _comments(self, node: Any) -> str:
        """Return the comments in a node without strings."""
        return "".join(f"  {comment.rstrip()}" for comment in _COMMENT.findall(self.before(node)))

    def _below(self, line: int) -> int:
        return self._starts[line] if line < len(self._starts) else len(self._text)

    def _place(self, line: int, column: int) -> int:
        # Python counts bytes.
        start = self._starts[line - 1]
        return start + len(self._text[start : self._below(line)].encode()[:column].decode(errors="replace"))

    def _comma(self, end: int) -> re.Match[str]:
        found = _COMMA.match(self._text, end)
        if found is None:
            raise ValueError(f"expected a comma at {self._text[end : end + 20]!r}")
        return found
