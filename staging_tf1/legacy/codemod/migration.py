"""Runs the levels over one parsed file."""

from __future__ import annotations

import dataclasses

import libcst as cst

from staging_tf1.legacy.codemod import level_import
from staging_tf1.legacy.codemod.changes import Changes
from staging_tf1.legacy.source_files import SourceFile


def migrate(source: SourceFile, level: str) -> Changes:
    """The changes of one file; nothing is written.

    Args:
      source: the file.
      level: "import" or "idiom", which does what "import" does first.
    """
    changes = level_import.migrate(source)
    return changes
