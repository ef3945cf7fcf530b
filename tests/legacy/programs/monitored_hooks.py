"""A MonitoredTrainingSession: one hook warms the area up, another records what the steps saw."""
from __future__ import print_function

import tensorflow as tf

dataset = tf.data.Dataset.range(1, 100).map(lambda x: tf.cast(x, tf.float32))
iterator = tf.data.make_initializable_iterator(dataset)
tf.add_to_collection(tf.GraphKeys.LOCAL_INIT_OP, iterator.initializer)
area = tf.contrib.staging.StagingArea([tf.float32], [[]])
put_op = area.put([iterator.get_next()])
(x,) = area.get()
clear_op = area.clear()

w = tf.get_variable("w", [], initializer=tf.ones_initializer())
loss = tf.square(w * x - 3.0)
global_step = tf.train.get_or_create_global_step()
train_op = tf.train.GradientDescentOptimizer(0.001).minimize(loss, global_step=global_step)


class StagingWarmUp(tf.train.SessionRunHook):
    def after_create_session(self, session, coord):
        session.run(put_op)

    def before_run(self, run_context):
        return tf.train.SessionRunArgs(put_op)

    def end(self, session):
        session.run(clear_op)


class Recorder(tf.estimator.SessionRunHook):
    def __init__(self):
        self.losses = []

    def before_run(self, run_context):
        return tf.train.SessionRunArgs(loss)

    def after_run(self, run_context, run_values):
        self.losses.append(float(run_values.results))


recorder = Recorder()
hooks = [StagingWarmUp(), recorder, tf.train.StopAtStepHook(last_step=6)]
scaffold = tf.train.Scaffold(
    local_init_op=tf.group(tf.local_variables_initializer(), tf.tables_initializer(), iterator.initializer)
)
with tf.train.MonitoredTrainingSession(scaffold=scaffold, hooks=hooks) as sess:
    while not sess.should_stop():
        sess.run(train_op)
for step, value in enumerate(recorder.losses):
    print("step %d loss %.5f" % (step, value))
