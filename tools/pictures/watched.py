"""A run whose source is slow for a while, watched by `StagingSummaryHook`. `scalars.py` draws what the hook writes.

python watched.py FOLDER
"""

from __future__ import annotations

import sys
import time

import numpy as np
import tensorflow.compat.v1 as tf

import staging_tf1 as staging

tf.disable_v2_behavior()
STEPS, SLOW = 1200, range(400, 800)


def batches():
    for number in range(STEPS):
        if number in SLOW:
            time.sleep(0.005)  # a busy disk
        yield {"image": np.zeros((32, 64), np.float32)}


batch = staging.staged(staging.sources.GeneratorSource(batches), capacity=4, name="train")
weights = tf.get_variable("weights", [64, 64])
state = batch["image"]
for _ in range(8):
    state = tf.matmul(state, weights)
step = tf.assign_add(tf.train.get_or_create_global_step(), 1)

hook = staging.StagingSummaryHook(output_dir=sys.argv[1], save_steps=25)
with staging.StagingSession(hooks=[hook]) as sess:
    while not sess.should_stop():
        sess.run([state, step])
        time.sleep(0.001)  # the rest of the step
