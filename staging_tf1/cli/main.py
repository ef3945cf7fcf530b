"""`staging-tf1 COMMAND ...`: finds the command, and nothing else.

It must stay free of TensorFlow: `staging-tf1 run` starts programs that set up TensorFlow's environment
themselves.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Sequence

from staging_tf1 import __version__
from staging_tf1.cli.arguments import OneLineParser

# Each command is the module of that name in this folder, with `main(argv: list[str]) -> int`.
COMMANDS = {
    "train": "train a small model on handwritten digits, through the whole classic workflow",
    "bench": "measure ways to feed a training loop, side by side",
    "run": "run a TensorFlow 1 program, unmodified",
    "check": "find mistakes in code that uses staging areas and feed threads",
    "migrate": "rewrite TensorFlow 1 code for this package",
    "index": "index record files for random access",
}


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command.

    Args:
      argv: the words after `staging-tf1`; those of the process if None.

    Returns:
      The exit code: 0 if all went well, 2 for words that make no sense, else what the command says.
    """
    words = parser()
    options = words.parse_args(argv)
    if options.command not in COMMANDS:
        got = "no command" if options.command is None else repr(options.command)
        words.error(f"got {got}, wanted one of {', '.join(COMMANDS)}")
    command = importlib.import_module(f"staging_tf1.cli.{options.command}")
    return int(command.main(options.arguments))


def parser() -> argparse.ArgumentParser:
    """The words that stand before those of the command."""
    width = max(map(len, COMMANDS))
    made = OneLineParser(
        prog="staging-tf1",
        usage="staging-tf1 COMMAND ...",
        description="The classic StagingArea workflow for graph-mode TensorFlow.",
        epilog="commands:\n"
        + "".join(f"  {name:{width}}  {help_text}\n" for name, help_text in COMMANDS.items())
        + "\nexample:\n  staging-tf1 train --workflow staged\n\nstaging-tf1 COMMAND --help says more.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    made.add_argument("--version", action="version", version=f"staging-tf1 {__version__}")
    made.add_argument("command", metavar="COMMAND", nargs="?", help="one of those below")
    made.add_argument("arguments", metavar="...", nargs=argparse.REMAINDER, help="what the command takes")
    return made


if __name__ == "__main__":
    sys.exit(main())
