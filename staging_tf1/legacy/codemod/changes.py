"""The changes made to one file, and the ones left to its owner."""

from __future__ import annotations

from dataclasses import dataclass, field


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
