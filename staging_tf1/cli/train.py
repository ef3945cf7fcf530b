"""`staging-tf1 train`: a small training program, to read as an example. It uses only public names of the package.

TensorFlow is imported within the functions, because `--help` should not wait for it. Other programs import it at the
top.
"""

from __future__ import annotations

import argparse
import math
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from tqdm import tqdm

import staging_tf1 as staging
from staging_tf1.arguments import folder, scheme_of
from staging_tf1.cli.arguments import OneLineParser, complain, local_path, whole_number
from staging_tf1.cluster.layout import Layout
from staging_tf1.data import DataFileError, LabelledImages, load_images
from staging_tf1.errors import CheckpointError, ClusterError, ResumeError, StagingError
from staging_tf1.progress import is_terminal
from staging_tf1.quiet import import_quietly

_PROG = "staging-tf1 train"
_SEED = 0
_HIDDEN_UNITS = 128
# With Adam's usual 0.001, the digits need three times as many steps.
_LEARNING_RATE = 0.003
# Images per test run; more would only use more memory.
_TEST_BATCH = 1000


def classic(source: Any, batch_size: int) -> tuple[dict[str, Any], Any]:
    """Use a feed thread, a queue that shuffles the images, and a staging area. The training loop runs its put."""
    batch = staging.CustomRunner(source, seed=_SEED, name="classic").get_inputs(batch_size)
    area = staging.StagingArea.from_tensors(batch, capacity=2)
    put = area.put(batch)
    return area.get(), put


def staged(source: Any, batch_size: int) -> tuple[dict[str, Any], None]:
    """Use `staged()`: the same in one call. The source shuffles and makes the batches."""
    return staging.staged(source, capacity=2, name="staged"), None


# Each returns the tensors of one batch, and the put that the training loop runs by hand, if any.
WORKFLOWS: dict[str, Callable[[Any, int], tuple[dict[str, Any], Any]]] = {"classic": classic, "staged": staged}


def classifier(images: Any, labels: Any, num_classes: int, scale: float) -> tuple[Any, Any]:
    """Return the mean cross-entropy of two dense layers, and how many of the labels they predict.

    Images are [B, ...] and are divided by `scale`; labels are int32 [B]. `tf.layers` would be shorter, but it raises
    with Keras 3, which is part of TensorFlow 2.16 and later.
    """
    from staging_tf1._tf import tf

    def dense(name: str, inputs: Any, units: int) -> Any:
        with tf.variable_scope(name):
            weights = tf.get_variable("weights", [inputs.shape[1], units], initializer=tf.initializers.glorot_uniform())
            return tf.matmul(inputs, weights) + tf.get_variable("bias", [units], initializer=tf.initializers.zeros())

    pixels = tf.cast(images, tf.float32) / scale
    flat = tf.reshape(pixels, [-1, pixels.shape[1:].num_elements()])
    logits = dense("logits", tf.nn.relu(dense("hidden", flat, _HIDDEN_UNITS)), num_classes)
    loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits))
    right = tf.equal(tf.argmax(logits, axis=1, output_type=tf.int32), labels)
    return loss, tf.reduce_sum(tf.cast(right, tf.int32))


@dataclass(frozen=True)
class Result:
    """The mean cross-entropy of each batch, the time in seconds, and the numbers of images.

    `examples` counts the training images once per epoch; `correct` of the `tested` images are classified correctly.
    """

    losses: list[float]
    secs: float
    examples: int
    tested: int
    correct: int
    pipelines: list[staging.PipelineStats]


class LogdirError(StagingError, ValueError):
    """The folder for checkpoints cannot be used."""


def train(
    data: LabelledImages,
    workflow: str = "staged",
    batch_size: int = 32,
    epochs: int = 30,
    logdir: str | None = None,
    on_step: Callable[[int, float], None] = lambda count, loss: None,
) -> Result:
    """Train a classifier on `data` and test it. If `logdir` holds a checkpoint, the training resumes from it.

    `on_step` is called after each step with the number of images in the batch and their mean loss.

    Raises:
      LogdirError: `logdir` is on a file system that TensorFlow does not know.
      CheckpointError: it holds the checkpoint of another model.
    """
    from staging_tf1._tf import tf

    try:
        if logdir is not None:
            folder("", "--logdir", logdir, tf.io.gfile.get_registered_schemes())
    except ValueError as error:
        raise LogdirError(str(error).strip()) from None
    source = staging.sources.ArraySource(
        {"image": data.x_train, "label": data.y_train},
        batch_size=batch_size,
        # The queue of the classic workflow shuffles.
        shuffle=workflow != "classic",
        seed=_SEED,
        epochs=epochs,
    )
    with tf.Graph().as_default():
        tf.set_random_seed(_SEED)
        batch, put = WORKFLOWS[workflow](source, batch_size)
        # The test feeds other numbers of images than a batch has.
        images = tf.placeholder_with_default(batch["image"], [None, *data.x_train.shape[1:]])
        labels = tf.placeholder_with_default(batch["label"], [None])
        loss, right = classifier(images, labels, data.num_classes, data.scale)
        global_step = tf.train.get_or_create_global_step()
        train_op = tf.train.AdamOptimizer(_LEARNING_RATE).minimize(loss, global_step=global_step)
        tf.summary.scalar("loss", loss)
        step, losses, examples = [tf.size(labels), loss, train_op], [], 0
        with staging.StagingSession(checkpoint_dir=logdir) as sess:
            start = time.perf_counter()
            num_batches = math.ceil(len(data.x_train) * epochs / batch_size)
            steps = _until_the_end(sess, step) if put is None else _by_hand(sess, step, put, num_batches)
            for count, mean, _ in steps:
                examples += int(count)
                losses.append(float(mean))
                on_step(int(count), float(mean))
            secs, correct = time.perf_counter() - start, 0
            for first in range(0, len(data.x_test), _TEST_BATCH):
                part = np.s_[first : first + _TEST_BATCH]
                # Feeding images and labels bypasses the staging area.
                correct += int(sess.run(right, {images: data.x_test[part], labels: data.y_test[part]}))
            pipelines = sess.stats()
    return Result(losses, secs, examples, len(data.x_test), correct, pipelines)


def _until_the_end(sess: Any, step: list[Any]) -> Iterator[list[Any]]:
    """Run steps until the end of the data. The session stages the batches."""
    from staging_tf1._tf import tf

    try:
        while not sess.should_stop():
            yield sess.run(step)
    except tf.errors.OutOfRangeError:
        return


def _by_hand(sess: Any, step: list[Any], put: Any, num_batches: int) -> Iterator[list[Any]]:
    """Run steps that put the next batch. The number of batches must be known: the last step has none to put."""
    # The warm-up, without hooks: the hook that saves summaries fetches the loss in its first run, which takes a batch.
    sess.run_step_fn(lambda step_context: step_context.session.run(put))
    for _ in range(num_batches - 1):
        yield sess.run([*step, put])[:-1]
    yield sess.run(step)


def make_parser() -> argparse.ArgumentParser:
    """Return the parser of `train`."""
    parser = OneLineParser(
        prog=_PROG,
        description="Trains a small model on images of handwritten digits, and reports how well its input kept up.",
        epilog="examples:\n  staging-tf1 train\n  staging-tf1 train --workflow classic --epochs 10\n"
        "  staging-tf1 train --data mnist.npz --epochs 2 --batch-size 128 --logdir /tmp/mnist\n",
    )
    add, count = parser.add_argument, whole_number(1, 10**6)
    workflows = "classic: a feed thread, a shuffle queue, a staging area and its put; staged: staged()"
    add("--workflow", choices=list(WORKFLOWS), default="staged", help=f"{workflows} (default: %(default)s)")
    columns = "x_train, y_train, x_test and y_test"
    add(
        "--data",
        type=local_path,
        metavar="FILE.npz",
        help=f"an .npz file with {columns} (default: the 1,797 UCI digits)",
    )
    add("--epochs", type=count, default=30, metavar="N", help="passes over the training data (default: %(default)s)")
    add("--batch-size", type=count, default=32, metavar="N", help="examples per batch (default: %(default)s)")
    add("--logdir", metavar="FOLDER", help="write checkpoints and TensorBoard summaries to FOLDER")
    return parser


def main(argv: list[str]) -> int:
    """Train and print the results. Return 1 if a file or folder cannot be used, 130 if interrupted."""
    flags = vars(make_parser().parse_args(argv))
    try:
        # Before TensorFlow is imported, which takes seconds.
        if Layout.from_tf_config(os.environ.get("TF_CONFIG")).is_distributed:
            raise ClusterError(
                "TF_CONFIG describes a cluster, but each task would train a model of its own. Unset TF_CONFIG; "
                "examples/cluster.py trains one model on a cluster."
            )
        data = load_images(flags.pop("data"))
        _make_folder(flags["logdir"])
        import_quietly()
        _train(data, **flags)
    except ResumeError as error:
        # Its advice is for programs.
        told = str(error).partition(" Give staged()")[0]
        cure = "Use the --data and --batch-size of that run, or another folder."
        complain(_PROG, f"--logdir {flags['logdir']!r} holds a run on other batches. {told} {cure}")
        return 1
    except CheckpointError as error:
        complain(_PROG, f"--logdir {flags['logdir']!r}: {error}")
        return 1
    except (ClusterError, DataFileError, LogdirError) as error:
        complain(_PROG, error)
        return 1
    except KeyboardInterrupt:
        complain(_PROG, "interrupted")
        return 130
    return 0


def _make_folder(path: str | None) -> None:
    if path is None or scheme_of(path):  # TensorFlow makes the folder of another file system
        return
    try:
        os.makedirs(path, exist_ok=True)
    except OSError as error:
        raise LogdirError(f"--logdir {path!r} cannot be created: {error.strerror}. Choose another folder.") from error
    if not os.access(path, os.W_OK | os.X_OK):
        raise LogdirError(f"--logdir {path!r} is not writable. Choose another folder.")


def _train(data: LabelledImages, *, workflow: str, epochs: int, **options: Any) -> None:
    """Train with a progress bar, and print the results: the pipelines first, the accuracy last."""
    from staging_tf1._tf import tf

    # In graph mode TensorFlow warns at length that its queue runners are deprecated, which does not help here.
    tf.logging.set_verbosity(tf.logging.ERROR)
    # In a file, each state of the bar remains.
    every = 0.1 if is_terminal() else 2.0
    total = len(data.x_train) * epochs
    with tqdm(total=total, desc=workflow, unit=" examples", unit_scale=True, mininterval=every) as bar:

        def on_step(count: int, loss: float) -> None:
            bar.set_postfix(loss=f"{loss:.4f}", refresh=False)
            bar.update(count)

        result = train(data, workflow, epochs=epochs, on_step=on_step, **options)
    for pipeline in result.pipelines:
        print(pipeline)
    print(f"trained on {result.examples:,} examples in {result.secs:.1f} s")
    print(f"test accuracy {result.correct / result.tested:.3f} ({result.correct} of {result.tested})")
