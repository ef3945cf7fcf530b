"""tensorpack's `StagingInput(QueueInput(dataflow))`, run by a custom trainer.

The code follows its tutorials "Input Pipeline" and "Write a Trainer": a trainer sets `train_op`, registers the
callbacks of its input, and steps through `hooked_sess`. It omits the default callbacks (progress bar, summaries).
"""

from __future__ import annotations

import importlib.util
import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from staging_tf1._tf import tf
from staging_tf1.bench.errors import NotApplicable
from staging_tf1.bench.task import Step, Task


@contextmanager
def run(task: Task) -> Iterator[Step]:
    tensorpack = _tensorpack()
    names, size = list(task.workload.spec), task.workload.batch_size
    signature = [
        tf.TensorSpec([size, *shape], tf.as_dtype(dtype), name) for name, (shape, dtype) in task.workload.spec.items()
    ]

    def datapoints() -> Iterator[list[Any]]:
        for batch in task.workload.batches(task.data, task.seed):
            yield [batch[name] for name in names]

    flow = tensorpack.dataflow.DataFromGenerator(datapoints)
    source = tensorpack.StagingInput(tensorpack.QueueInput(flow))
    trainer = tensorpack.Trainer()
    trainer.register_callback(source.setup(signature))
    with tensorpack.tfutils.tower.TrainTowerContext(""):
        trainer.train_op = task.model(dict(zip(names, source.get_input_tensors())))
    trainer.setup_callbacks(callbacks=[], monitors=[])
    creator = tensorpack.tfutils.sesscreate.NewSessionCreator(config=task.config)
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
