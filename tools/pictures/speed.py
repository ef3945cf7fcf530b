"""The time of a small step, by what feeds it: bars from the output of `benchmarks/loops.py --json`."""

from __future__ import annotations

import json
import statistics
from pathlib import Path

from drawing import Picture

_FIGURES = Path(__file__).resolve().parents[2] / "benchmarks" / "loops.json"
# The loops of the benchmark, what the picture calls them, and the style of the bar.
_BARS = {
    "ours, callable": ("ours: staged()", "ours"),
    "by hand, callable": ("by hand, by an expert", ""),
    "tf.data, callable": ("tf.data", ""),
    "tensorpack": ("tensorpack", ""),
}
_LEFT, _LONGEST, _ROW, _TOP = 176, 200, 34, 46


def figures() -> dict[str, float]:
    """Return the median time of each system, in milliseconds per step."""
    answers = json.loads(_FIGURES.read_text(encoding="utf-8"))
    return {name: statistics.median(answers[name]) / 1000 for name in _BARS}


def draw() -> str:
    """Return the picture."""
    times = figures()
    picture = Picture(440, _TOP + _ROW * len(_BARS) + 6, "Milliseconds per step, by what feeds the loop")
    picture.text(14, 28, "milliseconds per small step", "head")
    for row, (name, (words, style)) in enumerate(_BARS.items()):
        y, width = _TOP + _ROW * row, _LONGEST * times[name] / max(times.values())
        picture.text(_LEFT - 10, y + 17, words, "head" if style == "ours" else "", anchor="end")
        picture.box(_LEFT, y, width, _ROW - 10, style=style)
        picture.text(_LEFT + width + 8, y + 17, f"{times[name]:.2f}", "head" if style == "ours" else "")
    return picture.svg()
