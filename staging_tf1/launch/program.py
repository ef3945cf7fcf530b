"""Finds the program that each task runs: a Python script, a Python module, or any program."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass

# PYTHONUNBUFFERED, which the tasks also get, is for programs that start Python themselves.
_PYTHON = (sys.executable, "-u")


class ProgramError(ValueError):
    """The program does not exist or cannot be executed."""


@dataclass(frozen=True)
class Program:
    """A command, and the arguments in which placeholders are replaced."""

    command: tuple[str, ...]
    arguments: tuple[str, ...]


def find_program(words: Sequence[str]) -> Program:
    """Return the program that `words` name: `script.py args`, `-m module args` or `program args`.

    Raises:
        ProgramError: there are no words, or no such script or program.
    """
    if not words:
        raise ProgramError("got no program, expected script.py, -m and a module, or a program, after --")
    first, *rest = words
    if first == "-m":
        if not rest:
            raise ProgramError("-m needs the name of a module")
        return Program((*_PYTHON, "-m", rest[0]), tuple(rest[1:]))
    if first.endswith(".py"):
        if not os.path.isfile(first):
            raise ProgramError(f"file {first!r} does not exist; check its path")
        return Program((*_PYTHON, first), tuple(rest))
    return Program((_on_path(first),), tuple(rest))


def _on_path(name: str) -> str:
    # The programs of this Python's environment, such as staging-tf1, are on PATH only while it is activated.
    path = shutil.which(name) or shutil.which(name, path=os.path.dirname(sys.executable))
    if path is None:
        if os.path.isfile(name):
            cure = f"it is not an executable file on PATH; run ./{name} after chmod +x, or name a script with .py"
            raise ProgramError(f"program {name!r} cannot be run: {cure}")
        raise ProgramError(f"program {name!r} was not found on PATH; give its path")
    return path
