"""Helpers for the commands: one-line error messages, numbers with bounds, programs to run, and paths of files."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Collection, Sequence
from typing import Any, NoReturn, TypeVar

from staging_tf1.arguments import close_to, in_range, number_in, path, shown

_Number = TypeVar("_Number", int, float)


class OneLineParser(argparse.ArgumentParser):
    """An ArgumentParser that reports errors in one line, without the usage, and prints description and epilog as is."""

    def __init__(self, **kwargs: Any) -> None:
        # An abbreviation could become ambiguous when a later version adds a flag.
        super().__init__(allow_abbrev=False, formatter_class=argparse.RawDescriptionHelpFormatter, **kwargs)

    def error(self, message: str) -> NoReturn:
        """Print `message` on stderr and exit with 2."""
        before, _, unknown = message.partition("unrecognized arguments: --")
        if not before and unknown:
            # Without the dashes, which make all short options alike.
            options = [option[2:] for option in self._option_string_actions if option.startswith("--")]
            hint = close_to(unknown.split()[0].partition("=")[0], options).replace("mean '", "mean '--")
            message += f".{hint}" if hint else ""
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

    return _number(int, "a whole number", least, most)


def seconds(most: int) -> Callable[[str], float]:
    """Return a `type` for flags: a number of seconds from 0 to `most`.

    >>> seconds(60)("2.5")
    2.5
    >>> seconds(60)("nan")
    Traceback (most recent call last):
    argparse.ArgumentTypeError: got 'nan', expected a number of seconds from 0 to 60
    """

    return _number(float, "a number of seconds", 0, most)


def _number(kind: type[_Number], name: str, least: int, most: int) -> Callable[[str], _Number]:
    def parse(text: str) -> _Number:
        number = number_in(text, kind, least, most)
        if number is None:
            raise argparse.ArgumentTypeError(f"got {shown(text)}, expected {name} {in_range(least, most)}")
        return number

    return parse


def local_path(text: str) -> str:
    """Check the path of a file to read: a `type` for flags.

    >>> local_path("s3://bucket/x")
    Traceback (most recent call last):
    argparse.ArgumentTypeError: got path='s3://bucket/x', expected a path of this machine, without 's3:'. ...
    """
    try:
        return path("", "path", text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error).strip()) from None


def split_program(argv: Sequence[str], take_a_value: Collection[str]) -> tuple[list[str], list[str]]:
    """Split the arguments of a command that runs a program into its own and the program's.

    The program begins after the first `--`, or else with `-m` or the first word that is not a flag. `take_a_value` are
    the flags that are followed by a value.

    >>> split_program(["--steps", "2", "train.py", "--", "x"], ["--steps"])
    (['--steps', '2'], ['train.py', '--', 'x'])
    >>> split_program(["--fast", "--", "--odd-name"], [])
    (['--fast'], ['--odd-name'])
    """
    index = 0
    while index < len(argv):
        word = argv[index]
        if word == "--":
            return list(argv[:index]), list(argv[index + 1 :])
        if word == "-m" or not word.startswith("-"):
            return list(argv[:index]), list(argv[index:])
        index += 2 if word in take_a_value else 1
    return list(argv), []


def parser_for_python_files(prog: str, description: str, epilog: str) -> argparse.ArgumentParser:
    """Return a parser that takes files and folders."""
    parser = OneLineParser(prog=prog, description=description, epilog=epilog)
    parser.add_argument("paths", nargs="+", metavar="PATH", help="a Python file or a folder")
    return parser
