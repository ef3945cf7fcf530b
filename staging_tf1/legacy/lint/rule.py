"""Rules and their findings."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from staging_tf1.legacy.lint.flow.analysis import Analysis

# What a rule yields: where each mistake is, and what the finding says.
Mistakes = Iterator[tuple[ast.AST, str]]


@dataclass(frozen=True, order=True)
class Finding:
    """One mistake in one file."""

    path: str
    line: int
    column: int  # counted from 1
    code: str
    message: str
    cell: int | None = None  # of a notebook, counted from 1 over all its cells


@dataclass(frozen=True)
class Rule:
    """One kind of mistake."""

    code: str
    name: str
    check: Callable[[Analysis], Mistakes]

    def findings(self, analysis: Analysis) -> Iterator[Finding]:
        """Yield the findings of this rule in a file."""
        program = analysis.program
        for node, message in self.check(analysis):
            line: int = getattr(node, "lineno", 1)
            text = program.lines[line - 1] if line <= len(program.lines) else ""
            # Python counts bytes, editors count characters.
            before = text.encode()[: getattr(node, "col_offset", 0)].decode(errors="replace")
            yield Finding(program.path, line, len(before) + 1, self.code, message)
