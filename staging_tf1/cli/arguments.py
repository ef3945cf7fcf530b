"""Helpers for the flags of the commands: one-line error messages, and numbers with bounds."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable
from typing import Any, NoReturn

from staging_tf1.arguments import in_range, output_file, shown


class OneLineParser(argparse.ArgumentParser):
    """An ArgumentParser that reports errors in one line, without the usage."""

    def __init__(self, **kwargs: Any) -> None:
        # An abbreviation could become ambiguous when a later version adds a flag.
        super().__init__(allow_abbrev=False, **kwargs)

    def error(self, message: str) -> NoReturn:
        """Print `message` on stderr and exit with 2."""
        complain(self.prog, f"{message} (see {self.prog} --help)")
        sys.exit(2)


def complain(prog: str, message: object) -> None:
    """Print `message` on stderr as one line that starts with the name of the command."""
    print(f"{prog}: {' '.join(str(message).split())}", file=sys.stderr)


def whole_number(least: int, most: int) -> Callable[[str], int]:
    """Return a `type` for flags: a whole number from `least` to `most`.

    >>> whole_number(1, 256)("32")
    32
    >>> whole_number(1, 256)("0")
    Traceback (most recent call last):
    argparse.ArgumentTypeError: got '0', expected a whole number from 1 to 256
    """

    def parse(text: str) -> int:
        message = f"got {shown(text)}, expected a whole number {in_range(least, most)}"
        try:
            number = int(text)
        except ValueError:
            raise argparse.ArgumentTypeError(message) from None
        if not least <= number <= most:
            raise argparse.ArgumentTypeError(message)
        return number

    return parse


def problem_of_output(flag: str, path: str) -> str | None:
    """Return why the file named by a flag cannot be written; None if it can."""
    try:
        output_file(flag, "path", path)
    except OSError as error:
        return f"{flag} {path!r} cannot be written: {os.strerror(error.errno or 0)}."
    except ValueError as error:
        return str(error)
    return None
