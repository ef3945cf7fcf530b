"""Trains an Estimator again and again, once with a failure, and prints which records its steps saw."""
import os
import tempfile

import tensorflow as tf

folder = tempfile.mkdtemp()
config = tf.estimator.RunConfig(folder, save_checkpoints_steps=2)
seen = []


class See(tf.train.SessionRunHook):
    def __init__(self, fails_after=None):
        self.fails_after = fails_after

    def before_run(self, context):
        return tf.train.SessionRunArgs(tf.get_default_graph().get_tensor_by_name("seen:0"))

    def after_run(self, context, values):
        seen.append(int(values.results))
        if len(seen) == self.fails_after:
            raise ValueError("fails")


def input_fn():
    return tf.data.Dataset.range(20).shuffle(8, seed=3).map(lambda x: x + 100).repeat()


def model_fn(features, mode):
    w = tf.get_variable("w", [], initializer=tf.zeros_initializer())
    tf.identity(features, name="seen")
    loss = tf.square(w - 1.)
    train = tf.train.GradientDescentOptimizer(.1).minimize(loss, tf.train.get_global_step())
    return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=train)


def train(steps, see):
    estimator = tf.estimator.Estimator(model_fn, config=config)
    hook = tf.data.experimental.CheckpointInputPipelineHook(estimator)
    estimator.train(input_fn, steps=steps, hooks=[hook, see])


train(3, See())
train(3, See())
try:
    train(9, See(fails_after=11))
except ValueError:
    print("failed after", len(seen))
train(4, See())
print(*seen)
print(*sorted(name for name in os.listdir(folder) if name.startswith("input") and name.endswith("index")))
