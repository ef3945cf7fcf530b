"""The idiom of this package: a runner, staged(), and a session that starts and stops them."""
import numpy as np
import tensorflow.compat.v1 as tf

import staging_tf1 as staging


def batches():
    for number in range(10):
        yield np.full(4, number, np.float32)


runner = staging.CustomRunner(batches, batch_size=4)
x = staging.staged(runner.get_inputs())
loss = tf.reduce_sum(x)
with staging.StagingSession() as sess:
    while not sess.should_stop():
        sess.run(loss)
