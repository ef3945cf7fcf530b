"""`staging-tf1 completion`: prints a script with which a shell completes the commands, flags and files."""

from __future__ import annotations

import argparse
import importlib
from collections.abc import Mapping
from typing import Any

from staging_tf1.cli.arguments import OneLineParser, complain
from staging_tf1.cli.main import COMMANDS

_PROG = "staging-tf1 completion"
_SHELLS = ("bash", "zsh")
_EPILOG = """
It needs shtab: pip install 'staging-tf1[completion]'.

examples:
  staging-tf1 completion bash > ~/.local/share/bash-completion/completions/staging-tf1
  staging-tf1 completion zsh > ~/.zsh/_staging-tf1    # a folder of $fpath
"""
# The metavars of arguments that are files, and of those that are folders.
_FILES, _FOLDERS = ("FILE", "PATH", "OUT", "DATA"), ("FOLDER",)
# Commands whose arguments are a program and its arguments.
_RUN_A_PROGRAM = ("run", "launch")


def make_parser() -> argparse.ArgumentParser:
    """Return the parser of `completion`."""
    parser = OneLineParser(
        prog=_PROG,
        description="Prints a script with which a shell completes the commands, flags and files of staging-tf1.",
        epilog=_EPILOG,
    )
    parser.add_argument("shell", choices=_SHELLS, help="the shell that reads the script")
    return parser


def main(argv: list[str]) -> int:
    """Print the script. Return 2 if shtab is not installed."""
    options = make_parser().parse_args(argv)
    try:
        import shtab
    except ModuleNotFoundError:
        complain(_PROG, "needs shtab: pip install 'staging-tf1[completion]'")
        return 2
    print(shtab.complete(_whole_parser(shtab.FILE, shtab.DIRECTORY), shell=options.shell))
    return 0


def _whole_parser(file: Mapping[str, Any], folder: Mapping[str, Any]) -> argparse.ArgumentParser:
    """Return one parser of all commands. `file` and `folder` are how shtab marks such an argument."""
    whole = OneLineParser(prog="staging-tf1")
    whole.add_argument("--version", action="store_true", help="print the version")
    commands = whole.add_subparsers(dest="command")
    for name, summary in COMMANDS.items():
        commands.add_parser(name, help=summary)
        command = importlib.import_module(f"staging_tf1.cli.{name}").make_parser()
        if name in _RUN_A_PROGRAM:
            command.add_argument("program", nargs="*", metavar="FILE", help="the program and its arguments")
        commands.choices[name] = command  # the parser of the command itself, with the commands below it
        _mark_paths(command, file, folder)
    return whole


def _mark_paths(command: argparse.ArgumentParser, file: Mapping[str, Any], folder: Mapping[str, Any]) -> None:
    for action in command._actions:
        value = action.metavar if isinstance(action.metavar, str) else ""
        if value.startswith((*_FILES, *_FOLDERS)):
            action.complete = folder if value.startswith(_FOLDERS) else file  # type: ignore[attr-defined]
        if isinstance(action, argparse._SubParsersAction):
            for below in action.choices.values():
                _mark_paths(below, file, folder)
