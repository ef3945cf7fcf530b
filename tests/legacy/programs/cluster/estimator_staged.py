"""train_and_evaluate over TF_CONFIG, where each worker stages its own part of the input. Its argument is the folder."""
from __future__ import print_function

import sys

import numpy as np
import staging_tf1 as staging
import tensorflow as tf

STEPS = 200


def input_fn(config):
    mine = np.arange(config.global_id_in_cluster, 64, config.num_worker_replicas)
    return staging.staged(staging.sources.ArraySource({"row": mine}, batch_size=4))


def model_fn(features, labels, mode):
    weight = tf.get_variable("weight", [], initializer=tf.zeros_initializer())
    row = tf.identity(features["row"], "row")
    loss = tf.reduce_mean(tf.square(weight - tf.to_float(row)))
    train_op = tf.train.GradientDescentOptimizer(0.001).minimize(loss, tf.train.get_global_step())
    return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=train_op)


class Rows(tf.train.SessionRunHook):
    def __init__(self):
        self.rows = []

    def before_run(self, run_context):
        return tf.train.SessionRunArgs("row:0")

    def after_run(self, run_context, run_values):
        self.rows.extend(run_values.results.tolist())


def main():
    tf.logging.set_verbosity(tf.logging.ERROR)
    config = tf.estimator.RunConfig(model_dir=sys.argv[1], save_checkpoints_steps=50)
    rows = Rows()
    # The chief would have made all steps before the worker begins.
    hooks = [rows] + ([tf.train.GlobalStepWaiterHook(20)] if config.is_chief else [])
    estimator = tf.estimator.Estimator(model_fn, config=config)
    train_spec = tf.estimator.TrainSpec(input_fn, max_steps=STEPS, hooks=hooks)
    tf.estimator.train_and_evaluate(estimator, train_spec, tf.estimator.EvalSpec(input_fn))
    mine = list(range(config.global_id_in_cluster, 64, 2))
    expected = [mine[i % 32] for i in range(len(rows.rows))]
    print("%s: %d batches in order %s" % (config.task_type, len(rows.rows) // 4, rows.rows == expected))
    if config.is_chief:
        print("position", tf.train.load_variable(config.model_dir, "staged/position").tolist())


if __name__ == "__main__":
    main()
