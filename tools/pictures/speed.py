"""The time of a small step, by what feeds it: bars from the output of `benchmarks/bench.py --json`."""

from __future__ import annotations

import json
import statistics
from pathlib import Path

from drawing import Picture

_FIGURES = Path(__file__).resolve().parents[2] / "benchmarks" / "w1.json"
# The systems of the benchmark, what the picture calls them, and the style of the bar.
_BARS = {
    "staged:1": ("ours: staged()", "ours"),
    "hand_area:1": ("by hand, by an expert", ""),
    "tf_data": ("tf.data", ""),
    "tensorpack": ("tensorpack", ""),
    "const": ("no input: the bound", "group"),
}
_LEFT, _LONGEST, _ROW, _TOP = 176, 200, 34, 46


def figures() -> dict[str, float]:
    """Return the median time of each system, in milliseconds per step."""
    rounds = json.loads(_FIGURES.read_text(encoding="utf-8"))["rounds"]["W1"]
    return {name: statistics.median(each["measured"]["wall_ms"] for each in rounds[name]) for name in _BARS}


def draw() -> str:
    """Return the picture."""
    times = figures()
    picture = Picture(440, _TOP + _ROW * len(_BARS) + 6, "Milliseconds per step, by what feeds the loop")
    picture.text(14, 28, "milliseconds per small step (W1)", "head")
    for row, (name, (words, style)) in enumerate(_BARS.items()):
        y, width = _TOP + _ROW * row, _LONGEST * times[name] / max(times.values())
        picture.text(_LEFT - 10, y + 17, words, "head" if style == "ours" else "", anchor="end")
        picture.box(_LEFT, y, width, _ROW - 10, style=style)
        picture.text(_LEFT + width + 8, y + 17, f"{times[name]:.2f}", "head" if style == "ours" else "")
    return picture.svg()
