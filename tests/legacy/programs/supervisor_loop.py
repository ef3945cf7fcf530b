"""A Supervisor runs the session; the warm-up put comes before the loop."""
from __future__ import print_function

import tempfile

import tensorflow as tf

counter = tf.get_variable("counter", [], tf.int64, initializer=tf.zeros_initializer(), trainable=False)
global_step = tf.train.get_or_create_global_step()
number = counter.assign_add(1)
area = tf.contrib.staging.StagingArea([tf.int64], [[]], capacity=1)
put = area.put([number * number])
(square,) = area.get()
with tf.control_dependencies([square]):
    step_op = tf.assign_add(global_step, 1)
clear = area.clear()

supervisor = tf.train.Supervisor(logdir=tempfile.mkdtemp(), summary_op=None, save_model_secs=0)
with supervisor.managed_session() as sess:
    sess.run(put)
    while not supervisor.should_stop():
        value, step = sess.run([square, step_op])
        print("step", step, "square", value)
        if step >= 5:
            break
        sess.run(put)
    sess.run(clear)
    supervisor.stop()
