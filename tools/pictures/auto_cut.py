"""Where `auto_stage()` cuts a graph: pictures that a program decodes and augments within its step."""

from __future__ import annotations

from collections import Counter
from typing import Any

from svg import Picture

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
    used = [each for each in report.boundary if each.reason == "the step uses it"]
    picture = Picture(920, 150 + 34 * max(len(shown) + 1, len(used) + 2), _TITLE)
    _ahead(picture, len(report.moved), [f"{kinds[name]} x {name}" for name in shown])
    _area(picture, [(each.name, f"{each.dtype} {each.shape}, {each.bytes:,} bytes") for each in used])
    _step(picture, [reason for reason, _ in report.blocked])
    picture.arrow("M 300 120 H 340", "ours")
    picture.arrow("M 620 120 H 660", "ours")
    return picture.svg()


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


def _ahead(picture: Picture, ops: int, lines: list[str]) -> None:
    picture.box(20, 50, 280, 40 + 34 * (len(lines) + 1), style="group")
    picture.text(35, 38, f"runs ahead, in a feed thread: {ops} ops", "head")
    for number, line in enumerate([*lines, "..."]):
        picture.box(40, 65 + 34 * number, 240, 28, line, "ours")


def _area(picture: Picture, tensors: list[tuple[str, str]]) -> None:
    picture.text(345, 38, "carried to the step, in a staging area", "head")
    for number, (name, size) in enumerate(tensors):
        picture.box(340, 90 + 60 * number, 280, 52, f"{name}\n{size}", "good")


def _step(picture: Picture, reasons: list[str]) -> None:
    picture.text(665, 38, "the step keeps what follows", "head")
    for number, reason in enumerate(reasons[:3]):
        name, why = reason.removeprefix("'").split("' ", 1)
        picture.box(660, 90 + 60 * number, 240, 52, f"{name.split('/')[-1]}\n{why}")


if __name__ == "__main__":
    print(draw())
