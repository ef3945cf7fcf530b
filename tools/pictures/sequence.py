"""Draws a sequence: who tells whom what, from top to bottom."""

from __future__ import annotations

from dataclasses import dataclass

from drawing import Picture

_GAP, _TOP, _ROW = 190, 70, 38
# At the right, for the words of an arrow from the last actor to itself.
_MARGIN = 40


@dataclass(frozen=True)
class Says:
    """One arrow between two actors, named by their numbers."""

    sender: int
    receiver: int
    words: str
    style: str = ""


@dataclass(frozen=True)
class Part:
    """A line across the picture, above the arrows of a part."""

    words: str


def draw(title: str, actors: list[tuple[str, str]], rows: list[Says | Part]) -> str:
    """Return the picture. An actor is the text of its box and the style of the box."""
    width, height = _GAP * len(actors) + _MARGIN, _TOP + _ROW * len(rows) + 30
    picture = Picture(width, height, title)
    for number, (words, style) in enumerate(actors):
        x = _x(number)
        picture.arrow(f"M{x} {_TOP - 8} V{height - 16}", "dashed", head=False)
        picture.box(x - 78, 14, 156, 46, words, style)
    for number, row in enumerate(rows):
        y = _TOP + _ROW * (number + 1)
        if isinstance(row, Part):
            picture.text(12, y, row.words, "head over")
            picture.arrow(f"M12 {y + 8} H{width - 12}", head=False)
        else:
            _draw_row(picture, row, y)
    return picture.svg()


def _draw_row(picture: Picture, row: Says, y: int) -> None:
    start, end = _x(row.sender), _x(row.receiver)
    if row.sender == row.receiver:
        picture.arrow(f"M{start} {y - 8} h26 v14 h-22", row.style)
        picture.text(start + 34, y + 4, row.words, "soft over")
        return
    picture.arrow(f"M{start} {y} H{end - 4 if end > start else end + 4}", row.style)
    picture.text((start + end) / 2, y - 6, row.words, "soft over", anchor="middle")


def _x(actor: int) -> int:
    return _GAP // 2 + _GAP * actor
