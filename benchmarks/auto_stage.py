"""How long `auto_stage()` takes to analyze a graph: `python benchmarks/auto_stage.py [ops ...]`.

A third of the ops prepares the input, column by column, a third is the model, and a third its gradients. The seconds
are those of a dry run, with the graph built before, in the CPU time of the process.
"""

from __future__ import annotations

import os
import sys
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import tensorflow.compat.v1 as tf

import staging_tf1 as staging


def build(ops: int) -> None:
    """Adds a graph of at least `ops` ops to the default graph, with a train op in its collection."""
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
    """Returns the number of ops of a graph, how many of them would run ahead, and the seconds of the analysis."""
    with tf.Graph().as_default() as graph:
        build(ops)
        began = time.process_time()
        report = staging.auto_stage(dry_run=True)
        return len(graph.get_operations()), len(report.moved), time.process_time() - began


def main(sizes: list[int]) -> None:
    """Prints a row for each size."""
    print(f"{'ops':>8} {'run ahead':>10} {'seconds':>8}")
    for size in sizes:
        ops, moved, secs = measured(size)
        print(f"{ops:8,} {moved:10,} {secs:8.2f}")


if __name__ == "__main__":
    main([int(each) for each in sys.argv[1:]] or [10_000, 100_000])
