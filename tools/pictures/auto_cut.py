"""Where `auto_stage()` cuts a graph: pictures that a program decodes and augments within its step."""

from __future__ import annotations

from collections import Counter
from typing import Any

_TITLE = "Where auto_stage() cuts a graph that decodes and augments JPEGs"
# Kinds that a reader knows from the program, in the order of the program.
_SHOWN = (
    "IteratorGetNext",
    "DecodeJpeg",
    "RandomUniform",
    "ReverseV2",
    "ResizeBilinear",
    "While loop",
    "ConcatV2",
    "Reshape",
)


def draw() -> str:
    """Return the picture, from a dry run on a real graph."""
    report = _dry_run()
    kinds = Counter(report.kinds)
    kinds["While loop"] = kinds["LoopCond"]
    shown = [name for name in _SHOWN if kinds[name]]
    return str(report.to_svg(_TITLE, [f"{kinds[name]} x {name}" for name in shown]))


def _dry_run() -> Any:
    import tensorflow.compat.v1 as tf

    import staging_tf1 as staging

    tf.disable_control_flow_v2()  # as `staging-tf1 run` does for TensorFlow 1 programs
    with tf.Graph().as_default():
        jpegs = tf.data.Dataset.range(64).map(lambda i: tf.io.encode_jpeg(tf.zeros([64, 64, 3], tf.uint8)))
        batch = tf.data.make_one_shot_iterator(jpegs.batch(8)).get_next()

        def augmented(jpeg: Any) -> Any:
            image = tf.image.random_flip_left_right(tf.image.decode_jpeg(jpeg, channels=3))
            return tf.image.resize(tf.image.convert_image_dtype(image, tf.float32), [32, 32])

        images = tf.reshape(tf.map_fn(augmented, batch, dtype=tf.float32), [8, 32 * 32 * 3])
        weights = tf.get_variable("weights", [32 * 32 * 3, 10], use_resource=True)
        loss = tf.reduce_mean(tf.square(tf.matmul(images, weights)))
        tf.train.GradientDescentOptimizer(0.1).minimize(loss)
        return staging.auto_stage(dry_run=True)


if __name__ == "__main__":
    print(draw())
