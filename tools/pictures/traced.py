"""A short run with a timeline: two feed threads, and one batch that takes long to read. `perfetto.py` shows the file.

python traced.py FILE
"""

from __future__ import annotations

import sys
import time

import numpy as np
import tensorflow.compat.v1 as tf

import staging_tf1 as staging

tf.disable_v2_behavior()
BATCHES, SLOW = 24, 14


def decode(number):
    time.sleep(0.060 if number == SLOW else 0.012)
    return {"image": np.zeros((32, 64), np.float32)}


source = staging.sources.MapSource(range(BATCHES), load=decode, batch_size=1, epochs=1)
batch = staging.staged(source, capacity=2, num_threads=2, name="train")
loss = tf.reduce_mean(batch["image"])

with staging.StagingSession(trace_file=sys.argv[1]) as sess:
    while not sess.should_stop():
        sess.run(loss)
        time.sleep(0.005)  # the rest of the step
