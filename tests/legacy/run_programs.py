"""Runs programs in sequence in this process, each in its own graph, and prints their output.

Usage: python run_programs.py PROGRAM... ; the last line of output is a JSON object, output by program name.
It must also run on Python 3.7, for TensorFlow 1.15.5.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import runpy
import sys
import traceback


def run(path):
    """Return the output of the program at `path`, followed by its exception if it raised one."""
    printed = io.StringIO()
    sys.argv = [path]
    sys.path[0] = os.path.dirname(os.path.abspath(path))
    with contextlib.redirect_stdout(printed):
        try:
            runpy.run_path(path, run_name="__main__")
        except SystemExit as ended:  # tf.app.run always exits
            if ended.code:
                printed.write(f"exit code {ended.code}\n")
        except Exception:
            printed.write(traceback.format_exc())
    if "tensorflow" in sys.modules:
        reset()
    return printed.getvalue()


def reset():
    import tensorflow as tf

    tf.compat.v1.reset_default_graph()


if __name__ == "__main__":
    print(json.dumps({os.path.splitext(os.path.basename(path))[0]: run(path) for path in sys.argv[1:]}))
