"""Examples with sequences: checks of their tensors, padding, and segments of `num_unroll` time steps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from staging_tf1._tf import tf


class Example(NamedTuple):
    """One example: scalars for its key and its length, and dicts of tensors by name."""

    key: Any
    length: Any
    sequences: dict[str, Any]
    context: dict[str, Any]
    states: dict[str, Any]


def named(what: str, tensors: Any, time_steps: bool = False) -> dict[str, Any]:
    """Return the tensors of a dict, sorted by name.

    Args:
      what: the name of the argument.
      tensors: tensors, or what TensorFlow converts to tensors.
      time_steps: whether the first dimension is the time, which may be unknown.

    Raises:
      TypeError: this is no dict with strings as keys, or a tensor is sparse.
      ValueError: a shape is not fully defined.
    """
    if not isinstance(tensors, dict):
        raise TypeError(f"{what} must be a dict of tensors, got {tensors!r}")
    for name, value in tensors.items():
        if not isinstance(name, str):
            raise TypeError(f"{what} must have strings as keys, got {name!r}")
        if isinstance(value, (tf.SparseTensor, tf.SparseTensorValue)):
            raise TypeError(f"{what}[{name!r}] is sparse: convert it with tf.sparse.to_dense()")
    made = {name: tf.convert_to_tensor(tensors[name], name=what) for name in sorted(tensors)}
    for name, tensor in made.items():
        if time_steps and tensor.shape.rank == 0:
            raise ValueError(f"{what}[{name!r}] is a scalar, expected time steps in its first dimension")
        if not tensor.shape[int(time_steps) :].is_fully_defined():
            after = " after its first dimension" if time_steps else ""
            raise ValueError(f"{what}[{name!r}] has the shape {tensor.shape}, expected a fully defined shape{after}")
    return made


def scalar(what: str, value: Any, dtype: Any) -> Any:
    """Return `value` as a scalar tensor of this type.

    Raises:
      TypeError: it has another type.
      ValueError: it is no scalar.
    """
    tensor = tf.convert_to_tensor(value, dtype_hint=dtype, name=what)
    if tensor.dtype != dtype:
        raise TypeError(f"{what} is {tensor.dtype.name}, expected {dtype.name}")
    if not tensor.shape.is_compatible_with([]):
        raise ValueError(f"{what} has the shape {tensor.shape}, expected a scalar")
    return tf.ensure_shape(tensor, [])


def checked_unroll(num_unroll: Any) -> int:
    """Return `num_unroll` as an int.

    Raises:
      ValueError: it is no positive integer.
    """
    if not isinstance(num_unroll, (int, np.integer)) or num_unroll < 1:
        raise ValueError(f"num_unroll must be a positive integer, got {num_unroll!r}")
    return int(num_unroll)


def padded(sequences: dict[str, Any], num_unroll: int) -> tuple[Any, dict[str, Any]]:
    """Return the length of the sequences, and the sequences with zeros up to a multiple of `num_unroll`."""
    length, checks = _time_steps(sequences)
    with tf.control_dependencies(checks):
        length = tf.identity(length)
    missing = -length % num_unroll
    return length, {
        name: tf.pad(tensor, [[0, missing]] + [[0, 0]] * (tensor.shape.rank - 1)) for name, tensor in sequences.items()
    }


def split(example: Example, num_unroll: int, checks: Sequence[Any] = ()) -> tuple[Any, dict[str, Any]]:
    """Return the keys of the segments of an example, and a dict of their components.

    The first dimension of each tensor is the number of segments. Nothing is computed before the `checks` pass.
    """
    time_steps, equal = _time_steps(example.sequences)
    with tf.control_dependencies([*checks, *equal, *_length_checks(example.length, time_steps, num_unroll)]):
        count = time_steps // num_unroll
    index = tf.range(count)
    keys = tf.strings.join([_digits(index), "_of_", _digits(count), ":", example.key])
    return keys, {
        "length": tf.clip_by_value(example.length - num_unroll * index, 0, num_unroll),
        "total_length": tf.fill([count], example.length),
        "next_key": tf.concat([keys[1:], tf.strings.join(["STOP:", example.key])[tf.newaxis]], 0),
        "sequence": index,
        "sequence_count": tf.fill([count], count),
        "sequences": {
            name: tf.reshape(tensor, [count, num_unroll, *tensor.shape[1:]])
            for name, tensor in example.sequences.items()
        },
        "context": {name: tf.broadcast_to(tensor, [count, *tensor.shape]) for name, tensor in example.context.items()},
    }


def specs(example: Example, num_unroll: int) -> dict[str, Any]:
    """Return the specs of one segment: those of the components of `split`, and of the states."""
    number = tf.TensorSpec([], tf.int32)
    return {
        "length": number,
        "total_length": number,
        "next_key": tf.TensorSpec([], tf.string),
        "sequence": number,
        "sequence_count": number,
        "sequences": {
            name: tf.TensorSpec([num_unroll, *tensor.shape[1:]], tensor.dtype)
            for name, tensor in example.sequences.items()
        },
        "context": {name: tf.TensorSpec(tensor.shape, tensor.dtype) for name, tensor in example.context.items()},
        "states": {name: tf.TensorSpec(tensor.shape, tensor.dtype) for name, tensor in example.states.items()},
    }


def _time_steps(sequences: dict[str, Any]) -> tuple[Any, list[Any]]:
    """Return the number of time steps of the first sequence, and assertions that the others have as many."""
    lengths = {name: tf.shape(tensor)[0] for name, tensor in sequences.items()}
    (first, time_steps), *others = lengths.items()
    return time_steps, [
        tf.debugging.assert_equal(
            length, time_steps, message=f"input_sequences {first} and {name} have different lengths"
        )
        for name, length in others
    ]


def _length_checks(length: Any, time_steps: Any, num_unroll: int) -> list[Any]:
    return [
        tf.debugging.Assert(
            tf.logical_and(time_steps > 0, tf.equal(time_steps % num_unroll, 0)),
            [
                f"The length of input_sequences must be a positive multiple of num_unroll ({num_unroll}), got",
                time_steps,
                "Pad the sequences with pad=True.",
            ],
        ),
        tf.debugging.assert_less_equal(
            length, time_steps, message="input_length is greater than the length of input_sequences"
        ),
    ]


def _digits(number: Any) -> Any:
    return tf.strings.as_string(number, width=5, fill="0")
