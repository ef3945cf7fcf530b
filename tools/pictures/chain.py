"""The handlers around a run, from the outermost to the innermost, with what a hot and a failed step do there."""

from __future__ import annotations

from pathlib import Path

from drawing import Picture

_PAGE = Path(__file__).resolve().parents[2] / "docs" / "design.md"
_ROW, _TOP, _BOX, _TEXT = 34, 62, 130, 350
_LEFT, _RIGHT = _TEXT + 40, _TEXT + 40 + _BOX


def draw() -> str:
    """Return the picture of the list that the page of the design shows."""
    rows = handlers()
    end = _TOP + _ROW * (len(rows) + 1)
    picture = Picture(_RIGHT + 40 + _TEXT, end + 22, "The handlers around a run")
    picture.text(_LEFT - 30, 24, "before the run", "head", anchor="end")
    picture.text(_RIGHT + 30, 24, "after it", "head")
    picture.text(_RIGHT + 30, 44, "if it failed", "soft")
    for number, (name, before, after, failed) in enumerate(rows):
        y = _TOP + _ROW * number
        picture.box(_LEFT, y, _BOX, _ROW - 8, name, "ours")
        picture.text(_LEFT - 30, y + 17, before, "over", anchor="end")
        picture.text(_RIGHT + 30, y + (10 if after and failed else 17), after, "over")
        picture.text(_RIGHT + 30, y + (25 if after else 17), failed, "soft over")
    picture.box(_LEFT, end - _ROW, _BOX, _ROW - 8, "the run", "good")
    picture.arrow(f"M{_LEFT - 15} {_TOP} V{end - _ROW + 13} H{_LEFT - 4}", "ours")
    picture.arrow(f"M{_RIGHT} {end - _ROW + 13} H{_RIGHT + 15} V{_TOP}", "ours")
    return picture.svg()


def handlers() -> list[tuple[str, str, str, str]]:
    """Return the name of each handler, and what it does before a run, after it, and after a failed one."""
    table = _PAGE.read_text(encoding="utf-8").partition("### A step from the list")[2].partition("\n- ")[0]
    rows = [line.split("|")[1:-1] for line in table.splitlines() if line.startswith("| `")]
    return [(row[0].strip(" `"), *(text.partition(";")[0].strip() for text in row[3:])) for row in rows]
