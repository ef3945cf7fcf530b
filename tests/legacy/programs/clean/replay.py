"""put and get of an existing area inside tf.cond, which is legitimate."""
import tensorflow.compat.v1 as tf

import staging_tf1 as staging

value = tf.placeholder(tf.float32, [])
area = staging.StagingArea([tf.float32], [[]], capacity=100)


def keep():
    with tf.control_dependencies([area.put([value])]):
        return tf.constant(True)


kept = tf.cond(value > 0, keep, lambda: tf.constant(False))
(sample,) = area.get()
size, clear = area.size(), area.clear()
with tf.Session() as sess:
    for number in range(10):
        sess.run(kept, {value: float(number)})
    while sess.run(size) > 2:
        sess.run(sample)
    sess.run(clear)
