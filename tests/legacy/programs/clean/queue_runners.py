"""An initializer under one of two names, before the queue runners start; another graph initializes later."""
import tensorflow.compat.v1 as tf


def train(names):
    with tf.Graph().as_default():
        images = tf.train.batch([tf.train.string_input_producer(names).dequeue()], 8)
        size = tf.reduce_sum(tf.strings.length(images))
        saver = tf.train.Saver([tf.get_variable("w", [])])
        init = tf.group(tf.global_variables_initializer(), tf.local_variables_initializer())
        sess = tf.Session(config=tf.ConfigProto(allow_soft_placement=True))
        sess.run(init)
        coord = tf.train.Coordinator()
        threads = tf.train.start_queue_runners(sess=sess, coord=coord)
        for step in range(100):
            print(sess.run(size))
            if step % 10 == 0:
                saver.save(sess, "model.ckpt", global_step=step)
        coord.request_stop()
        coord.join(threads)


def evaluate(restore):
    with tf.Graph().as_default(), tf.Session() as sess:
        queue = tf.train.string_input_producer(["a"])
        tf.get_variable("v", [])
        if restore:
            tf.train.Saver().restore(sess, "model.ckpt")
            tf.train.start_queue_runners(sess=sess)
            return sess.run(queue.dequeue())
        sess.run(tf.global_variables_initializer())
        tf.train.start_queue_runners(sess=sess)
        return sess.run(queue.dequeue())


train(["a", "b"])
evaluate(restore=False)
