"""train_and_evaluate over TF_CONFIG: chief, parameter server and evaluator, each a process that this one starts."""
from __future__ import print_function

import json
import os
import socket
import subprocess
import sys
import tempfile

import numpy as np
import tensorflow as tf
from common import NumpyWeights, show

STEPS = 60


def input_fn(epochs):
    rng = np.random.RandomState(8)
    x = rng.uniform(-1, 1, (96, 3)).astype(np.float32)
    y = x.dot([[2.0], [-1.0], [0.5]]).astype(np.float32) + 0.25
    return tf.data.Dataset.from_tensor_slices((x, y)).repeat(epochs).batch(24)


def model_fn(features, labels, mode, config):
    hidden = tf.layers.dense(features, 6, tf.nn.tanh, name="hidden")
    loss = tf.losses.mean_squared_error(labels, tf.layers.dense(hidden, 1, name="output"))
    error = {"error": tf.metrics.mean_absolute_error(labels, tf.layers.dense(hidden, 1, name="output", reuse=True))}
    train_op = tf.train.AdagradOptimizer(0.2).minimize(loss, tf.train.get_global_step())
    if mode == tf.estimator.ModeKeys.TRAIN:
        places = sorted({variable.device for variable in tf.trainable_variables()})
        print(config.task_type, config.num_worker_replicas, "of", config.num_ps_replicas, places)
    return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=train_op, eval_metric_ops=error)


class Last(tf.estimator.FinalExporter):
    """Shows the last evaluation."""

    def __init__(self):
        super(Last, self).__init__("last", lambda: None)

    def export(self, estimator, export_path, checkpoint_path, eval_result, is_the_final_export):
        if is_the_final_export:
            show("evaluator", eval_result)


class LastLoss(tf.train.SessionRunHook):
    def begin(self):
        self.total = tf.losses.get_total_loss()

    def before_run(self, run_context):
        return tf.train.SessionRunArgs(self.total)

    def after_run(self, run_context, run_values):
        self.loss = run_values.results

    def end(self, session):
        print("chief loss %.5f at step %d" % (self.loss, session.run(tf.train.get_global_step())))


def run_task(folder):
    config = tf.estimator.RunConfig(model_dir=folder, save_checkpoints_steps=20, tf_random_seed=1)
    estimator = tf.estimator.Estimator(model_fn, config=config)
    train_spec = tf.estimator.TrainSpec(lambda: input_fn(None), STEPS, hooks=[NumpyWeights(), LastLoss()])
    eval_spec = tf.estimator.EvalSpec(lambda: input_fn(1), exporters=[Last()], start_delay_secs=0, throttle_secs=1)
    tf.estimator.train_and_evaluate(estimator, train_spec, eval_spec)


def free_addresses(count):
    """Different ones: all are bound before any is released."""
    bound = [socket.socket() for _ in range(count)]
    for each in bound:
        each.bind(("127.0.0.1", 0))
    addresses = ["127.0.0.1:%d" % each.getsockname()[1] for each in bound]
    for each in bound:
        each.close()
    return addresses


def start(cluster, job, folder):
    task = {"cluster": cluster, "task": {"type": job, "index": 0}}
    environment = dict(os.environ, TF_CONFIG=json.dumps(task))
    command = [sys.executable, os.path.abspath(__file__), folder]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, universal_newlines=True)


def main():
    chief, ps = free_addresses(2)
    cluster = {"chief": [chief], "ps": [ps]}
    folder = tempfile.mkdtemp()
    tasks = {job: start(cluster, job, folder) for job in ("ps", "chief", "evaluator")}
    for job in ("chief", "evaluator"):
        print(tasks[job].communicate()[0], end="")
        print(job, "ended with", tasks[job].returncode)
        if tasks[job].returncode:
            # Without a chief the evaluator waits for the last checkpoint forever.
            for task in tasks.values():
                task.kill()
    print("parameter server is running:", tasks["ps"].poll() is None)
    tasks["ps"].kill()
    tasks["ps"].communicate()


if __name__ == "__main__":
    tf.logging.set_verbosity(tf.logging.ERROR)
    run_task(sys.argv[1]) if len(sys.argv) > 1 else main()
