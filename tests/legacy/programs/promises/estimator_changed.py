"""Estimators whose input is staged since their last checkpoint: prints, as one JSON object, how each training begins."""
import json
import logging
import re
import shutil
import tempfile

import numpy as np
import staging_tf1 as staging
import tensorflow as tf

lines = []


class Lines(logging.Handler):
    def emit(self, record):
        if record.levelno >= logging.WARNING and re.search("first batch|position", record.getMessage()):
            lines.append(record.getMessage())


logging.getLogger("absl").addHandler(Lines())
tf.logging.set_verbosity(tf.logging.ERROR)
seen = []


def input_fn(name, mode="exact"):
    """The rows 0, 1 and so on; staged, if there is a name for it."""
    if name is None:
        return tf.data.Dataset.range(40).batch(1)
    return staging.staged(staging.sources.ArraySource(np.arange(40), batch_size=1), name=name, resume=mode)


def model_fn(features, mode, params):
    weight = tf.get_variable("weight", [], initializer=tf.zeros_initializer())
    def note(row, weight):
        seen.append([int(row[0]), float(weight)])
        return np.float32(0)

    noted = tf.py_func(note, [features, weight], tf.float32)
    with tf.control_dependencies([noted]):
        train_op = tf.group(weight.assign_add(1.0), tf.train.get_global_step().assign_add(1))
    scaffold = None
    if params["partial"]:
        scaffold = tf.train.Scaffold(saver=tf.train.Saver([weight, tf.train.get_global_step()]))
    return tf.estimator.EstimatorSpec(mode, loss=noted, train_op=train_op, scaffold=scaffold)


def ran(folder, call="train", partial=False, **given):
    """Train two steps, or evaluate; return what it saw and said."""
    del seen[:], lines[:]
    model = tf.estimator.Estimator(model_fn, folder, params={"partial": partial})
    steps = 3 if call == "first" else 2
    method = model.evaluate if call == "evaluate" else model.train
    error = None
    try:
        method(lambda: input_fn(**given), steps=steps)
    except (staging.errors.StagingError, RuntimeError) as raised:
        error = "%s: %s" % (type(raised).__name__, raised)
    return {"seen": list(seen), "lines": list(lines), "error": error}


report = {}
for old, modes in ((None, ("exact", "ignore")), ("a", ("exact", "restart")), ("old", ("ignore",))):
    before = tempfile.mkdtemp()
    ran(before, "first", name=old)
    for mode in modes:
        folder = tempfile.mkdtemp() + "/copy"
        shutil.copytree(before, folder)
        # An evaluation reads from its first batch, whatever the checkpoint has.
        report["%s, %s, evaluated" % (old, mode)] = ran(folder, "evaluate", name="a", mode=mode)
        report["%s, %s" % (old, mode)] = ran(folder, name="a", mode=mode)
folder = tempfile.mkdtemp()
report["partial, first"] = ran(folder, "first", partial=True, name="a")
for mode in ("exact", "ignore", "restart"):
    report["partial, %s" % mode] = ran(folder, partial=True, name="a", mode=mode)
print(json.dumps(report))
