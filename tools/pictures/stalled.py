"""A program whose source gets stuck: it waits for a file that never comes. `stall.py` draws its stall report."""

from __future__ import annotations

import threading

import numpy as np
import tensorflow.compat.v1 as tf

import staging_tf1 as staging

tf.disable_v2_behavior()
never = threading.Event()


def wait_for_download(number):
    never.wait(60)  # where a hanging network file system stops a program


def batches():
    for number in range(100):
        if number == 3:
            wait_for_download(number)
        yield {"image": np.zeros((32, 64), np.float32)}


batch = staging.staged(staging.sources.GeneratorSource(batches), capacity=2, name="train")
loss = tf.reduce_mean(batch["image"])

with staging.StagingSession(stall_secs=1, stall_raises=True) as sess:
    try:
        while not sess.should_stop():
            sess.run(loss)
    except staging.errors.StallError as error:
        print(error.report)
    finally:
        never.set()
