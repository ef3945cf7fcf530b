"""`tf.contrib.training.bucket` and `bucket_by_sequence_length`: queues that batch examples of similar length."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from staging_tf1._tf import tf

_ENDS = (tf.errors.OutOfRangeError, tf.errors.CancelledError)


def bucket(
    tensors: Any,
    which_bucket: Any,
    batch_size: Any,
    num_buckets: int,
    num_threads: int = 1,
    capacity: int = 32,
    bucket_capacities: Sequence[int] | None = None,
    shapes: Any = None,
    dynamic_pad: bool = False,
    allow_smaller_final_batch: bool = False,
    keep_input: Any = True,
    shared_name: str | None = None,
    name: str | None = None,
) -> tuple[Any, Any]:
    """Return (bucket, batch): an int32 scalar, and a batch of the examples that went into this bucket.

    `tensors` is one example, a list or a dict; the batch of a list of one tensor is a tensor. `which_bucket` is its
    bucket, an int32 scalar from 0 to num_buckets - 1. `batch_size` is one number, or one for each bucket. With
    `dynamic_pad`, each batch is padded to its longest example. Examples for which the bool scalar `keep_input` is False
    are left out.

    `tf.train.start_queue_runners` starts the threads that fill the queues.

    Raises:
      ValueError: a list of sizes or capacities does not have one element for each bucket.
      TypeError: a tensor is sparse.
    """
    sizes = _one_for_each_bucket("batch_size", batch_size, num_buckets)
    room = _one_for_each_bucket("bucket_capacities", bucket_capacities or capacity, num_buckets)
    keys, listed = _listed(tensors)
    with tf.name_scope(name, "bucket", listed) as scope:
        which_bucket = tf.convert_to_tensor(which_bucket, tf.int32)
        listed = [tf.convert_to_tensor(each) for each in listed]
        queues = _bucket_queues(listed, shapes, room, dynamic_pad, shared_name)
        one_size = None if allow_smaller_final_batch or isinstance(batch_size, (list, tuple)) else sizes[0]
        top = _top_queue(queues, capacity, one_size, shared_name)
        _add_runner(queues[0], _enqueues_to_top(queues, top, sizes, allow_smaller_final_batch), [top])
        _add_runner(top, [_enqueue_one(queues, which_bucket, listed, keep_input)] * num_threads, queues)
        tf.summary.scalar(f"fraction_of_{capacity}_full", tf.cast(top.size(), tf.float32) / capacity)
        found, *batch = top.dequeue(name=scope)
    return found, _as_given(tensors, keys, batch)


def bucket_by_sequence_length(
    input_length: Any,
    tensors: Any,
    batch_size: Any,
    bucket_boundaries: Sequence[int],
    num_threads: int = 1,
    capacity: int = 32,
    bucket_capacities: Sequence[int] | None = None,
    shapes: Any = None,
    dynamic_pad: bool = False,
    allow_smaller_final_batch: bool = False,
    keep_input: Any = True,
    shared_name: str | None = None,
    name: str | None = None,
) -> tuple[Any, Any]:
    """Return (lengths, batch) of examples whose lengths are between the same two of the `bucket_boundaries`.

    `input_length` is the length of the example, an int32 scalar, and lengths is int32 [batch_size]. The other arguments
    are those of `bucket`.

    Raises:
      TypeError: the boundaries are no list of integers.
      ValueError: there are no boundaries, or they do not increase.
    """
    _check_boundaries(bucket_boundaries)
    keys, listed = _listed(tensors)
    with tf.name_scope(name, "bucket_by_sequence_length", [input_length, *listed]):
        length = tf.convert_to_tensor(input_length, tf.int32)
        which = tf.reduce_sum(tf.cast(np.asarray(bucket_boundaries, np.int32) <= length, tf.int32))
        _, (lengths, *batch) = bucket(
            [length, *listed],
            which,
            batch_size,
            len(bucket_boundaries) + 1,
            num_threads=num_threads,
            capacity=capacity,
            bucket_capacities=bucket_capacities,
            shapes=None if shapes is None else [[], *shapes],
            dynamic_pad=dynamic_pad,
            allow_smaller_final_batch=allow_smaller_final_batch,
            keep_input=keep_input,
            shared_name=shared_name,
        )
    return lengths, _as_given(tensors, keys, batch)


def _check_boundaries(boundaries: Any) -> None:
    if not isinstance(boundaries, (list, tuple)) or not all(isinstance(one, int) for one in boundaries):
        raise TypeError(f"bucket_boundaries must be a list of integers, got {boundaries!r}")
    if not boundaries or any(one >= other for one, other in itertools.pairwise(boundaries)):
        raise ValueError(f"bucket_boundaries must increase and not be empty, got {boundaries!r}")


def _one_for_each_bucket(what: str, value: Any, buckets: int) -> list[Any]:
    if not isinstance(value, (list, tuple)):
        return [value] * buckets
    if len(value) != buckets:
        raise ValueError(f"{what} has {len(value)} elements, expected one for each of the {buckets} buckets")
    return list(value)


def _listed(tensors: Any) -> tuple[list[str] | None, list[Any]]:
    keys = sorted(tensors) if isinstance(tensors, dict) else None
    listed = [tensors[key] for key in keys] if keys is not None else tensors
    listed = list(listed) if isinstance(listed, (list, tuple)) else [listed]
    if any(isinstance(each, tf.SparseTensor) for each in listed):
        raise TypeError("bucket() of staging_tf1 takes no SparseTensor: convert it with tf.sparse.to_dense()")
    return keys, listed


def _as_given(tensors: Any, keys: list[str] | None, batch: list[Any]) -> Any:
    if keys is not None:
        return dict(zip(keys, batch))
    return batch if len(batch) > 1 else batch[0]


def _bucket_queues(listed: list[Any], shapes: Any, room: list[Any], padded: bool, shared_name: str | None) -> list[Any]:
    make = tf.PaddingFIFOQueue if padded else tf.FIFOQueue
    shapes = [each.shape for each in listed] if shapes is None else [tf.TensorShape(shape) for shape in shapes]
    return [
        make(
            capacity=capacity,
            dtypes=[each.dtype for each in listed],
            shapes=shapes,
            shared_name=None if shared_name is None else f"{shared_name}_{index}",
            name=f"bucket_queue_{index}",
        )
        for index, capacity in enumerate(room)
    ]


def _top_queue(queues: list[Any], capacity: int, batch_size: Any, shared_name: str | None) -> Any:
    batch = tf.get_static_value(batch_size) if tf.is_tensor(batch_size) else batch_size
    return tf.PaddingFIFOQueue(
        capacity=capacity,
        dtypes=[tf.int32, *queues[0].dtypes],
        shapes=[tf.TensorShape([])] + [tf.TensorShape([batch]).concatenate(shape) for shape in queues[0].shapes],
        shared_name=shared_name,
        name="top_queue",
    )


def _enqueues_to_top(queues: list[Any], top: Any, sizes: list[Any], smaller_final_batch: bool) -> list[Any]:
    enqueues = []
    for index, (queue, size) in enumerate(zip(queues, sizes)):
        taken = (queue.dequeue_up_to if smaller_final_batch else queue.dequeue_many)(size)
        taken = taken if isinstance(taken, (list, tuple)) else [taken]
        enqueues.append(top.enqueue([tf.constant(index), *taken], name=f"enqueue_from_bucket_{index}"))
    return enqueues


def _enqueue_one(queues: list[Any], which_bucket: Any, listed: list[Any], keep_input: Any) -> Any:
    def enqueue_into(index: int) -> Any:
        chosen = tf.logical_and(tf.equal(which_bucket, index), keep_input)
        return tf.cond(chosen, lambda: queues[index].enqueue(listed), tf.no_op)

    return tf.group(*(enqueue_into(index) for index in range(len(queues))), name="group_enqueues")


def _add_runner(queue: Any, enqueues: list[Any], behind: list[Any]) -> None:
    """Add a runner whose end closes the queues `behind` it. `queue` gives it the name."""
    runner = tf.train.QueueRunner(
        queue,
        enqueues,
        close_op=tf.group(*(each.close() for each in behind)),
        cancel_op=tf.group(*(each.close(cancel_pending_enqueues=True) for each in behind)),
        queue_closed_exception_types=_ENDS,
    )
    tf.train.add_queue_runner(runner)
