"""Takes pictures of pages with a headless Chromium."""

from __future__ import annotations

import os
import shutil
import subprocess
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


class Missing(Exception):
    """A program that the screenshots need is not installed."""


def program(names: tuple[str, ...], cure: str) -> str:
    """Return the path of the first of these programs that is installed, or raise Missing."""
    found = next(filter(None, map(shutil.which, names)), None)
    if found is None:
        raise Missing(f"found none of the programs {', '.join(names)} on PATH. {cure}")
    return found


def chromium() -> str:
    """Return the path of the browser, or raise Missing."""
    return program(_NAMES, "Install Chromium or Chrome.")


def take(url: str, width: int, height: int, path: Path, *flags: str, top: int = 0) -> None:
    """Write a picture of a page as soon as it is loaded.

    Args:
      url: the page.
      width: of the window, in pixels.
      height: of the window, in pixels.
      path: the PNG file.
      flags: more flags of Chromium.
      top: pixels to cut off at the top of the window.
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
        cropped = image.crop((0, round(top * _SCALE), *image.size))
        cropped.quantize(_COLOURS, dither=Image.Dither.NONE).save(path, optimize=True)
