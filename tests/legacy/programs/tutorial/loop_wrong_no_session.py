import numpy as np
import tensorflow as tf


def next_batch(sess, step):
    images = tf.placeholder(tf.float32, shape=(None, 4))
    area = tf.staging.StagingArea([images], dtypes=[tf.float32])
    area.stage([np.full((2, 4), step, np.float32)])
    return sess.run(area.unstage())


sess = tf.Session()
for step in range(5):
    print(next_batch(sess, step))
