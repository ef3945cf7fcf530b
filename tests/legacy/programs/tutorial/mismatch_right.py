import numpy as np
import tensorflow as tf

images = tf.placeholder(dtype=tf.float32, shape=(None, 28, 28, 3))
labels = tf.placeholder(dtype=tf.int32, shape=(None,))
area = tf.staging.StagingArea([images, labels], dtypes=[tf.float32, tf.int32])

dataset = tf.data.Dataset.from_tensor_slices(
    (np.zeros((100, 28, 28, 3), np.float32), np.zeros(100, np.int32))
)
batch = dataset.batch(16).make_one_shot_iterator().get_next()

put = area.stage(batch)
got = area.unstage()

with tf.Session() as sess:
    for _ in range(5):
        sess.run(put)
        image_batch, label_batch = sess.run(got)
        print(image_batch.shape, label_batch.shape)
