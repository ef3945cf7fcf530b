"""Sources in a process that may open few files."""

from __future__ import annotations

import json
from pathlib import Path

from processes import RunPython

CHILD = Path(__file__).parents[1] / "support" / "descriptors_child.py"


def test_too_many_open_files(run_python: RunPython, tmp_path: Path) -> None:
    done = run_python(CHILD, tmp_path)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    # One for each file of the cache, which stays open, and none for the rest.
    assert found["descriptors"] == 600
    assert len(found["errors"]) == 7
    for way, error in found["errors"].items():
        assert error.startswith("RecordFileError: "), f"{way}: {error}"
        assert "Too many open files" in error, f"{way}: {error}"
        assert "Raise the limit of open files of this process: ulimit -n" in error, f"{way}: {error}"
        for wrong in ("Remove the cache", "MiB are free", "local disk", "read access"):
            assert wrong not in error, f"{way}: {error}"
