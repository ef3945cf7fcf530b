"""Batches that become constants of the graph, one put and one assignment for each."""
import numpy as np
import tensorflow as tf
from tensorflow.python.ops import data_flow_ops

batches = [np.full([2], number, np.float32) for number in range(4)]
stage = data_flow_ops.StagingArea([tf.float32], [[2]])
(x,) = stage.get()
total = tf.get_variable("total", [2], initializer=tf.zeros_initializer())

with tf.Session() as sess:
    sess.run(tf.global_variables_initializer())
    for batch in batches:
        sess.run(stage.put([batch]))  # bad: STG102
        sess.run(tf.assign(total, batch))  # bad: STG102
        print(sess.run(x))
