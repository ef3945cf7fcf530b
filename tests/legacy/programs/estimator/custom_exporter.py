"""train_and_evaluate with exporters: one of its own class, the best one, the latest ones and the final one."""
from __future__ import absolute_import, division, print_function

import os
import tempfile

import numpy as np
import tensorflow as tf
from common import show


class NotesExporter(tf.estimator.Exporter):
    """Writes the metrics of each evaluation next to an export."""

    def __init__(self, name, receiver_fn):
        self._name, self._receiver_fn = name, receiver_fn

    @property
    def name(self):
        return self._name

    def export(self, estimator, export_path, checkpoint_path, eval_result, is_the_final_export):
        tf.gfile.MakeDirs(export_path)
        exported = estimator.export_savedmodel(export_path, self._receiver_fn, checkpoint_path=checkpoint_path)
        step, loss = eval_result["global_step"], eval_result["average_loss"]
        print("export at step %d, loss %.5f, final %s" % (step, loss, is_the_final_export))
        return exported


def receiver_fn():
    x = tf.placeholder(tf.float32, [None, 2], name="x")
    return tf.estimator.export.ServingInputReceiver({"x": x}, x)


def main(_):
    rng = np.random.RandomState(3)
    x = rng.uniform(-1, 1, (64, 2)).astype(np.float32)
    y = (x[:, :1] * 3 - x[:, 1:] + 0.5).astype(np.float32)

    def input_fn(epochs):
        return tf.data.Dataset.from_tensor_slices(({"x": x}, y)).repeat(epochs).batch(16)

    folder = tempfile.mkdtemp()
    estimator = tf.estimator.LinearRegressor(
        [tf.feature_column.numeric_column("x", shape=[2])],
        optimizer=tf.train.GradientDescentOptimizer(0.01),
        config=tf.estimator.RunConfig(model_dir=folder, save_checkpoints_steps=10, keep_checkpoint_max=2),
    )
    exporters = [
        NotesExporter("notes", receiver_fn),
        tf.estimator.BestExporter("best", receiver_fn, exports_to_keep=1),
        tf.estimator.LatestExporter("latest", receiver_fn, exports_to_keep=2),
        tf.estimator.FinalExporter("final", receiver_fn),
    ]
    train_spec = tf.estimator.TrainSpec(lambda: input_fn(None), max_steps=30)
    eval_spec = tf.estimator.EvalSpec(lambda: input_fn(1), exporters=exporters, start_delay_secs=0, throttle_secs=0)
    metrics, exported = tf.estimator.train_and_evaluate(estimator, train_spec, eval_spec)
    show("test", metrics)
    print(len(exported), [len(tf.gfile.ListDirectory(os.path.join(folder, "export", each.name))) for each in exporters])
    with tf.Session(graph=tf.Graph()) as sess:
        loaded = tf.saved_model.loader.load(sess, ["serve"], exported[-1].decode())
        signature = loaded.signature_def["predict"]
        fed = {signature.inputs["input"].name: [[1.0, 1.0], [0.0, -1.0]]}
        print(" ".join("%.5f" % value for value in sess.run(signature.outputs["predictions"].name, fed)[:, 0]))


if __name__ == "__main__":
    tf.logging.set_verbosity(tf.logging.ERROR)
    tf.app.run()
