"""Prints the batches and figures of many workflows as JSON: `python deterministic_child.py WHAT FOLDER NAME...`.

WHAT is "ordinary"; "deterministic", with deterministic ops; "late" or "unseeded", for the errors of graphs that do not
suit deterministic ops. The names are those of workflows; without one, it runs all.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf2
import tensorflow.compat.v1 as tf

import staging_tf1 as staging

STEPS = 6
Figures = dict[str, Any]


def source() -> Any:
    """60 records in batches of 4."""
    return staging.sources.ArraySource({"id": np.arange(60)}, batch_size=4, shuffle=True, seed=3)


def stream() -> Iterator[Any]:
    """The same numbers as a stream."""
    for number in range(15):
        yield {"id": np.arange(4 * number, 4 * number + 4)}


def train(fetches: Any, folder: Path, **options: Any) -> Figures:
    """Run `STEPS` steps, restore the checkpoint, and run as many again. Return batches, positions and figures."""
    got: list[Any] = []
    step = tf.train.get_or_create_global_step().assign_add(1)
    positions = [each for each in tf.global_variables() if each.op.name.endswith("position")]
    for _ in range(2):
        with staging.StagingSession(checkpoint_dir=str(folder), **options) as sess:
            for _ in range(STEPS):
                got.append(sess.run([fetches, step])[0])
            where = [np.asarray(sess.run(each)).tolist() for each in positions]
            stats = sess.stats()
    return {"batches": _lists(got), "positions": where, **_figures(stats)}


def _figures(stats: Any) -> Figures:
    return {
        "counts": [each.batches for each in stats],
        "wait_secs": [each.wait_secs for each in stats],
        "waited_share": [each.waited_share for each in stats],
        "verdicts": [each.verdict for each in stats],
        "texts": list(map(str, stats)),
    }


def _lists(found: Any) -> Any:
    return tf.nest.map_structure(lambda each: np.asarray(each).tolist(), found)


def staged(values: Any = None, **options: Any) -> Any:
    return staging.staged(source() if values is None else values, name="train", **options)


def queued(**options: Any) -> Any:
    return staging.CustomRunner(source(), name="train", **options).get_inputs()


def shuffled_dataset() -> Any:
    tf.set_random_seed(5)
    return tf.data.Dataset.range(60).shuffle(60, seed=3).map(lambda x: {"id": x}).batch(4).repeat()


# Ways to feed: each makes the batches of a step.
FEEDS: dict[str, Callable[[], Any]] = {
    "staged": staged,
    "lockstep": lambda: staged(lockstep=True),
    "several_threads": lambda: staged(num_threads=3),
    "processes": lambda: staged(num_processes=1),
    "towers": lambda: staged(devices=["/cpu:0", "/cpu:0"]),
    "of_stream": lambda: staged(staging.sources.GeneratorSource(stream, spec={"id": tf.TensorSpec([4], tf.int64)})),
    "of_dataset": lambda: staged(shuffled_dataset()),
    "of_tensors": lambda: staged({"id": tf.random.uniform([4], seed=7, maxval=100, dtype=tf.int32)}),
    "queue": lambda: queued(queue="fifo"),
    "shuffle": lambda: queued(queue="shuffle", seed=9, batch_size=4),
}


def chained(folder: Path) -> Figures:
    """A queue, and an area behind it."""
    made = staging.CustomRunner(source(), queue="fifo", name="queue").get_inputs()
    figures = train(staged(made), folder)
    # How far the area has read ahead from the queue is a matter of time.
    figures["counts"] = figures["counts"][1:]
    return figures


def classic(folder: Path) -> Figures:
    """An area of TensorFlow's kind, stepped by hand."""
    made = staging.CustomRunner(source(), queue="fifo", name="queue").get_inputs()
    area = staging.StagingArea([tf.int64], shapes=[[4]])
    put, get = area.put([made["id"]]), area.get()
    with staging.StagingSession() as sess:
        sess.run(put)
        return {"batches": _lists([sess.run([get, put])[0] for _ in range(STEPS)])}


def plain(folder: Path) -> Figures:
    """A plain session, and a callable."""
    batch = staged()
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        coord = tf.train.Coordinator()
        threads = staging.start(sess, coord)
        call = sess.make_callable(batch["id"])
        got = [call() for _ in range(STEPS)]
        coord.request_stop()
        coord.join(threads)
    return {"batches": _lists(got)}


def monitored(folder: Path) -> Figures:
    """A MonitoredTrainingSession, whose summaries are read again."""
    tf.train.get_or_create_global_step()
    batch = staged()
    logs = folder / "logs"
    hooks = [staging.StagingHook(), staging.StagingSummaryHook(output_dir=str(logs), save_steps=2)]
    with tf.train.MonitoredTrainingSession(hooks=hooks) as sess:
        got = [sess.run(batch) for _ in range(STEPS)]
    events = [event for path in logs.iterdir() for event in tf.train.summary_iterator(str(path))]
    tags = sorted({value.tag for event in events for value in event.summary.value})
    return {"batches": _lists(got), "tags": tags}


def cluster_of_one(folder: Path) -> Figures:
    """A cluster without other tasks."""
    cluster = staging.Cluster()
    with cluster.device_scope():
        batch = staged(cluster=cluster)
    return train(batch, folder, cluster=cluster)


def example(folder: Path) -> Figures:
    """What `staging-tf1 train` runs."""
    from staging_tf1.cli.train import train as fit
    from staging_tf1.data import load_images

    result = fit(load_images(), epochs=1)
    return {
        "batches": [f"{loss:.3f}" for loss in result.losses],
        "wait_secs": [each.wait_secs for each in result.pipelines],
        "waited_share": [each.waited_share for each in result.pipelines],
    }


WORKFLOWS: dict[str, Callable[[Path], Figures]] = {
    **{name: lambda folder, make=make: train(make(), folder) for name, make in FEEDS.items()},
    **{each.__name__: each for each in (chained, classic, plain, monitored, cluster_of_one, example)},
}


def late() -> list[str]:
    """Deterministic ops are enabled when the graph is complete."""

    made = []
    for name in ("queue", "staged", "lockstep"):
        with tf.Graph().as_default() as graph:
            made.append((graph, FEEDS[name]()))
    tf2.config.experimental.enable_op_determinism()
    errors = []
    for graph, batch in made:
        with graph.as_default():
            errors.append(_error(partial(_step, batch)))
    with made[0][0].as_default(), tf.Session() as sess:
        errors.append(_error(lambda: staging.start(sess, tf.train.Coordinator())))
    return errors


def _step(batch: Any) -> None:
    with staging.StagingSession() as sess:
        sess.run(batch)


def _error(call: Callable[[], Any]) -> str:
    try:
        call()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "none"


def unseeded() -> list[Any]:
    """A shuffle queue without a seed: its error, the ops that it made, and the error with a seed in the graph."""
    tf2.config.experimental.enable_op_determinism()

    def build() -> Any:
        return staging.CustomRunner(source(), queue="shuffle", name="train")

    with tf.Graph().as_default() as graph:
        error = _error(build)
        ops = len(graph.get_operations())
        tf.set_random_seed(1)
        return [error, ops, _error(build)]


def main(what: str, folder: str, *names: str) -> None:
    """Print what is asked for: of each workflow, or of the named ones, in a graph of its own."""
    if what in ("late", "unseeded"):
        print(json.dumps({"late": late, "unseeded": unseeded}[what]()))
        return
    if what == "deterministic":
        tf2.config.experimental.enable_op_determinism()
    found = {}
    for name, workflow in WORKFLOWS.items():
        if name in names or not names:
            (own := Path(folder, name)).mkdir(parents=True)
            with tf.Graph().as_default():
                found[name] = workflow(own)
    print(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
