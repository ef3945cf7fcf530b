"""``staging-tf1 run``: an old program, unmodified."""

from __future__ import annotations

import argparse
import importlib.util
import os

from staging_tf1.cli.arguments import OneLineParser, complain
from staging_tf1.legacy.launch import launch
from staging_tf1.legacy.settings import CLAIMED_VERSION, Settings

_EPILOG = """
example:
  staging-tf1 run train.py --data digits.npz
  staging-tf1 run --package my_models -m my_models.train -- --steps 100
"""
_TAKES_A_VALUE = ("--package",)


def parser() -> argparse.ArgumentParser:
    """The options of ``run``; what follows them is the program's."""
    made = OneLineParser(
        prog="staging-tf1 run",
        usage="staging-tf1 run [options] [--] script.py args...\n       staging-tf1 run [options] -m module args...",
        description="Runs a TensorFlow 1 program on this TensorFlow: tf.Session, tf.contrib.staging and the rest "
        "are there for the program's own code, while installed libraries go on seeing TensorFlow 2.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    made.add_argument(
        "--package",
        action="append",
        default=[],
        metavar="NAME",
        help="an installed package that sees TF1 too",
    )
    made.add_argument(
        "--claim-version", action="store_true", help=f"tf.__version__ says {CLAIMED_VERSION} to the program"
    )
    made.add_argument(
        "--no-old-names",
        action="store_true",
        help="do not offer np.object, inspect.getargspec, collections.Mapping and other removed names",
    )
    return made


def main(argv: list[str]) -> int:
    """Runs the program in place of this process; returns only where there is nothing to run.

    Args:
      argv: the words after ``run``.
    """
    ours, program = _split(argv)
    options = parser().parse_args(ours)
    packages = list(options.package)
    if not program:
        parser().error("name a script, or -m and a module")
    if program[0] == "-m":
        if len(program) == 1:
            parser().error("-m needs the name of a module")
        packages.append(program[1].partition(".")[0])
    elif not os.path.exists(program[0]):
        complain("staging-tf1 run", f"there is no file {program[0]!r}")
        return 2
    if importlib.util.find_spec("tensorflow") is None:
        complain("staging-tf1 run", "TensorFlow is not installed beside staging_tf1")
        return 2
    launch(program, Settings(tuple(sorted(packages)), options.claim_version, not options.no_old_names))


def _split(argv: list[str]) -> tuple[list[str], list[str]]:
    index = 0
    while index < len(argv):
        word = argv[index]
        if word == "--":
            return argv[:index], argv[index + 1 :]
        if word == "-m" or not word.startswith("-"):
            return argv[:index], argv[index:]
        index += 2 if word in _TAKES_A_VALUE else 1
    return argv, []
