"""Runs the migration levels on one parsed file."""

from __future__ import annotations

import dataclasses

import libcst as cst

from staging_tf1.legacy.codemod import level_idiom, level_import
from staging_tf1.legacy.codemod.changes import Changes
from staging_tf1.legacy.source_files import SourceFile


def migrate(source: SourceFile, level: str) -> Changes:
    """Return the changes of one file at a level: "import" or "idiom", which includes "import". Nothing is written."""
    changes = level_import.migrate(source)
    if level == "idiom":
        module, done, left = level_idiom.migrate(cst.parse_module(changes.after), source.text)
        changes.after = module.code
        changes.done += done
        changes.left += left
    return changes


def left_in_the_result(source: SourceFile, changes: Changes, level: str) -> Changes:
    """Return `changes` with the line numbers of `left` in the new text, for use after it is written."""
    again = dataclasses.replace(source, text=changes.after)
    return dataclasses.replace(changes, left=migrate(again, level).left)
