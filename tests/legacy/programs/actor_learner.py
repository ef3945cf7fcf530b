"""An actor thread, a FIFOQueue of nested trajectories, and a learner that stages them."""
from __future__ import print_function

import collections
import threading

import numpy as np
import tensorflow as tf
from tensorflow.contrib.framework import nest

Step = collections.namedtuple("Step", "reward observation")
Trajectory = collections.namedtuple("Trajectory", "state steps")

UNROLL = 3
UPDATES = 5


def trajectory_placeholders():
    return Trajectory(
        state=(tf.placeholder(tf.float32, [2]), tf.placeholder(tf.float32, [2])),
        steps=Step(tf.placeholder(tf.float32, [UNROLL]), tf.placeholder(tf.int32, [UNROLL, 2])),
    )


def play(number):
    return Trajectory(
        state=(np.full(2, number), np.full(2, -number)),
        steps=Step(np.arange(UNROLL) + number, np.full((UNROLL, 2), number)),
    )


structure = trajectory_placeholders()
flat = nest.flatten(structure)
queue = tf.FIFOQueue(1, [t.dtype for t in flat], [t.shape for t in flat])
enqueue = queue.enqueue(flat)
dequeued = queue.dequeue()

area = tf.contrib.staging.StagingArea([t.dtype for t in flat], [t.shape for t in flat])
stage_op = area.put(dequeued)
staged = nest.pack_sequence_as(structure, area.get())

total = tf.get_variable("total", [], initializer=tf.zeros_initializer(), trainable=False)
value = tf.reduce_sum(staged.steps.reward) + tf.reduce_sum(staged.state[0] * staged.state[1])
update = total.assign_add(value)
seen = tf.reduce_sum(staged.steps.observation)


def actor(sess, coord):
    for number in range(UPDATES):
        if coord.should_stop():
            return
        sess.run(enqueue, dict(zip(flat, nest.flatten(play(number)))))


with tf.Session() as sess:
    sess.run(tf.global_variables_initializer())
    coord = tf.train.Coordinator()
    thread = threading.Thread(target=actor, args=(sess, coord))
    thread.start()
    sess.run(stage_op)
    for i in range(UPDATES - 1):
        new_total, observed, _ = sess.run([update, seen, stage_op])
        print("update %d total %.1f seen %d" % (i, new_total, observed))
    new_total, observed = sess.run([update, seen])
    print("final total %.1f seen %d" % (new_total, observed))
    coord.request_stop()
    coord.join([thread])
