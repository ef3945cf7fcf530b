import tensorflow as tf

images = tf.placeholder(tf.float32, shape=(None, 8))
area = tf.staging.StagingArea([images], dtypes=[tf.float32])
dataset = tf.data.Dataset.from_tensor_slices(tf.random.normal([64, 8]))
iterator = dataset.batch(16).make_initializable_iterator()
put = area.stage([iterator.get_next()])
got = area.unstage()

with tf.Session() as sess:
    sess.run(iterator.initializer)
    for _ in range(4):
        sess.run(put)
        (image_batch,) = sess.run(got)
        print(image_batch.shape)
