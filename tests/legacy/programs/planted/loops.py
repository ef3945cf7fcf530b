"""Areas and ops made in the training loop, a get without a put, and elements left behind."""
import tensorflow as tf

x = tf.random_normal([8])


def stage(value):
    area = tf.contrib.staging.StagingArea([tf.float32])  # bad: STG101
    return area.put([value]), area.get()


def body(i):
    inner = tf.contrib.staging.StagingArea([tf.int32], capacity=1)  # bad: STG101
    with tf.control_dependencies([inner.put([i])]):
        return inner.get()[0]


count = tf.while_loop(lambda i: i < 3, body, [tf.constant(0)])

outer = tf.contrib.staging.StagingArea([tf.float32], [[8]])  # bad: STG107
outer_put = outer.put([x])
(staged,) = outer.get()
train_op = tf.group(tf.reduce_sum(staged), outer_put)

forgotten = tf.contrib.staging.StagingArea([tf.float32])
wait = forgotten.get()  # bad: STG104
hoard = tf.contrib.staging.StagingArea([tf.float32])
kept = hoard.put([x])  # bad: STG105

with tf.Session() as sess:
    for step in range(10):
        put, got = stage(x)
        sess.run(put)
        sess.run(train_op)  # bad: STG103
