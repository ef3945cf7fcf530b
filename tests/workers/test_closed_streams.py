"""Worker processes of programs whose standard streams are closed, as those of some daemons."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

# What C++ writes to these numbers would go into the memory of the source, or to a worker. The workers print, too.
_PROGRAM = """
import os, sys
from pathlib import Path
import numpy as np
from staging_tf1 import sources
from staging_tf1.testing.reads import Trial
def transform(batch):
    print("a batch")
    print("a batch", file=sys.stderr)
    return batch + 1
with Trial(sources.ArraySource(np.arange(20), batch_size=5, transform=transform), 2) as trial:
    for number in (0, 1):
        trial.batch(number)
        names = [os.readlink(f"/proc/self/fd/{descriptor}") for descriptor in range(3)]
        assert not any("staging_tf1" in name or "socket" in name for name in names), names
Path("done").touch()
"""


@pytest.mark.matrix_cases("(?!<&- >&- 2>&-).*")
@pytest.mark.parametrize("closed", ["<&- >&- 2>&-", "<&-", ">&-", "2>&-", ">&- 2>&-"])
def test_streams_that_are_closed(closed: str, tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(_PROGRAM)
    command = ["bash", "-c", f"exec {sys.executable} program.py {closed}"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0 and (tmp_path / "done").exists(), done.stderr
    assert "Traceback" not in done.stderr
