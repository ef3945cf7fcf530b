"""What the commands that read Python source have in common: their paths, and the package that they parse with."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from staging_tf1.cli.arguments import OneLineParser, complain


def parser_for_python_files(prog: str, description: str, epilog: str) -> argparse.ArgumentParser:
    """A parser that takes files and folders; `epilog` is shown as it is written."""
    made = OneLineParser(
        prog=prog, description=description, epilog=epilog, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    made.add_argument("paths", nargs="+", metavar="PATH", help="a Python file, or a folder of them")
    return made


@contextmanager
def needing_libcst(prog: str) -> Iterator[None]:
    """Around the imports of what parses: where LibCST is missing, an extra, says so in one line and exits with 2."""
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name != "libcst":
            raise
        complain(prog, "needs LibCST: pip install 'staging-tf1[legacy]'")
        sys.exit(2)
