"""tf.data into an area; the elements left at the end of the data are drained."""
from __future__ import print_function

import numpy as np
import tensorflow as tf
import tensorflow.contrib.staging as staging

features = np.arange(30, dtype=np.float32).reshape(10, 3)
dataset = tf.data.Dataset.from_tensor_slices((features, np.arange(10, dtype=np.int32))).batch(4)
x, y = dataset.make_one_shot_iterator().get_next()

area = staging.StagingArea([tf.float32, tf.int32], shapes=[[None, 3], [None]])
put = area.put([x, y])
got_x, got_y = area.get()
mean = tf.reduce_mean(got_x)
size = area.size()

with tf.Session() as sess:
    for _ in range(2):
        sess.run(put)
    while True:
        try:
            sess.run(put)
        except tf.errors.OutOfRangeError:
            break
        value, labels = sess.run([mean, got_y])
        print("mean %.2f labels %s" % (value, labels.tolist()))
    while sess.run(size):
        value, labels = sess.run([mean, got_y])
        print("drained mean %.2f labels %s" % (value, labels.tolist()))
