"""A put that tf.cond or control dependencies order before the get, as in Dopamine: the first run does not block."""
import tensorflow as tf

batch = tf.random_normal([8])
area = tf.contrib.staging.StagingArea([tf.float32], [[8]])


def fill():
    with tf.control_dependencies([area.put([batch])]):
        return tf.constant(True)


filled = tf.cond(tf.equal(area.size(), 0), fill, lambda: tf.constant(True))
with tf.control_dependencies([filled]):
    (staged,) = area.get()
with tf.control_dependencies([staged]):
    step = tf.group(tf.reduce_sum(staged), area.put([batch]))

second = tf.contrib.staging.StagingArea([tf.float32], [[8]])
with tf.control_dependencies([second.put([batch])]):
    (direct,) = second.get()

with tf.Session() as sess:
    for _ in range(10):
        sess.run([step, direct])
