"""Started with -m in a folder that is not installed."""
from __future__ import print_function

import sys

from absl import app, flags

from . import model

flags.DEFINE_integer("steps", 1, "Steps to run.")


def main(argv):
    print(argv[1:], flags.FLAGS.steps, __name__, __package__, sys.argv[0].endswith("train.py"), model.NAME)
    return 5


if __name__ == "__main__":
    app.run(main)
