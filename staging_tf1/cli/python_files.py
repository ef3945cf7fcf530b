"""Helpers for the commands that read Python source: their path arguments, and the check for LibCST."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from staging_tf1.cli.arguments import OneLineParser, complain


def parser_for_python_files(prog: str, description: str, epilog: str) -> argparse.ArgumentParser:
    """Return a parser that takes files and folders. `epilog` is printed verbatim."""
    made = OneLineParser(
        prog=prog, description=description, epilog=epilog, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    made.add_argument("paths", nargs="+", metavar="PATH", help="a Python file or a folder")
    return made


@contextmanager
def needing_libcst(prog: str) -> Iterator[None]:
    """Guard the imports of modules that need LibCST, an extra: if it is missing, report it and exit with 2."""
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name != "libcst":
            raise
        complain(prog, "needs LibCST: pip install 'staging-tf1[legacy]'")
        sys.exit(2)
