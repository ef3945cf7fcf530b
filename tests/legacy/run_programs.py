"""Runs programs one after the other in this process, each in a graph of its own, and prints what they printed.

Usage: python run_programs.py PROGRAM... ; the last line of output is a JSON object, output by program name.
Runs on Python 3.7 too, where TensorFlow 1.15.5 is.
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
    """What the program at `path` printed; at the end the exception that it died of."""
    printed = io.StringIO()
    sys.argv = [path]
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
