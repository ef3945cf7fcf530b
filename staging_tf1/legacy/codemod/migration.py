"""Runs the levels over one parsed file."""

from __future__ import annotations

import dataclasses

import libcst as cst

from staging_tf1.legacy.codemod import level_idiom, level_import
from staging_tf1.legacy.codemod.changes import Changes
from staging_tf1.legacy.source_files import SourceFile


def migrate(source: SourceFile, level: str) -> Changes:
    """The changes of one file; nothing is written.

    Args:
      source: the file.
      level: "import" or "idiom", which does what "import" does first.
    """
    changes = level_import.migrate(source)
    if level == "idiom":
        module, done, left = level_idiom.migrate(cst.parse_module(changes.after), source.text)
        changes.after = module.code
        changes.done += done
        changes.left += left
    return changes


def left_in_the_result(source: SourceFile, changes: Changes, level: str) -> Changes:
    """`changes` with what is left at the lines of the new text, for after it was written."""
    again = dataclasses.replace(source, text=changes.after, module=cst.parse_module(changes.after))
    return dataclasses.replace(changes, left=migrate(again, level).left)
