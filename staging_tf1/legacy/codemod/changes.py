"""The changes made to one file, and the ones left to its owner."""

from __future__ import annotations

from dataclasses import dataclass, field

from staging_tf1.legacy.notebooks import Notebook


@dataclass(frozen=True, order=True)
class Note:
    """A line, with the change made there or the one to make by hand."""

    line: int
    text: str
    advice: str = ""
    cell: int | None = None  # of a notebook; then the line is that in the cell


@dataclass
class Changes:
    """The result for one file."""

    path: str
    before: str
    after: str
    done: list[Note] = field(default_factory=list)
    left: list[Note] = field(default_factory=list)
    notebook: Notebook | None = None  # what `before` and `after` stand for, if it is one

    @property
    def changed(self) -> bool:
        """Whether the text changed."""
        return self.after != self.before

    @property
    def parts(self) -> list[tuple[str, str, str]]:
        """Name, old text and new text of the file; of a notebook, those of each cell that changed."""
        if self.notebook is None:
            return [(self.path, self.before, self.after)]
        before, after = self.notebook.sources(self.before), self.notebook.sources(self.after)
        return [
            (f"{self.path}:cell {number}", f"{before[number]}\n", f"{after[number]}\n")
            for number in before
            if after[number] != before[number]
        ]
