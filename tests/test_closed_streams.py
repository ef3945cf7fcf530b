"""Programs and commands whose standard streams are closed, as those of some daemons, work as others do."""

from __future__ import annotations

import itertools
import subprocess
import sys
from pathlib import Path

import pytest

_CLOSED = {0: "<&-", 1: ">&-", 2: "2>&-"}
_COMBINATIONS = [" ".join(each) for count in (1, 2, 3) for each in itertools.combinations(_CLOSED.values(), count)]
# The worker processes print, too.
_PROCESSES = """
import os, sys
import numpy as np
from staging_tf1 import sources, testing
def transform(batch):
    print("a batch")
    print("a batch", file=sys.stderr)
    return batch + 1
source = sources.ArraySource(np.arange(20), batch_size=5, transform=transform)
testing.assert_works_in_processes(source, processes=2)
"""
_DONE = "from pathlib import Path; Path('done').touch()\n"
_COMMANDS = {
    "processes": [],
    "launch": ["-m", "staging_tf1", "launch", "--workers", "1", "--", sys.executable],
    "run": ["-m", "staging_tf1", "run"],
}


@pytest.mark.parametrize("closed", _COMBINATIONS)
@pytest.mark.parametrize("command", _COMMANDS)
def test_streams_that_are_closed(command: str, closed: str, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text((_PROCESSES if command == "processes" else "print('hi')\n") + _DONE)
    words = [sys.executable, *_COMMANDS[command], str(program)]
    done = subprocess.run(
        ["bash", "-c", f'exec "$@" {closed}', "bash", *words],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "done").exists()
    assert "Traceback" not in done.stderr
