"""Runs the migration levels on one parsed file."""

from __future__ import annotations

import dataclasses

import libcst as cst

from staging_tf1.legacy.codemod import level_idiom, level_import
from staging_tf1.legacy.codemod.changes import Changes, Note
from staging_tf1.legacy.source_files import SourceFile

_OVER_CELLS = "a block would span several cells: move the session and its loop into one cell"
_OF_TENSORFLOW_1 = ("%tensorflow_version 1", "%load_ext staging_tf1")


def migrate(source: SourceFile, level: str) -> Changes:
    """Return the changes of one file at a level: "import" or "idiom", which includes "import". Nothing is written."""
    changes = level_import.migrate(source)
    if level == "idiom":
        module, done, left = level_idiom.migrate(cst.parse_module(changes.after), source.text)
        if source.notebook is not None and not source.notebook.keeps_cells(module.code):
            left = [Note(done[0].line, "the pipeline stays hand-written", _OVER_CELLS)]
        else:
            changes.after = module.code
            changes.done += done
        changes.left += left
    if source.notebook is not None:
        changes.left += [
            Note(line, words, "remove it: the code imports tensorflow.compat.v1 now")
            for line, words in source.notebook.magics(source.text)
            if words.startswith(_OF_TENSORFLOW_1)
        ]
        changes.notebook = source.notebook
        changes.done, changes.left = _placed(changes.done, source), _placed(changes.left, source)
    return changes


def _placed(notes: list[Note], source: SourceFile) -> list[Note]:
    places = [source.place(note.line) for note in notes]
    return [dataclasses.replace(note, cell=cell, line=line) for note, (cell, line) in zip(notes, places)]


def left_in_the_result(source: SourceFile, changes: Changes, level: str) -> Changes:
    """Return `changes` with the line numbers of `left` in the new text, for use after it is written."""
    again = dataclasses.replace(source, text=changes.after)
    return dataclasses.replace(changes, left=migrate(again, level).left)
