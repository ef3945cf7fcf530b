"""A MapStagingArea from TensorFlow's internals, and an area whose components have names."""
from __future__ import print_function

import numpy as np
import tensorflow as tf
from tensorflow.python.ops.data_flow_ops import MapStagingArea

key = tf.placeholder(tf.int64, [])
value = tf.placeholder(tf.float32, [2])
by_key = MapStagingArea([tf.float32, tf.float32], shapes=[[2], [2]], names=["value", "square"], ordered=True)
put_value = by_key.put(key, {"value": value}, [0])
put_square = by_key.put(key, {"square": value * value}, [1])
first_key, first = by_key.get()
size, incomplete = by_key.size(), by_key.incomplete_size()

named = tf.contrib.staging.StagingArea([tf.float32, tf.int32], [[2], []], names=["v", "n"], capacity=3)
put_named = named.put({"v": value, "n": tf.cast(key, tf.int32)})
peeked = named.peek(1)
taken = named.get()

with tf.Session() as sess:
    for k in (5, 3, 9):
        feed = {key: k, value: np.array([k, k + 0.5])}
        sess.run(put_value, feed)
        print("incomplete", sess.run(incomplete), "complete", sess.run(size))
        sess.run([put_square, put_named], feed)
    while sess.run(size):
        k, element = sess.run([first_key, first])
        print(int(k), element["value"].tolist(), element["square"].tolist())
    print("peek", sess.run(peeked)["v"].tolist())
    for _ in range(3):
        got = sess.run(taken)
        print(int(got["n"]), got["v"].tolist())
