"""Stands for `python -c CODE` where pytest-xdist starts a worker: runs the code in a fork of `fork_server.py`.

So the workers import TensorFlow once, not each.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

from forked import ForkServer


def main() -> int:
    """Run `fork_worker.py ADDRESS [options of Python] -c CODE`, and return the exit code."""
    # A Ctrl-C in the terminal is for pytest, which ends its workers.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _, address, *words = sys.argv
    # The streams are descriptors to pytest-xdist: what `-u` does makes no difference.
    code = words[words.index("-c") :]
    # With oneDNN, as users have it.
    server = ForkServer(Path(address), Path.cwd(), environment={})
    # What the tests start must not find the package where programs do: they test installed copies of it, too.
    path = {"PYTHONPATH": os.environ.get("PYTHONPATH", "")}
    worker = server.start(*code, env=path, stdin=0, stdout=1, stderr=2)
    # pytest-xdist notices the end of a worker by the end of its output.
    os.dup2(os.open(os.devnull, os.O_RDWR), 0)
    os.dup2(0, 1)
    return worker.wait()


if __name__ == "__main__":
    code = main()
    if code < 0:
        os.kill(os.getpid(), -code)
    sys.exit(code)
