"""Rules and their findings."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from staging_tf1.legacy.lint.module import Module

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
    check: Callable[[Module], Mistakes]
