"""The stall report of a real stall, with a word on each part."""

from __future__ import annotations

import textwrap

from drawing import Picture
from programs import output_of

_COLUMNS = 92
# How a line of the report begins, and what it says.
_LEGEND = (
    ("A step", "which step waits, and where it was called"),
    ("Most likely", "the cause, and its fix"),
    ("  '", "each pipeline: what it holds, what the step takes"),
    ("    feed:", "each feed thread: what it does, and where"),
)


def draw() -> str:
    """Run the program and return the picture."""
    lines = output_of("stalled.py").splitlines()
    wrapped = [textwrap.wrap(line, _COLUMNS, subsequent_indent="    ") for line in lines]
    height = sum(30 + 18 * len(part) for part in wrapped)
    picture = Picture(940, height + 40, "A stall report")
    y = 34
    picture.box(12, 12, 916, height + 16)
    for line, part in zip(lines, wrapped):
        said = next((said for start, said in _LEGEND if line.startswith(start)), "")
        picture.text(28, y + 4, said, "soft")
        for number, text in enumerate(part):
            picture.text(28, y + 24 + 18 * number, text, "mono")
        y += 30 + 18 * len(part)
    return picture.svg()
