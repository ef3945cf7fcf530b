"""The rooms of the code: their floors from docs/design.md, and the arrows from the imports in the files."""

from __future__ import annotations

import ast
import re
import textwrap
from pathlib import Path

from drawing import Picture

_ROOT = Path(__file__).resolve().parents[2]
_PACKAGE = _ROOT / "staging_tf1"
_ROW = re.compile(r"^ +(\d|side) +(\S+) +(\S.*?)(?: {2,}\S.*)?$", re.MULTILINE)
# Where the middle of a room stands, from left to right. Rooms without a place stand in a column at the right.
_UPPER = {"lifecycle": 180, "watch": 300, "define": 675, "feed": 160, "workers": 660}
_PLACES = _UPPER | {"cluster": 115, "graph": 310, "sources": 510}
_TOPS = {"6": 40, "5": 130, "4": 220, "3": 310, "2": 400, "1": 490, "0": 580}
_WIDTH, _HEIGHT, _RIGHT = 184, 52, 800


def draw() -> str:
    """Return the picture."""
    rows = [(floor, room.rstrip("/"), _short(lives)) for floor, room, lives in _ROW.findall(_design())]
    floors = {room: floor for floor, room, _ in rows if floor != "side"}
    without_place = {room for room, floor in floors.items() if floor in "12345"} - set(_PLACES)
    if without_place:
        raise ValueError(f"rooms.py has no place for {', '.join(sorted(without_place))}. Add them to _PLACES.")
    picture = Picture(1060, 660, "The rooms of the code and what they import")
    for upper, lower in sorted(_imports(list(_PLACES))):
        x, y, end, top = _PLACES[upper], _TOPS[floors[upper]] + _HEIGHT, _PLACES[lower], _TOPS[floors[lower]]
        lean = max(-40, min(40, (end - x) / 4))  # arrows from one room do not start at one point
        picture.arrow(f"M{x + lean:g} {y} L{end - lean:g} {top - 2}")
    _bar(picture, "6", "the front door: " + ", ".join(room for floor, room, _ in rows if floor == "6"))
    for floor, room, lives in rows:
        if room in _PLACES:
            picture.box(_PLACES[room] - _WIDTH / 2, _TOPS[floor], _WIDTH, _HEIGHT, f"{room}/\n{lives}", "good")
    _bar(picture, "0", "floor 0: _tf.py, arguments.py, errors.py, spec/ and others, imported by all")
    picture.text(_RIGHT, 30, "at the side", "head")
    for number, room in enumerate(room for floor, room, _ in rows if floor == "side"):
        picture.box(_RIGHT, 40 + 64 * number, 240, 52, f"{room}\nimports {_named(room)}")
    picture.text(20, 652, "An arrow means: imports. No arrow leads up.", "soft")
    return picture.svg()


def _bar(picture: Picture, floor: str, words: str) -> None:
    picture.box(20, _TOPS[floor], 735, _HEIGHT, words)


def _design() -> str:
    return (_ROOT / "docs" / "design.md").read_text(encoding="utf-8")


def _short(lives: str) -> str:
    """Return the beginning of what lives in a room, as long as a box is wide."""
    return textwrap.shorten(re.split("[:,;]", lives)[0].replace("`", ""), 25, placeholder="...")


def _named(room: str) -> str:
    """Return the rooms that a room at the side imports."""
    folders = [path.name for path in sorted(_PACKAGE.iterdir()) if path.is_dir()]
    found = sorted(lower for _, lower in _imports([room], to=folders))
    return (", ".join(found[:4]) + (" and others" if len(found) > 4 else "")) or "floor 0"


def _imports(rooms: list[str], to: list[str] | None = None) -> set[tuple[str, str]]:
    """Return which of the rooms imports which; `to` are the imported ones, by default the same."""
    found = set()
    for room in rooms:
        path = _PACKAGE / room
        for file in path.rglob("*.py") if path.is_dir() else [path]:
            for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
                parts = (getattr(node, "module", None) or "").split(".") if isinstance(node, ast.ImportFrom) else []
                if parts[:1] == ["staging_tf1"] and parts[1:] and parts[1] in (to or rooms) and parts[1] != room:
                    found.add((room, parts[1]))
    return found
