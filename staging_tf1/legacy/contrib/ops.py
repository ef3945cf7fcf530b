"""The ops of `tf.contrib`'s binaries that programs use, made of TensorFlow's own ops."""

from __future__ import annotations

import functools
import itertools
import os
from collections.abc import Callable
from typing import Any

import numpy as np

from staging_tf1._tf import scope_device, tf
from staging_tf1.errors import RemovedNameError
from staging_tf1.legacy.contrib.homes import LOST
from staging_tf1.legacy.shim.old_names import absent


def call(op: str, module: str, name: str | None = None, **arguments: Any) -> Any:
    """Return the outputs of an op. Raises RemovedNameError for one that is not restored.

    Args:
      op: its name, such as "GatherTree".
      module: the module that has its function, for the message.
      name: the name of the result.
      arguments: those of the function.
    """
    make = _OPS.get(op)
    if make is None:
        part = module.split(".")[2]
        instead = LOST.get(f"{part}.{op}") or LOST.get(part)
        raise RemovedNameError(
            f"the op {op} of tf.contrib.{part} is in a binary of TensorFlow 1.15.5, which the installed TensorFlow "
            "cannot load, and staging_tf1 does not replace it. "
            f"{f'Use instead: {instead}' if instead else 'There is no replacement'}."
        )
    with tf.name_scope(name or op):
        return make(**arguments)


def library(path: str) -> Any:
    """Return a stand-in for a binary with ops. Its ops are called through the functions of generated modules."""
    return absent(
        f"{os.path.basename(path)} is a binary of TensorFlow 1.15.5, which the installed TensorFlow cannot load."
    )


def _gather_tree(step_ids: Any, parent_ids: Any, max_sequence_lengths: Any, end_token: Any) -> Any:
    step_ids, parent_ids, end_token = (
        tf.convert_to_tensor(tensor, tf.int32) for tensor in (step_ids, parent_ids, end_token)
    )
    max_time, batch, width = tf.unstack(tf.shape(step_ids))
    own = tf.tile(tf.range(width)[tf.newaxis], [batch, 1])
    inside = tf.range(max_time)[:, tf.newaxis, tf.newaxis] < tf.convert_to_tensor(max_sequence_lengths)[:, tf.newaxis]

    def step(state: Any, at: Any) -> Any:
        # `state` has the beams to follow at this time, and the ids that were read one step later.
        beams, _ = state
        ids, parents, is_inside = at
        follow = tf.where(tf.broadcast_to(is_inside, tf.shape(own)), tf.gather(parents, beams, batch_dims=1), own)
        return follow, tf.gather(ids, beams, batch_dims=1)

    _, ids = tf.scan(step, (step_ids, parent_ids, inside), initializer=(own, own), reverse=True)
    ended = tf.cumsum(tf.cast(tf.equal(ids, end_token), tf.int32), axis=0, exclusive=True) > 0
    ended |= ~tf.broadcast_to(inside, tf.shape(ids))
    result = tf.where(ended, tf.fill(tf.shape(ids), end_token), ids)
    result.set_shape(step_ids.shape)
    return result


def _transformed(images: Any, transforms: Any, interpolation: str, output_shape: Any = None) -> Any:
    images = tf.convert_to_tensor(images)
    size = tf.shape(images)[1:3] if output_shape is None else output_shape
    return tf.raw_ops.ImageProjectiveTransformV2(
        images=images, transforms=transforms, output_shape=size, interpolation=interpolation
    )


def _adjust_hsv_in_yiq(images: Any, delta_h: Any, scale_s: Any, scale_v: Any) -> Any:
    to_yiq = np.array([[0.299, 0.587, 0.114], [0.596, -0.274, -0.322], [0.211, -0.523, 0.312]], np.float32)
    to_rgb = np.linalg.inv(to_yiq)
    # The scale of the saturation and the value is that of both color components.
    scale = scale_s * scale_v
    u, w = scale * tf.cos(delta_h), scale * tf.sin(delta_h)
    zero = tf.zeros_like(u)
    turn = tf.stack([tf.stack([scale_v + zero, zero, zero]), tf.stack([zero, u, -w]), tf.stack([zero, w, u])])
    return tf.tensordot(images, tf.transpose(to_rgb @ turn @ to_yiq), 1)


def _bipartite_match(distance_mat: Any, num_valid_rows: Any, top_k: int) -> Any:
    distances = tf.convert_to_tensor(distance_mat, tf.float32)
    rows, columns = tf.unstack(tf.shape(distances))
    asked = tf.cast(tf.reshape(num_valid_rows, []), tf.int32)
    valid = tf.where(asked < 0, rows, tf.minimum(asked, rows))
    matches = tf.minimum(valid, columns) if top_k < 0 else tf.minimum(tf.minimum(valid, columns), top_k)

    def match(count: Any, row_to_column: Any, column_to_row: Any) -> Any:
        free = (tf.range(rows) < valid) & (row_to_column < 0)
        free = free[:, tf.newaxis] & (column_to_row < 0)[tf.newaxis]
        pairs = tf.where(free)
        nearest = pairs[tf.argmin(tf.boolean_mask(distances, free), output_type=tf.int32)]
        row, column = tf.unstack(tf.cast(nearest, tf.int32))
        return (
            count + 1,
            tf.tensor_scatter_nd_update(row_to_column, [[row]], [column]),
            tf.tensor_scatter_nd_update(column_to_row, [[column]], [row]),
        )

    start = (0, tf.fill([rows], -1), tf.fill([columns], -1))
    _, row_to_column, column_to_row = tf.while_loop(lambda count, *_: count < matches, match, start, back_prop=False)
    row_to_column.set_shape([distances.shape[0]])
    column_to_row.set_shape([distances.shape[1]])
    return row_to_column, column_to_row


def _resampler(data: Any, warp: Any) -> Any:
    data = tf.convert_to_tensor(data)
    warp = tf.convert_to_tensor(warp, data.dtype)
    size = tf.shape(data)
    batch, height, width = size[0], size[1], size[2]
    points = tf.reshape(warp, [batch, -1, 2])
    corner = tf.floor(points)
    first = tf.range(batch)[:, tf.newaxis] + tf.zeros([1, tf.shape(points)[1]], tf.int32)

    def neighbor(right: int, down: int) -> Any:
        at = tf.add(tf.cast(corner, tf.int32), [right, down])
        x, y = at[..., 0], at[..., 1]
        inside = (x >= 0) & (y >= 0) & (x < width) & (y < height)
        read = tf.stack([first, tf.clip_by_value(y, 0, height - 1), tf.clip_by_value(x, 0, width - 1)], -1)
        part = points - corner
        across = part[..., 0] if right else 1 - part[..., 0]
        along = part[..., 1] if down else 1 - part[..., 1]
        weight = across * along * tf.cast(inside, data.dtype)
        return weight[..., tf.newaxis] * tf.gather_nd(data, read)

    total = sum(neighbor(right, down) for right in (0, 1) for down in (0, 1))
    result = tf.reshape(total, tf.concat([tf.shape(warp)[:-1], size[3:]], 0))
    result.set_shape(warp.shape[:-1].concatenate(data.shape[3:]))
    return result


def _memory(key: str) -> Any:
    # Only GPUs count their memory, as in TensorFlow 1. A session shares its allocators with tf.config.
    device = scope_device() or "GPU:0"

    def read() -> Any:
        return np.int64(tf.config.experimental.get_memory_info(device.rpartition("device:")[2])[key])

    value = tf.numpy_function(read, [], tf.int64)
    value.set_shape([])
    return value


def _sparse_cross(
    indices: Any, values: Any, shapes: Any, dense: Any, hash_key: int | None = None, **options: Any
) -> Any:
    if options["hashed_output"] and hash_key is None:
        return _old_hashes(indices, values, shapes, dense, options["num_buckets"])
    return tf.raw_ops.SparseCross(
        indices=indices, values=values, shapes=shapes, dense_inputs=dense, hash_key=hash_key or 0, **options
    )


def _old_hashes(indices: Any, values: Any, shapes: Any, dense: Any, num_buckets: int) -> Any:
    """Cross features with the hashes that contrib.layers used without a key, which TensorFlow no longer has."""

    def numbers(features: Any) -> Any:
        features = tf.convert_to_tensor(features)
        if features.dtype != tf.string:
            return features
        flat = tf.reshape(features, [-1])
        prints = tf.raw_ops.Fingerprint(data=flat, method="farmhash64")
        return tf.reshape(tf.bitcast(prints, tf.int64), tf.shape(features))

    def crossed(*arrays: Any) -> Any:
        count = len(indices)
        rows = arrays[2 * count : 3 * count]
        sparse = list(zip(arrays[:count], arrays[count : 2 * count], strict=True))
        size = int(rows[0][0]) if count else len(arrays[-1])
        hashes = [
            [_combined(cross, num_buckets) for cross in itertools.product(*_features(row, sparse, arrays[3 * count :]))]
            for row in range(size)
        ]
        places = [(row, column) for row, row_hashes in enumerate(hashes) for column in range(len(row_hashes))]
        return (
            np.array(places, np.int64).reshape(-1, 2),
            np.array([value for row_hashes in hashes for value in row_hashes], np.int64),
            np.array([size, max(map(len, hashes), default=0)], np.int64),
        )

    inputs = [*indices, *map(numbers, values), *shapes, *map(numbers, dense)]
    outputs = tf.numpy_function(crossed, inputs, [tf.int64] * 3)
    for output, shape in zip(outputs, ([None, 2], [None], [2]), strict=True):
        output.set_shape(shape)
    return outputs


def _features(row: int, sparse: Any, dense: Any) -> list[list[int]]:
    columns = [[int(value) for value in values[places[:, 0] == row]] for places, values in sparse]
    return [*columns, *([int(value) for value in column[row]] for column in dense)]


def _combined(features: tuple[int, ...], num_buckets: int) -> int:
    whole = (1 << 64) - 1
    total = 0xDECAFCAFFE
    for feature in features:
        signed = total - (total >> 63 << 64)  # its right shift keeps the sign
        total ^= (feature + 0x9E3779B97F4A7800 + (total << 10) + (signed >> 4)) & whole
    return total % (num_buckets if num_buckets > 0 else (1 << 63) - 1)


def _reduce_slices(reduce: Callable[..., Any], data: Any, indices: Any, axis: Any) -> Any:
    data, indices = tf.convert_to_tensor(data), tf.cast(indices, tf.int32)
    axis = int(tf.get_static_value(axis)) % len(data.shape)
    size = tf.shape(data)[axis]
    starts = tf.clip_by_value(indices[:, 0], 0, size)
    rows = tf.ragged.range(starts, tf.maximum(tf.clip_by_value(indices[:, 1], 0, size), starts))
    picked = tf.gather(data, rows.flat_values, axis=axis)
    order = [axis, *(dim for dim in range(len(data.shape)) if dim != axis)]
    reduced = reduce(tf.transpose(picked, order), rows.value_rowids(), tf.shape(indices)[0])
    return tf.transpose(reduced, np.argsort(order))


def _skip_grams(
    input_tensor: Any,
    min_skips: Any,
    max_skips: Any,
    start: Any,
    limit: Any,
    emit_self_as_target: bool,
    seed: int,
    seed2: int,
) -> Any:
    tokens = tf.convert_to_tensor(input_tensor)
    end = tf.where(tf.convert_to_tensor(limit) < 0, tf.size(tokens), start + limit)
    places = tf.range(start, tf.minimum(end, tf.size(tokens)))[:, tf.newaxis]
    lo, hi = tf.convert_to_tensor(min_skips), tf.convert_to_tensor(max_skips)
    skips = tf.raw_ops.RandomUniformInt(shape=tf.shape(places), minval=lo, maxval=hi + 1, seed=seed, seed2=seed2)
    offsets = tf.range(-hi, hi + 1)[tf.newaxis]
    others = places + offsets
    kept = (tf.abs(offsets) <= skips) & (others >= start) & (others < tf.size(tokens)) & (others < end)
    if not emit_self_as_target:
        kept &= tf.not_equal(offsets, 0)
    pairs = tf.broadcast_to(places, tf.shape(others))
    return tf.gather(tokens, tf.boolean_mask(pairs, kept)), tf.gather(tokens, tf.boolean_mask(others, kept))


def _masked_matmul(a: Any, b: Any, mask_indices: Any, transpose_a: Any, transpose_b: Any) -> Any:
    left = tf.cond(transpose_a, lambda: tf.transpose(a), lambda: tf.identity(a))
    right = tf.cond(transpose_b, lambda: tf.identity(b), lambda: tf.transpose(b))
    return tf.reduce_sum(tf.gather(left, mask_indices[:, 0]) * tf.gather(right, mask_indices[:, 1]), 1)


def _zero(ref: Any) -> Any:
    with tf.control_dependencies([_uninitialized(tf.raw_ops.IsVariableInitialized(ref=ref))]):
        return tf.assign(ref, tf.zeros(ref.shape, ref.dtype.base_dtype))


def _zero_handle(var: Any, dtype: Any, shape: Any) -> Any:
    with tf.control_dependencies([_uninitialized(tf.raw_ops.VarIsInitializedOp(resource=var))]):
        return tf.raw_ops.AssignVariableOp(resource=var, value=tf.zeros(shape, dtype))


def _uninitialized(is_initialized: Any) -> Any:
    return tf.Assert(tf.logical_not(is_initialized), ["input is already initialized"])


_OPS: dict[str, Callable[..., Any]] = {
    "AdjustHsvInYiq": _adjust_hsv_in_yiq,
    "BipartiteMatch": _bipartite_match,
    "BytesInUse": functools.partial(_memory, "current"),
    "GatherTree": _gather_tree,
    "ImageProjectiveTransform": _transformed,
    "ImageProjectiveTransformV2": _transformed,
    "MaskedMatmul": _masked_matmul,
    "MaxBytesInUse": functools.partial(_memory, "peak"),
    "ReduceSliceMax": functools.partial(_reduce_slices, tf.math.unsorted_segment_max),
    "ReduceSliceMin": functools.partial(_reduce_slices, tf.math.unsorted_segment_min),
    "ReduceSliceProd": functools.partial(_reduce_slices, tf.math.unsorted_segment_prod),
    "ReduceSliceSum": functools.partial(_reduce_slices, tf.math.unsorted_segment_sum),
    "Resampler": _resampler,
    "SkipGramGenerateCandidates": _skip_grams,
    "SparseFeatureCross": _sparse_cross,
    "SparseFeatureCrossV2": _sparse_cross,
    "ZeroInitializer": _zero,
    "ZeroVarInitializer": _zero_handle,
}
