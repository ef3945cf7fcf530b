import numpy as np
import tensorflow as tf

images = tf.placeholder(tf.float32, shape=(None, 4))
labels = tf.placeholder(tf.int32, shape=(None,))
area = tf.staging.StagingArea([images, labels], dtypes=[tf.float32, tf.int32])

with tf.Session() as sess:
    for step in range(5):
        put = area.stage([np.full((2, 4), step, np.float32), np.array([step, step], np.int32)])
        got = area.unstage()
        sess.run(put)
        image_batch, label_batch = sess.run(got)
        print(step, image_batch[0, 0], label_batch.tolist())
