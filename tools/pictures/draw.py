"""Draws the pictures of the documentation: `make pictures`, or `python tools/pictures/draw.py NAME...` for some.

Those of RUNS show a run on this machine, or a graph of the installed TensorFlow, so they differ from time to time.
`--check` compares the others with the code, and draws nothing.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # for scalars.py, which imports TensorFlow

import chain
import pipeline
import protocol
import rooms
import scalars
import speed
import stall

FOLDER = Path(__file__).resolve().parents[2] / "docs" / "pictures"
DRAWN: dict[str, Callable[[], str]] = {
    "pipeline": pipeline.draw_pipeline,
    "cluster": pipeline.draw_cluster,
    "tokens": protocol.draw_tokens,
    "cluster-run": protocol.draw_cluster_run,
    "rooms": rooms.draw,
    "chain": chain.draw,
    "speed": speed.draw,
}
RUNS: dict[str, Callable[[], str]] = {"stall": stall.draw, "scalars": scalars.draw}


def main(names: list[str]) -> int:
    """Draw the pictures of these names; without names, all."""
    if names == ["--check"]:
        return check()
    every = {**DRAWN, **RUNS}
    unknown = sorted(set(names) - set(every))
    if unknown:
        print(f"unknown pictures: {', '.join(unknown)}. Expected some of {', '.join(every)}.", file=sys.stderr)
        return 2
    FOLDER.mkdir(exist_ok=True)
    for name in names or every:
        path = FOLDER / f"{name}.svg"
        path.write_text(every[name](), encoding="utf-8")
        print(f"{path} ({path.stat().st_size:,} bytes)")
    return 0


def check() -> int:
    """Return 1 if a picture is not what its function draws."""
    paths = {name: FOLDER / f"{name}.svg" for name in DRAWN}
    stale = [
        name for name, path in paths.items() if not path.exists() or path.read_text(encoding="utf-8") != DRAWN[name]()
    ]
    for name in stale:
        print(f"{paths[name]} is out of date: run `make pictures`, or `python tools/pictures/draw.py {name}`")
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
