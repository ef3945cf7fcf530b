"""Areas made in the training loop and in a traced function, a get without a put, and a put without a get."""
import tensorflow as tf

x = tf.random_normal([8])


def body(i):
    inner = tf.contrib.staging.StagingArea([tf.int32], capacity=1)  # bad: STG101
    with tf.control_dependencies([inner.put([i])]):
        return inner.get()[0]


count = tf.while_loop(lambda i: i < 3, body, [tf.constant(0)])

forgotten = tf.contrib.staging.StagingArea([tf.float32])
wait = forgotten.get()  # bad: STG104
hoard = tf.contrib.staging.StagingArea([tf.float32])
kept = hoard.put([x])  # bad: STG105

with tf.Session() as sess:
    for step in range(10):
        area = tf.contrib.staging.StagingArea([tf.float32])  # bad: STG101
        sess.run(area.put([x]))
        sess.run(area.get())
