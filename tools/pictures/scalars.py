"""The scalars of `StagingSummaryHook`, read from the event file of a real run."""

from __future__ import annotations

import tempfile
from pathlib import Path

from drawing import Picture
from programs import output_of

# The scalar, its title, and the end of its axis; None is the maximum.
_SHOWN = (
    ("waited_share", "waited_share: the share of the time that steps waited", 1.0),
    ("fraction_full", "fraction_full: how full the steps found the area", 1.0),
    ("batches_per_sec", "batches_per_sec", None),
)
_LEFT, _WIDTH, _HEIGHT, _GAP = 60, 850, 100, 56
_SLOW = (400, 800)  # as in watched.py


def draw() -> str:
    """Run the program and return the picture."""
    with tempfile.TemporaryDirectory() as folder:
        output_of("watched.py", folder)
        curves = _scalars(Path(folder))
    picture = Picture(940, 60 + len(_SHOWN) * (_HEIGHT + _GAP), "The scalars of StagingSummaryHook")
    picture.text(_LEFT, 24, "A run whose source is slow from step 400 to 800", "head")
    for number, (name, title, most) in enumerate(_SHOWN):
        _panel(picture, 50 + number * (_HEIGHT + _GAP), title, curves[name], most)
    picture.text(_LEFT + _WIDTH, 46 + len(_SHOWN) * (_HEIGHT + _GAP), "step", "soft", anchor="end")
    return picture.svg()


def _scalars(folder: Path) -> dict[str, list[tuple[int, float]]]:
    """Return the points of each scalar in the event file of a folder."""
    import tensorflow.compat.v1 as tf

    tf.logging.set_verbosity(tf.logging.ERROR)  # summary_iterator calls a function that TensorFlow deprecates
    found: dict[str, list[tuple[int, float]]] = {}
    for path in folder.iterdir():
        for event in tf.train.summary_iterator(str(path)):
            for value in event.summary.value:
                found.setdefault(value.tag.rpartition("/")[2], []).append((event.step, value.simple_value))
    return found


def _panel(picture: Picture, top: int, title: str, points: list[tuple[int, float]], most: float | None) -> None:
    last, highest = points[-1][0], most or max(value for _, value in points)
    x = [_LEFT + _WIDTH * step / last for step, _ in points]
    y = [top + 10 + _HEIGHT * (1 - value / highest) for _, value in points]
    slow = [_LEFT + _WIDTH * step / last for step in _SLOW]
    picture.text(_LEFT, top, title)
    picture.box(_LEFT, top + 10, _WIDTH, _HEIGHT)
    picture.box(slow[0], top + 10, slow[1] - slow[0], _HEIGHT, style="group")
    for value, height in ((f"{highest:.3g}", 0), ("0", _HEIGHT)):
        picture.text(_LEFT - 8, top + 14 + height, value, "soft", anchor="end")
    picture.arrow("M" + " L".join(f"{across:.0f} {down:.0f}" for across, down in zip(x, y)), "ours", head=False)
    for step in range(0, last + 1, 200):
        picture.text(_LEFT + _WIDTH * step / last, top + 26 + _HEIGHT, str(step), "soft", anchor="middle")
