"""One area per tower, built in a loop before the session; gradients are averaged."""
from __future__ import print_function

import numpy as np
import tensorflow as tf

TOWERS = 2
STEPS = 4
rng = np.random.RandomState(3)
batches = rng.rand(STEPS + 1, TOWERS, 4, 2).astype(np.float32)

feeds = [tf.placeholder(tf.float32, [4, 2]) for _ in range(TOWERS)]
puts, gets, clears = [], [], []
for tower in range(TOWERS):
    with tf.device("/cpu:%d" % tower):
        area = tf.contrib.staging.StagingArea([tf.float32], [[4, 2]], shared_name="tower_%d" % tower)
        puts.append(area.put([feeds[tower]]))
        gets.append(area.get())
        clears.append(area.clear())

optimizer = tf.train.MomentumOptimizer(0.1, 0.9)
grads = []
losses = []
for tower in range(TOWERS):
    with tf.device("/cpu:%d" % tower), tf.variable_scope("model", reuse=tower > 0):
        weights = tf.get_variable("w", [2, 1], initializer=tf.ones_initializer())
        loss = tf.reduce_mean(tf.square(tf.matmul(gets[tower][0], weights) - 1.0))
        losses.append(loss)
        grads.append(optimizer.compute_gradients(loss, [weights]))
averaged = [(tf.add_n([g for g, _ in pair]) / TOWERS, pair[0][1]) for pair in zip(*grads)]
train = optimizer.apply_gradients(averaged)
total = tf.add_n(losses)
put_all = tf.group(*puts)

config = tf.ConfigProto(device_count={"CPU": TOWERS}, allow_soft_placement=True)
with tf.Session(config=config) as sess:
    sess.run(tf.global_variables_initializer())
    sess.run(put_all, dict(zip(feeds, batches[0])))
    for step in range(STEPS):
        value, _, _ = sess.run([total, train, put_all], dict(zip(feeds, batches[step + 1])))
        print("step %d loss %.6f" % (step, value))
    print("weights %.6f %.6f" % tuple(sess.run(weights)[:, 0]))
    sess.run(clears)
