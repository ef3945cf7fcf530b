"""An agent's core: LSTMBlockCell over unrolled steps, its gradients, and its checkpoint by name."""
from __future__ import print_function

import os
import tempfile

import numpy as np
import tensorflow as tf
from tensorflow.contrib.rnn import LSTMBlockCell

UNITS, BATCH, STEPS = 5, 3, 4
rng = np.random.RandomState(0)
frames = rng.randn(6, STEPS, BATCH, 7).astype(np.float32)

frame_in = tf.placeholder(tf.float32, [STEPS, BATCH, 7])
area = tf.contrib.staging.StagingArea([tf.float32], [[STEPS, BATCH, 7]])
put = area.put([frame_in])
(steps,) = area.get()

tf.get_variable_scope().set_initializer(tf.random_uniform_initializer(-0.5, 0.5, seed=3))
core = LSTMBlockCell(UNITS)
state = core.zero_state(BATCH, tf.float32)
outputs = []
for step in tf.unstack(steps):
    output, state = core(step, state)
    outputs.append(output)
with tf.variable_scope("peephole"):
    clipped = LSTMBlockCell(UNITS, forget_bias=0.5, cell_clip=0.2, use_peephole=True)
    looked, last = tf.nn.dynamic_rnn(clipped, steps, time_major=True, dtype=tf.float32)
with tf.variable_scope("other"):
    plain = tf.nn.rnn_cell.LSTMCell(UNITS, name="lstm_cell")
    again, _ = tf.nn.dynamic_rnn(plain, steps, time_major=True, dtype=tf.float32)

loss = tf.reduce_mean(tf.square(tf.stack(outputs) - 0.3)) + tf.reduce_mean(tf.square(looked - 0.1))
train = tf.train.RMSPropOptimizer(0.02).minimize(loss)
names = [variable.op.name for variable in tf.trainable_variables()]
print("\n".join("%s %s" % (variable.op.name, variable.shape.as_list()) for variable in tf.trainable_variables()))
saver = tf.train.Saver({"lstm_cell/kernel": core.weights[0], "lstm_cell/bias": core.weights[1]})
loader = tf.train.Saver({"lstm_cell/kernel": plain.weights[0], "lstm_cell/bias": plain.weights[1]})

with tf.Session() as sess:
    sess.run(tf.global_variables_initializer())
    sess.run(put, {frame_in: frames[0]})
    for step in range(1, 6):
        value, c, _, _ = sess.run([loss, last.c, train, put], {frame_in: frames[step]})
        print("step %d loss %.5f cell %.4f %.4f" % (step, value, c.min(), c.max()))
    path = saver.save(sess, os.path.join(tempfile.mkdtemp(), "core.ckpt"))
    loader.restore(sess, path)
    ours, theirs = sess.run([tf.stack(outputs), again])
    print("same numbers as LSTMCell: %s" % np.allclose(ours, theirs, atol=1e-5))
