"""Estimators whose input is staged: prints, as one JSON object, which rows each session saw, and how errors end."""
import json
import re
import os
import signal
import tempfile
import threading

import numpy as np
import staging_tf1 as staging
import tensorflow as tf

tf.logging.set_verbosity(tf.logging.ERROR)
seen = []


def source(first, rows, epochs):
    row = np.arange(first, first + rows)
    return staging.sources.ArraySource({"row": row}, batch_size=4, epochs=epochs, shuffle=True, seed=1)


def train_fn():
    return staging.staged(source(0, 40, None), name="train")


def check_fn():
    return staging.staged(source(100, 12, 1), name="check")


def check_fn_of_the_same_name():
    return staging.staged(source(100, 12, 1), name="train")


def model_fn(features, mode):
    if mode == tf.estimator.ModeKeys.PREDICT:
        return tf.estimator.EstimatorSpec(mode, predictions=features)
    noted = tf.py_func(lambda rows: (seen.append(rows.tolist()), np.float32(0))[1], [features["row"]], tf.float32)
    weight = tf.get_variable("weight", [], initializer=tf.zeros_initializer())
    loss = tf.square(weight - 1.0) + noted
    train_op = tf.train.GradientDescentOptimizer(0.1).minimize(loss, tf.train.get_global_step())
    return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=train_op)


def staging_model_fn(features, mode):
    return model_fn(staging.staged(features), mode)


def estimator(function=model_fn):
    return tf.estimator.Estimator(function, tempfile.mkdtemp(), tf.estimator.RunConfig(save_checkpoints_steps=3))


def rows_of(call):
    del seen[:]
    call()
    return list(seen)


def ended(call):
    try:
        call()
    except (RuntimeError, staging.errors.StagingError, KeyboardInterrupt) as error:
        return "%s: %s" % (type(error).__name__, error)


def failing():
    yield {"row": np.zeros(4, np.int64)}
    raise RuntimeError("the disk is gone")


def interrupting():
    yield {"row": np.zeros(4, np.int64)}
    # A Ctrl-C before the first step would fall into the creation of the session.
    stepped.wait(20)
    os.kill(os.getpid(), signal.SIGINT)
    stopped.wait(20)
    yield {"row": np.zeros(4, np.int64)}


class WhenInterrupted(tf.train.SessionRunHook):
    """Lets the source go on when the session stops."""

    def after_create_session(self, session, coord):
        threading.Thread(target=lambda: (coord.wait_for_stop(), stopped.set()), daemon=True).start()

    def after_run(self, run_context, run_values):
        stepped.set()


stepped, stopped = threading.Event(), threading.Event()
threads = set(threading.enumerate())
model = estimator()
report = {"first run": rows_of(lambda: model.train(train_fn, steps=7))}
report["second run"] = rows_of(lambda: model.train(train_fn, steps=5, hooks=[staging.StagingHook()]))
report["evaluation"] = rows_of(lambda: model.evaluate(check_fn))
report["evaluation, same name"] = rows_of(lambda: model.evaluate(check_fn_of_the_same_name))
report["prediction"] = [int(each["row"]) for each in model.predict(check_fn)]
both = estimator()
train_spec = tf.estimator.TrainSpec(train_fn, max_steps=6)
eval_spec = tf.estimator.EvalSpec(check_fn, steps=None, start_delay_secs=0, throttle_secs=0)
report["both"] = rows_of(lambda: tf.estimator.train_and_evaluate(both, train_spec, eval_spec))
report["variables"] = model.get_variable_names()


def dataset_fn():
    return tf.data.Dataset.range(12).batch(4).map(lambda row: {"row": row})


report["staged in the model_fn"] = rows_of(lambda: estimator(staging_model_fn).train(dataset_fn))
report["lockstep"] = rows_of(lambda: estimator().train(lambda: staging.staged(dataset_fn(), lockstep=True)))
report["failed"] = ended(lambda: estimator().train(lambda: staging.staged(failing)))
report["interrupted"] = ended(
    lambda: estimator().train(lambda: staging.staged(interrupting), hooks=[WhenInterrupted()])
)
cluster = staging.Cluster({"worker": ["127.0.0.1:1"], "ps": ["127.0.0.1:2"]}, "worker", 0)
report["in a cluster"] = ended(
    lambda: estimator().train(lambda: staging.staged(source(0, 4, 1), name="shared", cluster=cluster))
)
# TensorFlow keeps the writers of summaries, and the process the threads that watch its sessions and signals.
left = [each for each in set(threading.enumerate()) - threads if not re.search("EventLogger|staging:(program|interrupt)", each.name)]
for each in left:
    each.join(20)
report["threads"] = sorted(each.name for each in left if each.is_alive())
print(json.dumps(report))
