"""How long `auto_stage()` takes to analyze a graph, and what it gains where the input waits.

    python benchmarks/auto_stage.py            # an analysis of 10,000 and of 100,000 ops, and the gain
    python benchmarks/auto_stage.py 10000      # an analysis alone, of so many ops
    python benchmarks/auto_stage.py --gain     # the gain alone
    python benchmarks/auto_stage.py --quick    # a small graph and few steps, to check that it runs

Of the analyzed graph a part prepares the input, column by column; the rest is the model and its gradients. The seconds
are those of a dry run, with the graph built before, in the CPU time of the process.

For the gain, an input waits 20 ms for each batch, beside a step that waits as long: unstaged, with `staged()` by hand,
and with `auto_stage()`, in turns within one process.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
import tensorflow.compat.v1 as tf

import staging_tf1 as staging


def build(ops: int) -> None:
    """Add a graph of at least `ops` ops to the default graph, with a train op in its collection."""
    graph = tf.get_default_graph()
    data = tf.data.Dataset.range(1000).batch(8)
    numbers = tf.cast(tf.data.make_one_shot_iterator(data).get_next(), tf.float32)
    columns, weights = [], tf.get_variable("w", initializer=1.0, use_resource=True)
    while len(graph.get_operations()) < 0.17 * ops:
        column = numbers
        for _ in range(5):
            column = tf.clip_by_value(tf.log1p(tf.abs(column)) + 1.0, 0.0, 9.0)
        columns.append(column * weights)
    depth = 0
    hidden = columns[0]
    while len(graph.get_operations()) < 0.3 * ops:
        hidden = tf.tanh(hidden + columns[depth % len(columns)] * weights)
        depth += 1
    loss = tf.reduce_mean(hidden + tf.add_n(columns))
    tf.train.GradientDescentOptimizer(0.1).minimize(loss)


def measured(ops: int) -> tuple[int, int, float]:
    """Return the number of ops of a graph, how many of them would run ahead, and the seconds of the analysis."""
    with tf.Graph().as_default():
        # The first call also imports the package.
        build(100)
        staging.auto_stage(dry_run=True)
    with tf.Graph().as_default() as graph:
        build(ops)
        began = time.process_time()
        report = staging.auto_stage(dry_run=True)
        return len(graph.get_operations()), len(report.moved), time.process_time() - began


WAYS = ("unstaged", "staged() by hand", "auto_stage()")


def gain(steps: int = 50, rounds: int = 3) -> dict[str, float]:
    """Return the milliseconds of a step, for each of `WAYS`: the medians of some rounds."""
    found: dict[str, list[float]] = {way: [] for way in WAYS}
    for _ in range(rounds):
        for way in WAYS:
            found[way].append(_step_ms(way, steps))
    return {way: statistics.median(each) for way, each in found.items()}


def _step_ms(way: str, steps: int) -> float:
    def load() -> Any:
        time.sleep(0.02)
        return np.ones([8, 4], np.float32)

    def work(value: Any) -> Any:
        time.sleep(0.02)
        return value

    with tf.Graph().as_default():
        raw = tf.py_func(load, [], tf.float32)
        raw.set_shape([8, 4])
        x = tf.log1p(raw)
        if way == "staged() by hand":
            x = staging.staged(x)
        w = tf.get_variable("w", [4, 1], initializer=tf.ones_initializer(), use_resource=True)
        loss = tf.reduce_mean(tf.square(tf.matmul(x, w)))
        worked = tf.py_func(work, [loss], tf.float32)
        train = tf.train.GradientDescentOptimizer(1e-3).minimize(loss)
        if way == "auto_stage()":
            staging.auto_stage()
        with staging.StagingSession() as sess:
            for step in range(steps + 5):
                if step == 5:
                    began = time.perf_counter()
                sess.run([worked, train])
            return 1000 * (time.perf_counter() - began) / steps


def main() -> None:
    """Print a row for each size of a graph, and one for each way to feed a step."""
    flags = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    flags.add_argument("sizes", nargs="*", type=int, metavar="OPS", help="numbers of ops of the graphs to analyze")
    flags.add_argument("--gain", action="store_true", help="measure only the gain")
    flags.add_argument("--quick", action="store_true", help="a small graph and few steps")
    options = flags.parse_args()
    if not options.gain:
        _print_analyses(options.sizes or ([1000] if options.quick else [10_000, 100_000]))
    if options.gain or not options.sizes:
        for way, step_ms in (gain(5, 1) if options.quick else gain()).items():
            print(f"{way:20} {step_ms:6.1f} ms a step")


def _print_analyses(sizes: list[int]) -> None:
    print(f"{'ops':>8} {'run ahead':>10} {'seconds':>8}")
    for size in sizes:
        ops, moved, secs = measured(size)
        print(f"{ops:8,} {moved:10,} {secs:8.2f}")


if __name__ == "__main__":
    main()
