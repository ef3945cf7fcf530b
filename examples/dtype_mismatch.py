"""A dtype mismatch: when it is detected, what the message says, and how to fix it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow.compat.v1 as tf

import staging_tf1 as staging
from staging_tf1.errors import SpecError


def main(records: int = 4) -> None:
    with tf.Graph().as_default():
        images = tf.zeros([records, 8, 8], tf.float32)
        labels = tf.range(records)  # int32, a common mistake
        area = staging.StagingArea(
            [tf.float32, tf.int64], [[records, 8, 8], [records]], names=["image", "label"], shared_name="train"
        )

        print("A put of another dtype raises on its line, before anything runs:")
        try:
            area.put({"image": images, "label": labels})
        except SpecError as error:
            print(f"  {error}")

        print("The fix that the message names:")
        put = area.put({"image": images, "label": tf.cast(labels, tf.int64)})
        label = area.get()["label"]
        with tf.Session() as sess:
            sess.run(put)
            print(f"  label {label.dtype.name} {sess.run(label).tolist()}")

    def changes_its_mind() -> Iterator[Any]:
        yield {"label": np.arange(records)}
        yield {"label": np.arange(records) / 2}

    with tf.Graph().as_default():
        label = staging.staged(changes_its_mind, name="train")["label"]
        print("A source is compared with its first batch, and your own run raises the error:")
        try:
            with staging.StagingSession() as sess:
                while not sess.should_stop():
                    sess.run(label)
        except SpecError as error:
            print(f"  {error}")


if __name__ == "__main__":
    main()
