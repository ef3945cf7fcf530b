"""`staging-tf1 COMMAND ...`: imports the command's module and runs it.

This module must not import TensorFlow: programs started by `staging-tf1 run` set TensorFlow's environment variables
themselves.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Sequence

from staging_tf1 import __version__
from staging_tf1.arguments import close_to
from staging_tf1.cli.arguments import OneLineParser
from staging_tf1.cli.streams import with_streams

# Each command is a module of that name in this package, with `main(argv: list[str]) -> int`.
COMMANDS = {
    "train": "train a small model on handwritten digits",
    "run": "run a TensorFlow 1 program, unmodified",
    "contrib": "fetch tf.contrib of TensorFlow 1.15.5 for such programs",
    "launch": "run a cluster of tasks on this machine",
    "check": "find mistakes in code that uses staging areas and feed threads",
    "migrate": "rewrite TensorFlow 1 code for this package",
    "index": "index record files for random access",
    "cache": "build, show and remove caches of datasets",
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code, 0 on success. Invalid arguments exit with 2; none print the help."""
    given = sys.argv[1:] if argv is None else list(argv)
    prog = f"staging-tf1 {given[0]}" if given and given[0] in COMMANDS else "staging-tf1"
    return with_streams(prog, lambda: _run(given))


def _run(argv: Sequence[str]) -> int:
    parser = make_parser()
    options = parser.parse_args(argv)
    if options.command is None:
        parser.print_help()
        return 0
    if options.command not in COMMANDS:
        hint = close_to(options.command, COMMANDS)
        parser.error(f"got {options.command!r}, expected one of {', '.join(COMMANDS)}{'.' * bool(hint)}{hint}")
    command = importlib.import_module(f"staging_tf1.cli.{options.command}")
    return int(command.main(options.arguments))


def make_parser() -> argparse.ArgumentParser:
    """Return the parser of the arguments before those of the command."""
    width = max(map(len, COMMANDS))
    parser = OneLineParser(
        prog="staging-tf1",
        usage="staging-tf1 COMMAND ...",
        description="The classic StagingArea workflow for graph-mode TensorFlow.",
        epilog="commands:\n"
        + "".join(f"  {name:{width}}  {help_text}\n" for name, help_text in COMMANDS.items())
        + "\nexample:\n  staging-tf1 train --workflow staged\n\nFor help on a command: staging-tf1 COMMAND --help",
    )
    parser.add_argument("--version", action="version", version=f"staging-tf1 {__version__}")
    parser.add_argument("command", metavar="COMMAND", nargs="?", help="one of those below")
    parser.add_argument("arguments", metavar="...", nargs=argparse.REMAINDER, help="the arguments of the command")
    return parser


if __name__ == "__main__":
    sys.exit(main())
