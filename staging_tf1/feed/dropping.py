"""Brings an input that the graph computes, and that has bad batches, to the place where a restored run goes on.

A bad batch has no number there, so the position counts the good ones. Computing them again, one at a time, is the only
way to find as many: `Dataset.skip` fails at a bad element, and begins to count again behind it.
"""

from __future__ import annotations

from typing import Any

from staging_tf1._tf import fast_callable, tf
from staging_tf1.feed.lane import Lane
from staging_tf1.feed.skipping import Ignored, Skips


def drop(session: Any, batch: tuple[Any, ...], count: int, lane: Lane) -> None:
    """Computes `count` good batches and drops them; the bad ones between them are logged, as `lane` does it.

    Args:
      session: where the input has been initialized.
      batch: the tensors of one batch.
      count: how many; fewer where the data end before.
      lane: says which exceptions are skipped. Not how many of them: earlier runs have skipped these, each its share.
    """
    compute = fast_callable(session, feeds=(), targets=[tensor.op for tensor in batch])
    skips = Skips(lane.name, Ignored(lane.ignored.types))
    while count:
        try:
            compute()
        except tf.errors.OutOfRangeError:
            return
        except skips.types as error:
            skips.skip(error)
        else:
            count -= 1
