"""Takes screenshots of real runs: `make screenshots`, or `python tools/pictures/screenshots.py NAME...` for some.

They need Chromium and Pillow; `tensorboard` also needs TensorBoard, and `perfetto` needs npm and the network.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import perfetto_page
import tensorboard_page
from browser import Missing

FOLDER = Path(__file__).resolve().parents[2] / "docs" / "pictures"
SHOTS: dict[str, Callable[[Path], None]] = {"perfetto": perfetto_page.shoot, "tensorboard": tensorboard_page.shoot}


def main(names: list[str]) -> int:
    """Take the screenshots of these names; without names, all."""
    unknown = sorted(set(names) - set(SHOTS))
    if unknown:
        print(f"unknown screenshots: {', '.join(unknown)}. Expected some of {', '.join(SHOTS)}.", file=sys.stderr)
        return 2
    for name in names or SHOTS:
        path = FOLDER / f"{name}.png"
        try:
            SHOTS[name](path)
        except Missing as error:
            print(f"{name}: {error}", file=sys.stderr)
            return 1
        print(f"{path} ({path.stat().st_size:,} bytes)")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
