"""Takes the screenshot of TensorBoard with the scalars of `StagingSummaryHook`, from a real run: `make screenshots`.

It needs Chromium, Pillow and TensorBoard.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import browser
from programs import output_of

_FILE = Path(__file__).resolve().parents[2] / "docs" / "pictures" / "tensorboard.png"

_WIDTH, _HEIGHT = 1045, 1040  # six charts in two columns
_PAGE = "?darkMode=false#scalars&_smoothingWeight=0"
# The page's own time. It stands still while the page waits for the server, so this takes about 5 seconds.
_BUDGET = "--virtual-time-budget=15000"
_START_SECS = 60


def shoot(path: Path) -> None:
    """Run the program and write the picture."""
    browser.chromium()
    if importlib.util.find_spec("tensorboard") is None:
        sys.exit("found no TensorBoard. Install it with: pip install tensorboard")
    with tempfile.TemporaryDirectory() as folder:
        output_of("watched.py", f"{folder}/logs/train")
        with _served(folder) as url:
            browser.take(url + _PAGE, _WIDTH, _HEIGHT, path, _BUDGET)


@contextlib.contextmanager
def _served(folder: str) -> Iterator[str]:
    """Run TensorBoard on the logs in a folder. The value is its address."""
    # In the folder, because the page shows the path of the logs.
    command = [sys.executable, "-m", "tensorboard.main", "--logdir", "logs", "--port", "0"]
    with subprocess.Popen(command, cwd=folder, stderr=subprocess.PIPE, text=True) as server:
        assert server.stderr is not None
        try:
            line = next((line for line in server.stderr if " at http://" in line), None)
            if line is None:
                raise RuntimeError("TensorBoard ended before it served its page")
            url = line.split(" at ")[1].split()[0]
            _wait_for_scalars(url)
            yield url
        finally:
            server.terminate()


def _wait_for_scalars(url: str) -> None:
    """Wait until TensorBoard has read the logs: a page that is loaded before shows no charts."""
    end = time.monotonic() + _START_SECS
    while time.monotonic() < end:
        with urllib.request.urlopen(f"{url}data/plugin/scalars/tags") as reply:
            if json.load(reply):
                return
        time.sleep(0.2)
    raise RuntimeError(f"TensorBoard found no scalars within {_START_SECS} s")


if __name__ == "__main__":
    shoot(_FILE)
    print(f"{_FILE} ({_FILE.stat().st_size:,} bytes)")
