"""tensorpack's `StagingInput(QueueInput(dataflow))`, run by a custom trainer; with one process or several.

The code follows its tutorials "Input Pipeline" and "Write a Trainer": a trainer sets `train_op`, registers the
callbacks of its input, and steps through `hooked_sess`. It omits the default callbacks (progress bar, summaries).
"""

from __future__ import annotations

import importlib.util
import logging
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from staging_tf1._tf import tf
from staging_tf1.bench import NotApplicable
from staging_tf1.bench.case import Case, Step
from staging_tf1.bench.systems.by_processes import AHEAD, for_processes


@contextmanager
def run(case: Case) -> Iterator[Step]:
    """Make the batches in a thread."""
    tensorpack = _tensorpack()
    with _training(
        case, tensorpack, tensorpack.dataflow.DataFromGenerator(lambda: _datapoints(case, case.seed))
    ) as step:
        yield step


@contextmanager
def processes(case: Case) -> Iterator[Step]:
    """Make the batches in `case.threads` processes, by `MultiProcessRunnerZMQ`. Each shuffles on its own.

    By default, tensorpack's socket and queue hold 50 batches each.
    """
    tensorpack = _tensorpack()
    for_processes(case)

    base: Any = tensorpack.dataflow.DataFlow

    class Flow(base):  # type: ignore[misc]
        def __iter__(self) -> Iterator[list[Any]]:
            # Seeded by the process, as in tensorpack's own random dataflows.
            yield from _datapoints(case, case.seed + os.getpid())

    flow = tensorpack.dataflow.MultiProcessRunnerZMQ(Flow(), case.threads, hwm=AHEAD)
    queue = tf.FIFOQueue(AHEAD, [tf.as_dtype(dtype) for _, dtype in case.workload.spec.values()])
    with _training(case, tensorpack, flow, queue) as step:
        yield step


def _datapoints(case: Case, seed: int) -> Iterator[list[Any]]:
    for batch in case.workload.batches(case.data, seed):
        yield [batch[name] for name in case.workload.spec]


@contextmanager
def _training(case: Case, tensorpack: Any, flow: Any, queue: Any = None) -> Iterator[Step]:
    """Yield a step on the batches of a dataflow. They pass through `queue`, or through one of tensorpack's own."""
    names, size = list(case.workload.spec), case.workload.batch_size
    signature = [
        tf.TensorSpec([size, *shape], tf.as_dtype(dtype), name) for name, (shape, dtype) in case.workload.spec.items()
    ]
    source = tensorpack.StagingInput(tensorpack.QueueInput(flow, queue))
    trainer = tensorpack.Trainer()
    trainer.register_callback(source.setup(signature))
    with tensorpack.tfutils.tower.TrainTowerContext(""):
        trainer.train_op = case.model(dict(zip(names, source.get_input_tensors())))
    trainer.setup_callbacks(callbacks=[], monitors=[])
    creator = tensorpack.tfutils.sesscreate.NewSessionCreator(config=case.config)
    trainer.initialize(creator, tensorpack.tfutils.sessinit.JustCurrentSession())

    with trainer.sess.as_default():
        # The body of the trainer's main loop, with the steps run by the benchmark.
        trainer.loop.config(steps_per_epoch=10**9, starting_epoch=1, max_epoch=1)
        trainer.loop.update_global_step()
        trainer._callbacks.before_train()
        trainer._callbacks.before_epoch()

        def step() -> Any:
            value = trainer.hooked_sess.run(trainer.train_op)
            trainer._callbacks.trigger_step()
            return value

        try:
            yield step
        finally:
            trainer._callbacks.after_train()
            trainer.hooked_sess.close()


def _tensorpack() -> Any:
    if importlib.util.find_spec("tensorpack") is None:
        raise NotApplicable("tensorpack is not installed (pip install tensorpack)")
    logging.disable(logging.INFO)  # it logs each step of its set-up
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # newer versions of Python warn about its code
            import tensorpack
            import tensorpack.dataflow
            import tensorpack.tfutils.sesscreate
            import tensorpack.tfutils.sessinit
            import tensorpack.tfutils.tower
    except Exception as error:
        raise NotApplicable(f"tensorpack cannot be imported with this TensorFlow: {error}") from error
    return tensorpack
