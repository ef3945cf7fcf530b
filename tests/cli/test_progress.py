"""Progress bars: on a real terminal (pty) only."""

from __future__ import annotations

import fcntl
import gzip
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from processes import RunPython

from staging_tf1.cli.main import main

pytestmark = pytest.mark.usefixtures("quick_graphs")

_HOME = str(Path(__file__).parents[2])
# Bars that nobody asked for appear after two seconds: here at once, so that the tests need not be slow.
_NOW = "import sys, staging_tf1.progress as p; p.SILENT_SECS = 0.0; "
_MAIN = _NOW + "from staging_tf1.cli.main import main; sys.exit(main(sys.argv[1:]))"


def _on_a_terminal(command: Sequence[object], cwd: Path) -> tuple[str, str, int]:
    """Run Python with a terminal as stderr. Return its stdout, what the terminal got, and the exit code."""
    ours, theirs = pty.openpty()
    # A new one has no rows, and tqdm shows nothing there.
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 100, 0, 0))
    environment = {**os.environ, "PYTHONPATH": _HOME}
    child = subprocess.Popen(
        [sys.executable, *map(str, command)], stdout=subprocess.PIPE, stderr=theirs, cwd=cwd, env=environment
    )
    os.close(theirs)
    got = b""
    while True:
        try:
            chunk = os.read(ours, 4096)
        except OSError:  # Linux's way to say that the other side is closed
            break
        if not chunk:
            break
        got += chunk
    os.close(ours)
    assert child.stdout is not None
    with child.stdout:
        out = child.stdout.read().decode()
    return out, got.decode(), child.wait()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a TFRecord file, the same compressed, and Python files."""
    found = tmp_path_factory.mktemp("work")
    np.savez(found / "d.npz", x=np.arange(600))
    assert main(["index", "--write", str(found / "d.tfrecord"), "--from", str(found / "d.npz")]) == 0
    (found / "d.tfrecord.gz").write_bytes(gzip.compress((found / "d.tfrecord").read_bytes()))
    for name in "ab":
        (found / f"{name}.py").write_text("import tensorflow as tf\n")
    return found


_SOURCE = (
    _NOW + "import staging_tf1 as staging; import numpy as np; "
    "staging.sources.TFRecordSource('d.tfrecord.gz', batch_size=2, parse_fn=lambda record: np.array(1))"
)
# What is run, and which bars it shows.
_BARS = {
    "index": ((*("-c", _MAIN), "index", "--force", "d.tfrecord"), ("index d.tfrecord",)),
    "index, compressed": (
        (*("-c", _MAIN), "index", "--force", "d.tfrecord.gz"),
        ("unpack d.tfrecord.gz", "index d.tfrecord.gz"),
    ),
    "index --check": ((*("-c", _MAIN), "index", "--check", "d.tfrecord"), ("check d.tfrecord",)),
    "check": ((*("-c", _MAIN), "check", "a.py", "b.py"), ("check",)),
    "migrate": ((*("-c", _MAIN), "migrate", "a.py", "b.py"), ("migrate",)),
}


@pytest.mark.parametrize("how", _BARS)
def test_a_terminal_shows_bars_and_they_disappear(how: str, folder: Path) -> None:
    command, bars = _BARS[how]
    out, terminal, code = _on_a_terminal(command, folder)
    assert code == (1 if how == "migrate" and "left" in out and " 0 things left" not in out else 0), (out, terminal)
    for bar in bars:
        assert re.search(rf"\r{re.escape(bar)}\S*: +\d+%\|", terminal), terminal
    # The last thing on the terminal is an empty line.
    assert terminal.rsplit("\r", 2)[1].strip() == "" and terminal.endswith("\r")
    assert "%|" not in out


# Runs the command of each argument, in one process.
_ALL = _NOW + "from staging_tf1.cli.main import main; print(*(main(words.split()) for words in sys.argv[1:]))"


def test_a_pipe_shows_none(folder: Path, run_python: RunPython) -> None:
    commands = [" ".join(map(str, words[2:])) for words, _ in _BARS.values()]
    done = run_python("-c", _ALL, *commands, cwd=folder)
    assert (done.stderr, done.returncode) == ("", 0)
    assert re.fullmatch(r"0 0 0 0 [01]", done.stdout.splitlines()[-1]), done.stdout


def test_building_an_index_in_a_program_shows_bars_on_a_terminal(folder: Path) -> None:
    for left in folder.glob("d.tfrecord.gz.*"):
        left.unlink()
    _, terminal, code = _on_a_terminal(("-c", _SOURCE), folder)
    assert code == 0, terminal
    assert "\runpack d.tfrecord.gz: " in terminal and "\rindex d.tfrecord.gz" in terminal


def test_building_an_index_in_a_program_is_silent_if_it_is_quick(folder: Path) -> None:
    for left in folder.glob("d.tfrecord.gz.*"):
        left.unlink()
    _, terminal, code = _on_a_terminal(("-c", _SOURCE.replace("p.SILENT_SECS = 0.0", "pass")), folder)
    assert (terminal, code) == ("", 0)


KILLED = """
import os, signal
from staging_tf1.progress import tqdm_bar
tqdm_bar(True, total=1).close()
child = os.fork()
if not child:
    type(tqdm_bar(True, total=1)).get_lock().acquire()
    os.kill(os.getpid(), signal.SIGKILL)
os.waitpid(child, 0)
tqdm_bar(True, total=1).close()
print("went on")
"""


def test_a_fork_that_is_killed_while_it_draws_stops_nobody_else(run_python: RunPython) -> None:
    assert run_python("-c", KILLED, timeout=60).stdout == "went on\n"


def test_where_no_bar_is_shown_there_is_no_thread_for_it(run_python: RunPython) -> None:
    code = (
        "import sys, threading; from staging_tf1.progress import progress_bar, with_progress\n"
        "with progress_bar('x', 3, 'B') as bar: bar.update(2)\n"
        "print(bar.n, list(with_progress('ab', 2, 'x')), threading.active_count(), 'tqdm' in sys.modules)"
    )
    assert run_python("-c", code).stdout == "2 ['a', 'b'] 1 False\n"
