"""Functions and classes that are pickled by value, as those of the main program: their files, lines and source text."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import main_program_child

from staging_tf1.workers.by_value import ByValuePickler


def _by_value(value: Any) -> bytes:
    file = io.BytesIO()
    ByValuePickler(file, 5).dump(value)
    return file.getvalue()


def test_source_text_of_a_file_is_not_moved() -> None:
    assert b"is not moved" not in _by_value(lambda: None)


def test_what_a_main_program_defines_works_in_a_worker(run_python: Any, tmp_path: Path) -> None:
    """Decorated functions, classes and their methods, and modules that were loaded by path: a table."""
    result = run_python(main_program_child.__file__, tmp_path)
    assert (result.returncode, result.stdout) == (0, "done\n"), result.stderr
