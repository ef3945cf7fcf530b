"""A script with flags, tf.app.run, gfile, a checkpoint, and names that numpy has since removed."""
from __future__ import print_function

import os
import tempfile

import numpy as np
import tensorflow as tf

tf.app.flags.DEFINE_integer("flags_steps", 4, "Steps to run.")
tf.app.flags.DEFINE_float("flags_rate", 0.25, "Learning rate.")
FLAGS = tf.app.flags.FLAGS


def main(_):
    folder = tempfile.mkdtemp()
    with tf.gfile.GFile(os.path.join(folder, "numbers.txt"), "w") as f:
        f.write("\n".join(str(n) for n in range(FLAGS.flags_steps)))
    with tf.gfile.GFile(os.path.join(folder, "numbers.txt")) as f:
        numbers = np.array([line for line in f.read().split()], dtype=np.object).astype(np.float)

    feed = tf.placeholder(tf.float32, [])
    area = tf.contrib.staging.StagingArea([tf.float32], [[]])
    put = area.put([feed])
    (x,) = area.get()
    v = tf.Variable(0.0, name="v")
    step = tf.assign_add(v, FLAGS.flags_rate * x)
    saver = tf.train.Saver()
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        sess.run(put, {feed: numbers[0]})
        for number in numbers[1:]:
            value, _ = sess.run([step, put], {feed: number})
            print("value %.2f" % value)
        print("value %.2f" % sess.run(step))
        path = saver.save(sess, os.path.join(folder, "model.ckpt"))
        sess.run(v.assign(-1.0))
        saver.restore(sess, path)
        print("restored %.2f" % sess.run(v), tf.gfile.Exists(path + ".index"))
        sess.run(area.clear())


if __name__ == "__main__":
    tf.app.run()
