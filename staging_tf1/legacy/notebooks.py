"""Notebooks as Python: their code cells as one text, in which the lines of IPython stand as names.

Names, because LibCST and the rules keep statements where they are: a comment goes with the statement below it.
"""

from __future__ import annotations

import importlib
import io
import re
import tokenize
import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

__all__ = ["Notebook", "NotebookError", "as_python", "with_sources"]

_NEXT_CELL = "_next_cell_"
_STANDS_FOR = re.compile(r"#?_ipython_line_(\d+)_")
# Magics and commands, also at the right of an assignment; what asks for help.
_OF_IPYTHON = re.compile(
    r"(?P<before>\s*(?:[\w.,\[\]'\" ]+=\s*)?)(?P<words>[%!?].*)|(?P<indent>\s*)(?P<help>[\w.*]*\w\s*\?{1,2}\s*)"
)
# Cell magics whose cell is Python, as in ruff. Other such cells are left out.
_PYTHON_CELL = re.compile(r"%%(capture|debug|prun|python3?|time|timeit)\b")


class NotebookError(Exception):
    """A file that is no notebook of Python code; the message says why, and how to fix it."""


@dataclass(frozen=True)
class Notebook:
    """What the text of a notebook stands for."""

    numbers: tuple[int, ...]  # of the cells in the text, counted from 1 over all cells, as ruff does
    lines: tuple[str, ...]  # the lines of IPython
    counts: tuple[int | None, ...] = ()  # when each cell of the text last ran, as the kernel counts

    def place(self, text: str, line: int) -> tuple[int, int]:
        """Return the cell of a line, and its line in the cell."""
        before = text.split("\n")[: line - 1]
        starts = [number for number, earlier in enumerate(before, start=1) if _is_boundary(earlier)]
        return self.numbers[len(starts)], line - (starts[-1] if starts else 0)

    def cells(self, text: str) -> dict[int, str]:
        """Return the text of each cell, by its number."""
        cells: list[list[str]] = [[]]
        for line in text.split("\n"):
            if _is_boundary(line):
                cells.append([])
            else:
                cells[-1].append(line)
        return {number: "\n".join(lines) for number, lines in zip(self.numbers, cells, strict=True)}

    def in_run_order(self, text: str) -> tuple[str, Notebook]:
        """Return the text with the cells as they last ran. A cell that did not run stays below the one above it."""
        cells, last = self.cells(text), 0
        when: dict[int, int] = {}
        for number, count in zip(self.numbers, self.counts or (None,) * len(self.numbers), strict=True):
            when[number] = last = count or last
        order = sorted(self.numbers, key=lambda number: when[number])
        return _joined(cells[number] for number in order), replace(self, numbers=tuple(order), counts=())

    def sources(self, text: str) -> dict[int, str]:
        """Return the source of each cell, by its number, with the lines of IPython."""
        restored = _STANDS_FOR.sub(lambda match: self.lines[int(match[1])], text)
        return self.cells(restored)

    def magics(self, text: str) -> Iterator[tuple[int, str]]:
        """Yield each line of IPython, with its number in the text."""
        for number, line in enumerate(text.split("\n"), start=1):
            for match in _STANDS_FOR.finditer(line):
                yield number, self.lines[int(match[1])]


def as_python(content: str) -> tuple[str, Notebook]:
    """Return the code of a notebook, and what it stands for.

    Raises:
      NotebookError: it is no notebook, or not one of Python, or nbformat is not installed.
    """
    originals: list[str] = []
    kept = {
        number: cell
        for number, cell in enumerate(_parsed(content).cells, start=1)
        if cell.cell_type == "code" and _is_python(cell.source)
    }
    text = _joined("\n".join(_without_ipython(cell.source.split("\n"), originals)) for cell in kept.values())
    counts = tuple(cell.get("execution_count") for cell in kept.values())
    return text, Notebook(tuple(kept) or (1,), tuple(originals), counts)


def _joined(cells: Iterable[str]) -> str:
    return f"\n{_NEXT_CELL}\n".join(cells)


def _is_python(source: str) -> bool:
    # IPython drops blank lines and indents before a cell magic.
    begins = source.lstrip()
    return not begins.startswith("%%") or _PYTHON_CELL.match(begins) is not None


def with_sources(content: str, sources: dict[int, str]) -> str:
    """Return a notebook with other sources of some cells, as Jupyter writes it. Outputs stay."""
    node = _parsed(content)
    for number, source in sources.items():
        node.cells[number - 1].source = source
    return str(_nbformat().writes(node)) + "\n"


def _parsed(content: str) -> Any:
    nbformat = _nbformat()
    try:
        node = nbformat.reader.reads(content)
        version = node.get("nbformat")
        if version == 4:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of cells without an id, which Jupyter adds when it saves
                nbformat.validate(node)
    except nbformat.reader.NotJSONError:
        raise NotebookError("is not a notebook: it is not JSON") from None
    except nbformat.ValidationError as error:
        raise NotebookError(f"is not a notebook: {error.message}") from None
    except (AttributeError, KeyError, TypeError):
        raise NotebookError("is not a notebook: it has no cells") from None
    if version != 4:
        raise NotebookError(
            f"has notebook format {version}, expected 4. Convert it: jupyter nbconvert --to notebook --inplace FILE"
        )
    # Jupyter writes the first one when the notebook has run.
    written = node.metadata.get("language_info", {}).get("name")
    language = written or node.metadata.get("kernelspec", {}).get("language", "python")
    if language.lower() != "python":
        raise NotebookError(f"is a notebook of {language}, not of Python")
    return node


def _nbformat() -> Any:
    try:
        return importlib.import_module("nbformat")
    except ModuleNotFoundError as error:
        if error.name != "nbformat":
            raise
        raise NotebookError("needs nbformat: pip install 'staging-tf1[notebook]'") from None


def _is_boundary(line: str) -> bool:
    return line.rstrip() == _NEXT_CELL


def _without_ipython(lines: Sequence[str], originals: list[str]) -> list[str]:
    """Return the lines of a cell with a name for what only IPython understands, which `originals` gets."""
    python: list[str] = []
    continues = False
    for line in lines:
        match = None if continues else _OF_IPYTHON.fullmatch(line)
        if continues:
            python.append(f"#{_stand_in(line, originals)}")
        elif match is not None and not _is_open(python):
            words = match["words"] or match["help"]
            python.append(f"{match['before'] or match['indent'] or ''}{_stand_in(words, originals)}")
        else:
            python.append(line)
            continue
        continues = line.endswith("\\")
    return python


def _stand_in(words: str, originals: list[str]) -> str:
    originals.append(words)
    return f"_ipython_line_{len(originals) - 1}_"


def _is_open(lines: Sequence[str]) -> bool:
    """Whether a string, a bracket or a line goes on after these lines."""
    try:
        for _ in tokenize.generate_tokens(io.StringIO("\n".join([*lines, ""])).readline):
            pass
    except tokenize.TokenError:
        return True
    except SyntaxError:
        return False
    return bool(lines) and lines[-1].endswith("\\")
