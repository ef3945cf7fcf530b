"""Rules and their findings."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from staging_tf1.legacy.lint.module import Module

# How messages begin after a name that programs under `run` find. Such a finding is no mistake there.
RESTORED = " is restored by staging-tf1 run, and gone in plain Python. "
# What a rule yields: where each mistake is, and what the finding says.
Mistakes = Iterator[tuple[ast.AST, str]]


@dataclass(frozen=True, order=True)
class Finding:
    """What a rule has found at one place in one file."""

    path: str
    line: int
    column: int  # counted from 1
    code: str
    message: str

    @property
    def is_mistake(self) -> bool:
        """Whether the program fails under `staging-tf1 run`, too."""
        return RESTORED not in self.message


@dataclass(frozen=True)
class Rule:
    """One kind of mistake."""

    code: str
    name: str
    check: Callable[[Module], Mistakes]
