"""``staging-tf1 run``: runs an unmodified TensorFlow 1 program."""

from __future__ import annotations

import argparse
import importlib.util
import os

from staging_tf1.arguments import MOST_SECS
from staging_tf1.cli.arguments import OneLineParser, complain, seconds, split_program
from staging_tf1.legacy.shim.settings import CLAIMED_VERSION, Settings, launch
from staging_tf1.legacy.source_files import why_python_2

_EPILOG = """
example:
  staging-tf1 run train.py --data digits.npz
  staging-tf1 run --stall-secs 30 train.py
  staging-tf1 run --package my_models -m my_models.train -- --steps 100
"""
_TAKE_A_VALUE = ("--package", "--stall-secs")


def make_parser() -> argparse.ArgumentParser:
    """Return the parser of ``run``, for the options before the program."""
    parser = OneLineParser(
        prog="staging-tf1 run",
        usage="staging-tf1 run [options] [--] script.py args...\n       staging-tf1 run [options] -m module args...",
        description="Runs a TensorFlow 1 program on the installed TensorFlow 2. The program's own code sees TensorFlow "
        "1 (tf.Session, tf.contrib.staging and so on); installed libraries still see TensorFlow 2.",
        epilog=_EPILOG,
    )
    parser.add_argument(
        "--package",
        action="append",
        default=[],
        metavar="NAME",
        help="an installed package that also sees TensorFlow 1; may be repeated",
    )
    parser.add_argument(
        "--claim-version", action="store_true", help=f"set tf.__version__ to {CLAIMED_VERSION} for the program"
    )
    parser.add_argument(
        "--no-old-names",
        action="store_true",
        help="do not restore np.object, ndarray.tostring, inspect.getargspec and other removed names, nor the way in "
        "which numpy 1 prints numbers",
    )
    parser.add_argument(
        "--no-compile",
        action="store_true",
        help="let sess.run parse its fetches in each call, as TensorFlow does",
    )
    parser.add_argument(
        "--stall-secs",
        type=seconds(int(MOST_SECS)),
        metavar="SECONDS",
        help="after how many seconds a run of a session that waits for a queue, an area or a barrier is explained on "
        "stderr; 0 is never (default: STAGING_TF1_STALL_SECS, or else 60)",
    )
    return parser


def main(argv: list[str]) -> int:
    """Run the program in place of this process. Return 2 if it cannot be started."""
    ours, program = split_program(argv, _TAKE_A_VALUE)
    options = make_parser().parse_args(ours)
    packages = list(options.package)
    if not program:
        make_parser().error("got no program, expected a script, or -m and a module")
    if program[0] == "-m":
        if len(program) == 1:
            make_parser().error("-m needs the name of a module")
        packages.append(program[1].partition(".")[0])
    elif not os.path.exists(program[0]):
        complain("staging-tf1 run", f"file {program[0]!r} does not exist")
        return 2
    elif (python_2 := why_python_2(program[0])) is not None:
        complain("staging-tf1 run", python_2)
        return 2
    if importlib.util.find_spec("tensorflow") is None:
        complain("staging-tf1 run", "TensorFlow is not installed: pip install tensorflow")
        return 2
    settings = Settings(
        tuple(sorted(packages)),
        options.claim_version,
        old_names=not options.no_old_names,
        compile_runs=not options.no_compile,
        stall_secs=options.stall_secs,
    )
    launch(program, settings)
