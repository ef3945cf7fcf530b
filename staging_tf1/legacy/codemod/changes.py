"""What was done to one file, and what is left for its owner."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, order=True)
class Note:
    """A line, and what was changed there or is to be done by hand."""

    line: int
    what: str
    advice: str = ""


@dataclass
class Changes:
    """The result of one file."""

    path: str
    before: str
    after: str
    done: list[Note] = field(default_factory=list)
    left: list[Note] = field(default_factory=list)

    @property
    def changed(self) -> bool:
        """Whether the text is another one."""
        return self.after != self.before
