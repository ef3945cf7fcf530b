"""Lockstep: one Session.run gets a batch and puts the next. First by hand, then with staged(lockstep=True).

warm-up:  put 0          every step:  get 0 | put 1,  get 1 | put 2,  ...          at the end:  get the last
"""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow.compat.v1 as tf

import staging_tf1 as staging


def main(batches: int = 5) -> None:
    hand, area_size = by_hand(batches)
    print("by hand:              ", hand)
    print("staged(lockstep=True):", in_lockstep(batches))
    print("batches in the area between the steps by hand:", area_size)


def by_hand(batches: int) -> tuple[list[Any], list[int]]:
    with tf.Graph().as_default():
        batch = tf.data.make_one_shot_iterator(numbers(batches)).get_next()
        # Capacity for two: within a step the put may run before the get.
        area = staging.StagingArea.from_tensors(batch, capacity=2)
        put, size = area.put(batch), area.size()
        (got,) = area.get()
        taken, sizes = [], []
        with tf.Session() as sess:
            sess.run(put)  # the warm-up
            for _ in range(batches - 1):
                sizes.append(int(sess.run(size)))
                value, _ = sess.run([got, put])
                taken.append(value.tolist())
            taken.append(sess.run(got).tolist())  # the drain: without a put, which would fail
        return taken, sizes


def in_lockstep(batches: int) -> list[Any]:
    with tf.Graph().as_default():
        got = staging.staged(numbers(batches), lockstep=True)
        taken = []
        # The session warms up before the first step, and adds the put to each step as long as batches are left.
        with staging.StagingSession() as sess:
            while not sess.should_stop():
                taken.append(sess.run(got).tolist())
        return taken


def numbers(batches: int) -> Any:
    """A dataset of [0, 1], [2, 3], ..."""
    return tf.data.Dataset.from_tensor_slices(np.arange(2 * batches).reshape(batches, 2))


if __name__ == "__main__":
    main()
