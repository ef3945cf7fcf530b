"""One area per variable: the parameters reach the tower one step ahead, as some benchmarks staged them."""
from __future__ import print_function

import tensorflow as tf
from tensorflow.python.ops import data_flow_ops

variables = [
    tf.get_variable("v%d" % i, [3], initializer=tf.constant_initializer(i + 1.0), use_resource=True)
    for i in range(3)
]
put_ops, staged, clear_ops = [], [], []
for v in variables:
    with tf.device("/cpu:0"):
        area = data_flow_ops.StagingArea([v.dtype.base_dtype], [v.shape])
        put_ops.append(area.put([v.read_value()]))
        staged.append(area.get()[0])
        clear_ops.append(area.clear())

loss = tf.add_n([tf.reduce_sum(s * s) for s in staged])
gradients = tf.gradients(loss, staged)
train = tf.group(*[v.assign_sub(0.1 * g) for v, g in zip(variables, gradients)])

with tf.Session() as sess:
    sess.run(tf.global_variables_initializer())
    sess.run(put_ops)
    for step in range(5):
        value, _ = sess.run([loss, train])
        sess.run(put_ops)
        print("step %d loss %.5f" % (step, value))
    print("end", " ".join("%.5f" % v[0] for v in sess.run(variables)))
    sess.run(clear_ops)
