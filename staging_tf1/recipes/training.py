"""The training loop for a workflow and a model, and the evaluation of the trained model."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import staging_tf1 as staging
from staging_tf1._tf import tf
from staging_tf1.data import LabelledImages
from staging_tf1.recipes.curve import Curve, Point
from staging_tf1.recipes.model import Model, build_model
from staging_tf1.recipes.settings import LogdirError, Settings
from staging_tf1.recipes.workflows import WORKFLOWS, Feeding, check_workflow, examples_of

__all__ = ["Result", "train"]

# Images per test run; more would only use more memory.
_TEST_BATCH = 1000


@dataclass(frozen=True)
class Result:
    """The result of a training run."""

    # The number of training images, counted once per epoch, and the duration in seconds. On a cluster, those of this
    # worker.
    examples: int
    secs: float
    # The mean cross-entropy of each batch, in order.
    losses: list[float]
    # The number of test images, and how many are classified correctly. On a cluster, only the chief tests.
    tested: int
    correct: int
    pipelines: list[staging.PipelineStats]
    # The course of the run; empty without `Settings.plot`.
    points: list[Point] = field(default_factory=list)

    @property
    def accuracy(self) -> float:
        """The fraction of the test images that are classified correctly, from 0 to 1."""
        return self.correct / self.tested


def train(
    data: LabelledImages,
    settings: Settings,
    on_step: Callable[[int, float], None] = lambda count, loss: None,
    cluster: staging.Cluster | None = None,
) -> Result:
    """Train a classifier on `data` and test it. If `logdir` holds a checkpoint, the training resumes from it.

    `on_step` is called after each step with the number of images in the batch and their mean loss. Each worker of
    `cluster` calls this function; a parameter server calls `cluster.serves()` instead. Raises LogdirError if `logdir`
    holds the checkpoint of another model, WorkflowError if the workflow does not support the cluster.
    """
    cluster = cluster or staging.Cluster()
    check_workflow(settings, cluster)
    with tf.Graph().as_default():
        tf.set_random_seed(settings.seed)
        with cluster.device_scope():
            feeding = WORKFLOWS[settings.workflow](data, settings, cluster)
            model = build_model(
                feeding.images, feeding.labels, num_classes=data.num_classes, scale=data.scale, cluster=cluster
            )
        tf.summary.scalar("loss", model.loss)
        if cluster.is_chief:
            _check_checkpoint(settings.logdir)
        losses, examples = [], 0
        with staging.StagingSession(
            cluster=cluster, checkpoint_dir=settings.logdir, hooks=model.hooks, trace_file=settings.trace
        ) as sess:
            curve = None
            if settings.plot is not None:
                curve = Curve(math.ceil(examples_of(data, settings, cluster) / settings.batch_size), sess.stats)
            start = time.perf_counter()
            for count, loss, correct in _steps(sess, model, feeding, counts_correct=curve is not None):
                examples += count
                losses.append(loss)
                on_step(count, loss)
                if curve is not None:
                    curve.add(count, loss, correct)
            secs = time.perf_counter() - start
            tested = correct = 0
            if cluster.is_chief:
                # The model is complete when all workers have trained on their shares.
                cluster.wait_for_workers()
                tested, correct = len(data.x_test), _count_correct(sess, model, data)
            pipelines = sess.stats()
    return Result(examples, secs, losses, tested, correct, pipelines, [] if curve is None else curve.points)


def _check_checkpoint(logdir: str | None) -> None:
    """Compare the variables by name and shape. TensorFlow's own error comes late and is long."""
    checkpoint = logdir and tf.train.latest_checkpoint(logdir)
    if not checkpoint:
        return
    saved = dict(tf.train.list_variables(checkpoint))
    for variable in tf.trainable_variables():
        name, shape = variable.op.name, variable.shape.as_list()
        if saved.get(name) != shape:
            raise LogdirError(
                f"--logdir {logdir!r} holds the checkpoint of another model: variable {name} has shape "
                f"{saved.get(name, 'none')}, expected {shape}. Use another folder."
            )


def _steps(sess: Any, model: Model, feeding: Feeding, *, counts_correct: bool) -> Iterator[tuple[int, float, int]]:
    """Train batch by batch; yield the number of images, the loss and, with `counts_correct`, how many are correct."""
    step = [model.count, model.loss, model.correct if counts_correct else [], model.train_op]
    if feeding.put is None:
        yield from _until_the_end(sess, step)
    else:
        yield from _by_hand(sess, step, feeding)


def _until_the_end(sess: Any, step: list[Any]) -> Iterator[tuple[int, float, int]]:
    try:
        while not sess.should_stop():
            count, loss, correct, _ = sess.run(step)
            yield int(count), float(loss), int(correct or 0)
    except tf.errors.OutOfRangeError:
        return


def _by_hand(sess: Any, step: list[Any], feeding: Feeding) -> Iterator[tuple[int, float, int]]:
    for _ in range(feeding.warm_up):
        # Without hooks: the hook that saves summaries fetches the loss in its first run, which takes a batch.
        sess.run_step_fn(lambda step_context: step_context.session.run(feeding.put))
    for number in range(feeding.num_batches):
        # The last steps only take staged batches. A put would wait for a batch that never comes, and fail the step.
        more = number < feeding.num_batches - feeding.warm_up
        count, loss, correct, *_ = sess.run([*step, feeding.put] if more else step)
        yield int(count), float(loss), int(correct or 0)


def _count_correct(sess: Any, model: Model, data: LabelledImages) -> int:
    """Count correct classifications. Feeding the model's inputs bypasses the staging area."""
    correct = 0
    for first in range(0, len(data.x_test), _TEST_BATCH):
        part = np.s_[first : first + _TEST_BATCH]
        correct += int(sess.run(model.correct, {model.images: data.x_test[part], model.labels: data.y_test[part]}))
    return correct
