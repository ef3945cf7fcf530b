"""Rules and their findings."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from staging_tf1.legacy.lint.facts import Facts, Place

Found = Iterator[tuple[Place, str]]


@dataclass(frozen=True, order=True)
class Finding:
    """One mistake in one file."""

    path: str
    line: int
    column: int  # counted from 1
    code: str
    message: str


@dataclass(frozen=True)
class Rule:
    """One kind of mistake."""

    code: str
    name: str
    check: Callable[[Facts], Found]

    def findings(self, facts: Facts) -> Iterator[Finding]:
        """Yield the findings of this rule in a file."""
        for place, message in self.check(facts):
            yield Finding(facts.path, place.line, place.column, self.code, message)
