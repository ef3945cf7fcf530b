"""Takes pictures of pages with a headless Chromium."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from PIL import Image

_NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
# No GPU: TensorBoard's charts stay empty where it finds WebGL without one. No traffic but that of the page.
_FLAGS = (
    *("--headless", "--disable-gpu", "--disable-3d-apis", "--hide-scrollbars", "--no-first-run"),
    *("--disable-quic", "--disable-background-networking", "--disable-component-update", "--disable-sync"),
)
# Pixels of the file for each pixel of the page, so that text stays sharp on dense screens.
_SCALE = 1.5
_COLOURS = 64  # Text and lines need no more. The file has a third of the bytes.
_SECS = 120


def chromium() -> str:
    """Return the path of the browser, or exit."""
    found = next(filter(None, map(shutil.which, _NAMES)), None)
    return found or sys.exit(f"found none of the programs {', '.join(_NAMES)} on PATH. Install Chromium or Chrome.")


def take(url: str, width: int, height: int, path: Path, *flags: str) -> None:
    """Write a picture of a page as soon as it is loaded.

    Args:
      url: the page.
      width: of the window, in pixels.
      height: of the window, in pixels.
      path: the PNG file.
      flags: more flags of Chromium.
    """
    with tempfile.TemporaryDirectory() as folder:
        shot = Path(folder) / "shot.png"
        options = [f"--user-data-dir={folder}/profile", f"--window-size={width},{height}", f"--screenshot={shot}"]
        if os.geteuid() == 0:
            options.append("--no-sandbox")  # Chromium refuses to start as root with its sandbox
        command = [chromium(), *_FLAGS, f"--force-device-scale-factor={_SCALE}", *options, *flags, url]
        done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=_SECS)
        if not shot.exists():
            raise RuntimeError(f"Chromium took no picture of {url}:\n{done.stderr}")
        image = Image.open(shot).convert("RGB")
        image.quantize(_COLOURS, dither=Image.Dither.NONE).save(path, optimize=True)
