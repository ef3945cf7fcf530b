"""Runs a program of the lab with the same random numbers under every TensorFlow.

Usage: python seeded.py [-m] PROGRAM ARGUMENTS... ; with -m, PROGRAM is the name of a module.
It must also run on Python 3.7, for TensorFlow 1.15.5.

Initial values, dropout and shuffles come from ops whose seed TensorFlow derives from the number of ops, and programs
set no graph seed. Here the seed of such an op comes from its name scope, which all releases share. Orthogonal initial
values come from numpy.linalg.svd, whose vectors have other signs in each release of LAPACK. Here the signs are fixed.
"""

from __future__ import annotations

import collections
import importlib
import os
import random
import runpy
import sys
import time
import zlib

# The environment variable with the file for the time of each run.
RUNS = "LAB_RUNS"
# The one with the modules that left tf.contrib before 1.15.5, such as "gan=tensorflow_gan".
EARLIER = "LAB_EARLIER"


def same_seeds():
    """Replace `get_seed` of TensorFlow, which every random op and dataset calls."""
    from tensorflow.python.framework import ops, random_seed

    used = collections.Counter()

    def get_seed(op_seed):
        graph = ops.get_default_graph()
        graph_seed = getattr(graph, "seed", None)
        if op_seed is None:
            scope = graph.get_name_scope()
            used[id(graph), scope] += 1
            op_seed = zlib.crc32(f"{scope}:{used[id(graph), scope]}".encode()) & 0x7FFFFFFF
        return (1 if graph_seed is None else graph_seed), op_seed

    random_seed.get_seed = get_seed


def same_signs(numpy):
    """Replace numpy.linalg.svd by one that makes the largest component of each right vector positive."""
    genuine = numpy.linalg.svd

    def svd(a, full_matrices=True, compute_uv=True, **how):
        found = genuine(a, full_matrices, compute_uv, **how)
        if not compute_uv or numpy.ndim(a) != 2:
            return found
        left, values, right = (numpy.array(each) for each in found)
        largest = numpy.argmax(numpy.abs(right), axis=1)
        signs = numpy.where(right[numpy.arange(len(right)), largest] < 0, -1, 1).astype(right.dtype)
        right *= signs[:, None]
        count = min(left.shape[1], len(signs))
        left[:, :count] *= signs[:count]
        return type(found)([left, values, right]) if type(found) is tuple else type(found)(left, values, right)

    numpy.linalg.svd = svd


def note_runs(path):
    """Append a line to the file whenever a `Session.run` of the program ends: the clock, in seconds."""
    from tensorflow.python.client import session

    genuine = session.BaseSession.run
    file = open(path, "a", 1)  # noqa: SIM115 - until the process ends, or is killed

    def run(self, *args, **kwargs):
        try:
            return genuine(self, *args, **kwargs)
        finally:
            if sys._getframe(1).f_code.co_name != "run_unwrapped":  # the package's own runs
                file.write(f"{time.perf_counter()!r}\n")

    session.BaseSession.run = run


def earlier_modules(pairs):
    """Give TensorFlow 1.15.5 the modules that its own releases before had, so that a program of their time runs."""
    import tensorflow as tf

    for name, home in (pair.split("=") for pair in pairs.split()):
        full = "tensorflow.contrib." + name
        sys.modules[full] = importlib.import_module(home)
        parent, _, last = full.rpartition(".")
        setattr(importlib.import_module(parent), last, sys.modules[full])
        if "." not in name:
            setattr(tf.contrib, name, sys.modules[full])


def main():
    as_module = sys.argv[1] == "-m"
    sys.argv = sys.argv[2 if as_module else 1 :]
    same_seeds()
    if "staging_tf1" not in sys.modules:
        earlier_modules(os.environ.get(EARLIER, ""))
    if RUNS in os.environ:
        note_runs(os.environ[RUNS])
    import numpy

    same_signs(numpy)
    # After the imports, which draw numbers, too.
    random.seed(1)
    numpy.random.seed(1)
    if as_module:
        sys.path[0] = os.getcwd()
        runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
    else:
        sys.path[0] = os.path.dirname(os.path.abspath(sys.argv[0]))
        runpy.run_path(sys.argv[0], run_name="__main__")


if __name__ == "__main__":
    main()
