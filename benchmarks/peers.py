"""The systems of other projects: tf.data, Grain, PyTorch and tensorpack. Adds them to `SYSTEMS`.

The worker processes of Grain and PyTorch are started by spawn. They get our source, which makes batch k for any k, so
the order of their batches is ours, too.
"""

from __future__ import annotations

import importlib
import importlib.util
import itertools
import logging
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import tensorflow.compat.v1 as tf
from common import Step
from systems import SYSTEMS, Case, feeding, system, threaded
from transforms import Numbered
from workloads import WORKLOADS, NotApplicable

__all__ = ["SYSTEMS"]

# Batches that each worker process has ready. With larger buffers, most batches could be made before the measurement.
AHEAD = 2


@system
def from_generator(case: Case) -> Iterator[Step]:
    """tf.data.Dataset.from_generator, prefetch."""
    size = case.workload.batch_size
    spec = {
        name: tf.TensorSpec([size, *shape], tf.as_dtype(dtype)) for name, (shape, dtype) in case.workload.spec.items()
    }
    dataset = tf.data.Dataset.from_generator(case.batches, output_signature=spec)
    with _iterating(case, dataset.prefetch(tf.data.AUTOTUNE), {}) as step:
        yield step


@threaded()
def py_function(case: Case) -> Iterator[Step]:
    """tf.data: our source in a tf.py_function, num_parallel_calls=N, prefetch."""
    source, names = case.workload.source(case.data, case.seed), list(case.workload.spec)

    def make(number: Any) -> list[Any]:
        batch = case.workload.named(source.batch(int(number)))
        return [np.asarray(batch[name]) for name in names]

    def in_graph(number: Any) -> dict[str, Any]:
        tensors = tf.py_function(make, [number], case.dtypes)
        for tensor, (shape, _) in zip(tensors, case.workload.spec.values()):
            tensor.set_shape([case.workload.batch_size, *shape])
        return dict(zip(names, tensors))

    # tf.data keeps the order of the batches.
    dataset = tf.data.Dataset.range(2**62).map(in_graph, num_parallel_calls=case.threads)
    with _iterating(case, dataset.prefetch(tf.data.AUTOTUNE), {}) as step:
        yield step


@system
def tf_data(case: Case) -> Iterator[Step]:
    """tf.data in TensorFlow ops, prefetch; W5: front to back."""
    with _iterating(case, *case.workload.dataset(case.data, case.seed)) as step:
        yield step


@system
def tf_data_shuffled(case: Case) -> Iterator[Step]:
    """W5: tf.data with a shuffle buffer of 10,000 records."""
    with _iterating(case, *case.workload.shuffled_dataset(case.data, case.seed)) as step:
        yield step


@contextmanager
def _iterating(case: Case, dataset: Any, feeds: dict[Any, Any]) -> Iterator[Step]:
    """Yield a step on the batches of `dataset`, whose iterator is initialized with `feeds`."""
    iterator = tf.data.make_initializable_iterator(dataset)
    fetches = case.model(iterator.get_next())
    with case.session() as session:
        session.run(iterator.initializer, feeds)
        yield session.make_callable(fetches)


@threaded()
def grain_mp(case: Case) -> Iterator[Step]:
    """Our source in Grain's mp_prefetch, and feed_dict."""
    grain = _for_processes(case, "grain")
    source = Numbered(case.workload.maker(case.data, case.seed))
    # One thread in each process: the default of 16 would share one GIL.
    reading = grain.ReadOptions(num_threads=1, prefetch_buffer_size=AHEAD)
    workers = grain.MultiprocessingOptions(num_workers=case.threads, per_worker_buffer_size=AHEAD)
    numbers = grain.MapDataset.range(len(source))
    batches = iter(numbers.map(source.__getitem__).to_iter_dataset(reading).mp_prefetch(workers))
    try:
        with feeding(case, batches) as step:
            yield step
    finally:
        batches.close()


@threaded()
def torch_loader(case: Case) -> Iterator[Step]:
    """Our source in PyTorch's DataLoader, and feed_dict."""
    torch = _for_processes(case, "torch")
    loader = torch.utils.data.DataLoader(
        Numbered(case.workload.maker(case.data, case.seed)),
        batch_size=None,  # the elements are batches
        sampler=itertools.count(),
        num_workers=case.threads,
        prefetch_factor=AHEAD,
        multiprocessing_context="spawn",  # a fork would copy the locks of TensorFlow's threads
    )
    # The tensors are fed as numpy arrays on the same memory.
    with feeding(case, ({name: tensor.numpy() for name, tensor in batch.items()} for batch in loader)) as step:
        yield step


def _for_processes(case: Case, module: str) -> Any:
    """Return a package, or raise NotApplicable if it is missing or a batch takes too little work for its processes."""
    if not case.workload.for_processes:
        suited = ", ".join(name for name, other in WORKLOADS.items() if other.for_processes)
        raise NotApplicable(f"its worker processes are measured on {suited}, where they may help")
    return _import_named(module)


def _import_named(module: str) -> Any:
    if importlib.util.find_spec(module) is None:
        raise NotApplicable(f"{module} is not installed (pip install {module})")
    return importlib.import_module(module)


@system
def tensorpack(case: Case) -> Iterator[Step]:
    """tensorpack's QueueInput and StagingInput."""
    flow = _tensorpack().dataflow.DataFromGenerator(lambda: _datapoints(case, case.seed))
    with _training(case, flow) as step:
        yield step


# Processes that were forked beside TensorFlow's threads may wait for a lock forever.
@threaded(limit_secs=60.0)
def tensorpack_zmq(case: Case) -> Iterator[Step]:
    """tensorpack's MultiProcessRunnerZMQ, which forks; each process shuffles on its own."""
    _for_processes(case, "tensorpack")
    dataflow = _tensorpack().dataflow

    class Flow(dataflow.DataFlow):
        def __iter__(self) -> Iterator[list[Any]]:
            # Seeded by the process, as in tensorpack's own random dataflows.
            yield from _datapoints(case, case.seed + os.getpid())

    # By default, tensorpack's socket and queue hold 50 batches each.
    flow = dataflow.MultiProcessRunnerZMQ(Flow(), case.threads, hwm=AHEAD)
    with _training(case, flow, tf.FIFOQueue(AHEAD, case.dtypes)) as step:
        yield step


def _datapoints(case: Case, seed: int) -> Iterator[list[Any]]:
    for batch in case.workload.batches(case.data, seed):
        yield [batch[name] for name in case.workload.spec]


@contextmanager
def _training(case: Case, flow: Any, queue: Any = None) -> Iterator[Step]:
    """Yield a step on the batches of a dataflow. They pass through `queue`, or through one of tensorpack's own.

    It follows tensorpack's tutorials "Input Pipeline" and "Write a Trainer", without the default callbacks (progress
    bar, summaries).
    """
    tensorpack = _tensorpack()
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
    logging.disable(logging.INFO)  # it logs each step of its set-up
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # newer versions of Python warn about its code
        package = _import_named("tensorpack")
        try:
            for module in ("dataflow", "tfutils.sesscreate", "tfutils.sessinit", "tfutils.tower"):
                importlib.import_module(f"tensorpack.{module}")
        except Exception as error:
            raise NotApplicable(f"tensorpack cannot be imported with this TensorFlow: {error}") from error
    return package
