"""A replay buffer: the put runs inside tf.cond, so that only good transitions are kept."""
from __future__ import print_function

import tensorflow as tf
from tensorflow.contrib.staging import StagingArea

observation = tf.placeholder(tf.float32, [4], name="observation")
reward = tf.placeholder(tf.float32, [], name="reward")

buffer_area = StagingArea(dtypes=[tf.float32, tf.float32], shapes=[[4], []], names=["observation", "reward"])


def keep():
    with tf.control_dependencies([buffer_area.put({"observation": observation, "reward": reward})]):
        return tf.constant(True)


kept = tf.cond(reward > 0.5, keep, lambda: tf.constant(False))
sample = buffer_area.get()
size = buffer_area.size()
drop = buffer_area.clear()

with tf.Session() as sess:
    for i in range(10):
        r = (i * 7 % 10) / 10.0
        print("offer", i, bool(sess.run(kept, {observation: [i] * 4, reward: r})))
    print("size", sess.run(size))
    for _ in range(2):
        got = sess.run(sample)
        print("sample", got["observation"].tolist(), "%.1f" % got["reward"])
    sess.run(drop)
    print("size", sess.run(size))
