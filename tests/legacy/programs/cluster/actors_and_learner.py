"""Actors send trajectories to a queue on the learner's task; the learner stages a batch of them while it trains."""
from __future__ import print_function

import collections
import os
import time

import numpy as np
import tensorflow as tf
from tensorflow.contrib.framework import nest

tf.app.flags.DEFINE_string("learner_host", "", "host:port")
tf.app.flags.DEFINE_string("actor_hosts", "", "Comma-separated host:port pairs")
tf.app.flags.DEFINE_string("job_name", "learner", "learner or actor")
tf.app.flags.DEFINE_integer("task", 0, "Index within the job")
tf.app.flags.DEFINE_integer("trajectories", 10, "How many of each actor the learner takes at least")
tf.app.flags.DEFINE_string("actors_gone", "", "A file that appears when the actors have ended")
FLAGS = tf.app.flags.FLAGS

UNROLL, BATCH = 5, 2
Steps = collections.namedtuple("Steps", "reward frame")
Trajectory = collections.namedtuple("Trajectory", "actor number steps")

SPEC = Trajectory(
    actor=tf.TensorSpec([], tf.int32),
    number=tf.TensorSpec([], tf.int64),
    steps=Steps(tf.TensorSpec([UNROLL], tf.float32), tf.TensorSpec([UNROLL, 4, 4], tf.uint8)),
)


def build_actor(weight):
    """A trajectory: each run plays on. The policy is the learner's present weight."""
    number = tf.get_local_variable("played", initializer=tf.constant(-1, tf.int64)).assign_add(1)
    reward = tf.py_func(lambda n, w: np.full(UNROLL, n + 0 * w, np.float32), [number, weight], tf.float32)
    reward.set_shape([UNROLL])
    frames = tf.cast(tf.fill([UNROLL, 4, 4], number % 256), tf.uint8)
    return Trajectory(tf.constant(FLAGS.task), number, Steps(reward, frames))


def main(_):
    learner_device, own_device = "/job:learner/task:0", "/job:%s/task:%d" % (FLAGS.job_name, FLAGS.task)
    is_learner = FLAGS.job_name == "learner"
    cluster = tf.train.ClusterSpec({"actor": FLAGS.actor_hosts.split(","), "learner": [FLAGS.learner_host]})
    server = tf.train.Server(cluster, job_name=FLAGS.job_name, task_index=FLAGS.task)

    with tf.Graph().as_default(), tf.device(own_device + "/cpu"):
        flat = nest.flatten(SPEC)
        with tf.device(learner_device + "/cpu"):
            queue = tf.FIFOQueue(1, [s.dtype for s in flat], [s.shape for s in flat], shared_name="buffer")
            left = tf.FIFOQueue(cluster.num_tasks("actor"), [tf.int32], [[]], shared_name="left")
            weight = tf.get_variable("weight", [], initializer=tf.ones_initializer())
        if is_learner:
            all_left_op = left.dequeue_many(cluster.num_tasks("actor"))
            global_step = tf.train.get_or_create_global_step()
            close_op = queue.close(cancel_pending_enqueues=True)
            dequeued = queue.dequeue_many(BATCH)
            area = tf.contrib.staging.StagingArea([t.dtype for t in dequeued], [t.shape for t in dequeued])
            stage_op = area.put(dequeued)
            batch = nest.pack_sequence_as(SPEC, area.get())
            loss = tf.reduce_mean(tf.square(weight * batch.steps.reward)) * 0
            train_op = tf.train.RMSPropOptimizer(0.01).minimize(loss, global_step=global_step)
        else:
            played = build_actor(weight)
            with tf.device(learner_device + "/cpu"):
                enqueue_op = queue.enqueue(nest.flatten(played))
                leave_op = left.enqueue(FLAGS.task)

        config = tf.ConfigProto(allow_soft_placement=True, device_filters=[learner_device, own_device])
        with tf.train.MonitoredTrainingSession(server.target, is_chief=is_learner, config=config) as session:
            print("%s %d begins" % (FLAGS.job_name, FLAGS.task))
            if is_learner:
                session.run_step_fn(lambda step_context: step_context.session.run(stage_op))
                taken = collections.Counter()
                while min(taken[actor] for actor in range(cluster.num_tasks("actor"))) < FLAGS.trajectories:
                    actors, numbers, rewards, _, _ = session.run(
                        (batch.actor, batch.number, batch.steps.reward, train_op, stage_op)
                    )
                    for actor, number, reward in zip(actors, numbers, rewards):
                        print("took", actor, number, reward.tolist() == [number] * UNROLL)
                    taken.update(actors)
                session.run(close_op)
                session.run(all_left_op)
                # The actors' last steps, and the ends of their sessions, need an answer of this task.
                while not os.path.exists(FLAGS.actors_gone):
                    time.sleep(0.02)
            else:
                sent = 0
                try:
                    while True:
                        session.run(enqueue_op)
                        sent += 1
                except tf.errors.CancelledError:
                    session.run(leave_op)
                    print("actor %d sent %d" % (FLAGS.task, sent))


if __name__ == "__main__":
    tf.app.run()
