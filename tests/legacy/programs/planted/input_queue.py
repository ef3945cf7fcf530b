"""Queues whose runners are never started, and a feed thread that builds an op for each batch."""
import threading

import tensorflow as tf
from tensorflow.python.ops import data_flow_ops

images, labels = tf.train.shuffle_batch([tf.zeros([4]), tf.zeros([])], 8, 64, 16)  # bad: STG111
area = data_flow_ops.StagingArea([tf.float32, tf.float32], capacity=2)
put = area.put([images, labels])

with tf.device("/gpu:0"):
    x, y = area.get()
    loss = tf.reduce_sum(x) + tf.reduce_sum(y)
    second = data_flow_ops.StagingArea([tf.float32], capacity=2)
    second_put = second.put([loss])
    (late,) = second.get()

numbers = tf.FIFOQueue(4, [tf.float32])


def produce(sess, coord):
    while not coord.should_stop():
        sess.run(numbers.enqueue([1.0]))  # bad: STG102


with tf.Session() as sess:
    coord = tf.train.Coordinator()
    worker = threading.Thread(target=produce, args=(sess, coord))
    sess.run(tf.global_variables_initializer())
    worker.start()
    sess.run(put)
    sess.run(second_put)
    sess.run(late)
    coord.request_stop()
    coord.join([worker])
