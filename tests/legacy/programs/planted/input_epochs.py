"""An input of two passes and a metric, whose local variables nothing initializes."""
import tensorflow as tf

PASSES = 2


def lines(names, passes):
    queue = tf.train.string_input_producer(names, num_epochs=passes)
    _, line = tf.TextLineReader().read(queue)
    return tf.train.batch([line], 4)


def evaluate(names):
    batch = lines(names, PASSES)
    right = tf.equal(tf.strings.length(batch), 3)
    accuracy, update = tf.metrics.accuracy(tf.ones_like(right), right)
    init = tf.global_variables_initializer()
    with tf.Session() as sess:
        sess.run(init)  # bad: STG118
        coord = tf.train.Coordinator()
        threads = tf.train.start_queue_runners(sess, coord)
        try:
            while not coord.should_stop():
                sess.run(update)
        except tf.errors.OutOfRangeError:
            print(sess.run(accuracy))
        finally:
            coord.request_stop()
        coord.join(threads)


evaluate(["a.txt", "b.txt"])
