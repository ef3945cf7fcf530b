"""Runs that resume from the checkpoint of the run before them, and what they read."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow.compat.v1 as tf
from once import Reading, Stream
from once_records import as_is
from pipelines import BrokenDiskError, Numbers

import staging_tf1 as staging

TOWERS = ["/cpu:0", "/cpu:0"]
COUNT = 20
# For one tower and for each of two: the first, the last, single ones, several in a row, equally many good ones.
BAD = frozenset({0, 1, 4, 6, 9, 11, 12, 13, 18, 19})
GOOD = [number for number in range(COUNT) if number not in BAD]


def is_bad(batch: Any) -> bool:
    return int(np.ravel(batch)[0]) in BAD


def broken(batch: Any) -> Any:
    """Return a batch of numbers; raise at a bad one."""
    if is_bad(batch):
        raise BrokenDiskError(f"no batch {batch}")
    return batch


def bad_numbers() -> Numbers:
    """A source of records that raises at the bad ones."""

    def trouble(number: int, batch: Any) -> Any:
        broken(number)
        return batch

    return Numbers(COUNT, trouble)


class Counting(Stream):
    """A stream of numbers, which notes those that it reads. Without a state it reads from the beginning."""

    def __init__(self, check: Callable[[Any], Any] = as_is) -> None:
        super().__init__(COUNT, check)
        self.read: list[int] = []
        self._begins: dict[int, int] = {}

    def batches(self, start: int = 0) -> Iterator[Any]:
        return Reading(self._numbers(self._begins.get(start, 0), start), self._check)

    def _numbers(self, first: int, start: int) -> Iterator[int]:
        for number in range(first, self._count):
            self.read.append(number)
            if number >= start:
                yield number

    def state(self, position: int) -> bytes:
        return b"next=%d" % position

    def restore(self, position: int, state: bytes) -> None:
        self._begins[position] = int(state.removeprefix(b"next="))


def resumed_steps(folder: Path | None, values: Any, count: int | None, **options: Any) -> list[list[list[Any]]]:
    """Return the batch of each tower in each of `count` common steps, or of all, in a new session.

    It restores the checkpoint in `folder`, if there is one, and saves another at its end. `values` may be a function
    that makes them in the new graph. Of a dict, the component `id` is returned. `options` are those of `staged()`.
    """
    got: list[list[list[Any]]] = []
    # A short interval would write each step's checkpoint, and the graph as text takes long to write.
    quiet = dict(save_checkpoint_steps=1000, save_summaries_steps=0, log_step_count_steps=0, save_graph_def=False)
    with tf.Graph().as_default():
        staged = staging.staged(values() if callable(values) else values, **options)
        towers = staged if isinstance(staged, list) else [staged]
        parts = [tower["id"] if isinstance(tower, dict) else tower for tower in towers]
        train = tf.assign_add(tf.train.get_or_create_global_step(), 1)
        with staging.StagingSession(checkpoint_dir=folder and str(folder), **quiet) as sess:
            while not sess.should_stop() and len(got) != count:
                got.append([batch.tolist() for batch in sess.run([*parts, train])[:-1]])
    return got


@contextmanager
def plain(folder: Path, saver: Any = None) -> Iterator[Any]:
    """A session by hand, with `start()` and a saver: it restores the last checkpoint in `folder`, and saves another."""
    step = tf.train.get_or_create_global_step()
    saver = tf.train.Saver() if saver is None else saver
    with tf.Session() as sess:
        latest = tf.train.latest_checkpoint(str(folder))
        if latest is None:
            sess.run(tf.global_variables_initializer())
        else:
            saver.restore(sess, latest)
        coord = tf.train.Coordinator()
        threads = staging.start(sess, coord)
        yield sess
        saver.save(sess, str(folder / "model.ckpt"), global_step=step)
        coord.request_stop()
        coord.join(threads, stop_grace_period_secs=60)
