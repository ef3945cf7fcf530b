"""Worker processes of programs whose standard streams are closed, as those of some daemons."""

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
# What C++ writes to these numbers would go into the memory of the source, or to a worker.
_OCCUPIED = """
import os, sys
import numpy as np
from staging_tf1 import sources
from staging_tf1.testing.reads import Trial
with Trial(sources.ArraySource(np.arange(20), batch_size=5), 2) as trial:
    for number in (0, 1):
        trial.batch(number)
        names = [os.readlink(f"/proc/self/fd/{descriptor}") for descriptor in range(3)]
        assert not any("staging_tf1" in name or "socket" in name for name in names), names
"""


def test_nothing_of_ours_gets_the_number_of_a_closed_stream(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(_OCCUPIED + _DONE)
    subprocess.run(
        ["bash", "-c", f"exec {sys.executable} program.py <&- >&- 2>&-"], cwd=tmp_path, check=True, timeout=120
    )
    assert (tmp_path / "done").exists()


@pytest.mark.parametrize("closed", _COMBINATIONS)
@pytest.mark.slow_cases(r"(?!(<&-|<&- >&- 2>&-)$).*")
def test_streams_that_are_closed(closed: str, tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(_PROCESSES + _DONE)
    done = subprocess.run(
        ["bash", "-c", f"exec {sys.executable} program.py {closed}"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "done").exists()
    assert "Traceback" not in done.stderr
