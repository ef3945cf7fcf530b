"""Written by hand: a warm start from another model, more metrics, a saving listener, early stopping, and a resumed run."""
import tempfile

import numpy as np
import tensorflow as tf
from common import NumpyWeights, show

tf.logging.set_verbosity(tf.logging.ERROR)

rng = np.random.RandomState(4)
x = rng.normal(size=(120, 5)).astype(np.float32)
y = (x[:, 0] * x[:, 1] > 0).astype(np.int32)
columns = [tf.feature_column.numeric_column("x", shape=[5])]


def input_fn(epochs):
    def build():
        return tf.data.Dataset.from_tensor_slices(({"x": x}, y)).repeat(epochs).batch(30)

    return build


class Saved(tf.train.CheckpointSaverListener):
    def after_save(self, session, global_step_value):
        print("saved at step", global_step_value)


def metrics(labels, predictions, features):
    first = tf.reduce_mean(features["x"], axis=1)
    return {
        "mean_of_x": tf.metrics.mean(first),
        "right": tf.metrics.mean_per_class_accuracy(labels, predictions["class_ids"], 2),
    }


first = tf.estimator.DNNClassifier([8], columns, tempfile.mkdtemp(), optimizer=tf.train.AdamOptimizer(0.02))
first.train(input_fn(None), hooks=[NumpyWeights()], steps=15, saving_listeners=[Saved()])
show("first", first.evaluate(input_fn(1)))
first.train(input_fn(None), max_steps=30, saving_listeners=[Saved()])
show("resumed", first.evaluate(input_fn(1), name="again"))

settings = tf.estimator.WarmStartSettings(
    first.model_dir,
    vars_to_warm_start="dnn/(hiddenlayer_0|logits)/.*",
)
second = tf.estimator.DNNClassifier(
    [8], columns, tempfile.mkdtemp(), optimizer=tf.train.AdagradOptimizer(0.05), warm_start_from=settings
)
second = tf.estimator.add_metrics(second, metrics)
second.train(input_fn(1))
show("warm", second.evaluate(input_fn(1)))

third = tf.estimator.DNNClassifier([8], columns, tempfile.mkdtemp(), warm_start_from=second.model_dir)
hook = tf.estimator.experimental.stop_if_higher_hook(second, "right", 0.5, run_every_secs=None, run_every_steps=1)
third.train(input_fn(None), hooks=[hook], max_steps=50)
kernel = third.get_variable_value("dnn/logits/kernel")
print("stopped at step %d, %.5f" % (third.get_variable_value("global_step"), np.abs(kernel).sum()))
