"""``staging-tf1 migrate``: rewrites TF1 source code that then runs without the shim."""

from __future__ import annotations

import argparse
import difflib
import json
from typing import Any

from staging_tf1.cli.arguments import complain, parser_for_python_files
from staging_tf1.legacy import source_files
from staging_tf1.legacy.codemod import migration
from staging_tf1.legacy.source_files import counted
from staging_tf1.progress import with_progress

_PROG = "staging-tf1 migrate"
_EPILOG = """
TensorFlow's own tf_upgrade_v2 renames what moved within TensorFlow, but does not migrate tf.contrib. This tool keeps
the TF1 names by importing tensorflow.compat.v1, and rewrites tf.contrib.staging and the other parts of tf.contrib that
have a new home. It may run before or after tf_upgrade_v2.

Nothing is written without --write. Without --diff and --write only the summary is printed.
exit code: 0 nothing left to do, 1 something is left to do by hand, 2 a file could not be read or written.

example:
  staging-tf1 migrate train.py --diff
  staging-tf1 migrate models/ train.py --write --report report.json
"""


def make_parser() -> argparse.ArgumentParser:
    """Return the parser of ``migrate``."""
    parser = parser_for_python_files(
        _PROG,
        "Rewrites imports and calls to use staging_tf1 and tensorflow.compat.v1. Keeps comments and formatting, and "
        "lists what it does not recognise.",
        _EPILOG,
    )
    mode = parser.add_mutually_exclusive_group()
    mode.add_argument("--diff", action="store_true", help="print the changes")
    mode.add_argument("--write", action="store_true", help="change the files")
    parser.add_argument("--report", metavar="FILE", help="write the changes made and the changes left, as JSON")
    return parser


def main(argv: list[str]) -> int:
    """Migrate the given files and folders. The exit code is as in `_EPILOG`."""
    options = make_parser().parse_args(argv)
    results = []
    unreadable: list[str] = []
    paths = list(source_files.find(options.paths))
    for path in with_progress(paths, len(paths), "migrate"):
        try:
            if isinstance(path, source_files.UnreadableError):
                raise path
            source = source_files.read(path)
            changes = migration.migrate(source)
            if options.write and changes.changed:
                source_files.overwrite(path, changes.after.encode(source.encoding))
                if changes.left:
                    changes = migration.left_in_the_result(source, changes)
            results.append(changes)
        except source_files.UnreadableError as error:
            unreadable.append(str(error))
            complain(_PROG, error)
    _print(results, options)
    if options.report:
        try:
            source_files.create(options.report, _report(results, unreadable, options).encode())
        except source_files.UnreadableError as error:
            complain(_PROG, error)
            return 2
    return 2 if unreadable else int(any(changes.left for changes in results))


def _print(results: list[Any], options: argparse.Namespace) -> None:
    for changes in results:
        if options.diff:
            before, after = changes.before.splitlines(keepends=True), changes.after.splitlines(keepends=True)
            print("".join(difflib.unified_diff(before, after, changes.path, changes.path)), end="")
        for note in changes.left:
            print(f"{changes.path}:{note.line}: left: {note.text}: {note.advice}")
    changed = [changes for changes in results if changes.changed]
    edits = sum(len(changes.done) for changes in changed)
    left = sum(len(changes.left) for changes in results)
    verb = "changed" if options.write else "would be changed"
    print(
        f"{counted(len(results), 'file')} read, {len(changed)} {verb}, {counted(edits, 'change')}, "
        f"{counted(left, 'thing')} left to do by hand"
    )


def _report(results: list[Any], unreadable: list[str], options: argparse.Namespace) -> str:
    files = [
        {
            "path": changes.path,
            "changed": changes.changed,
            "changes": [{"line": note.line, "what": note.text} for note in changes.done],
            "left": [{"line": note.line, "what": note.text, "do": note.advice} for note in changes.left],
        }
        for changes in results
    ]
    report = {"written": options.write, "files": files, "unreadable": unreadable}
    return json.dumps(report, indent=1) + "\n"
