"""`build`: makes the ops of a plan, the areas of a `staged()` or the queue of a `CustomRunner`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import nullcontext
from functools import partial
from typing import Any

from staging_tf1._tf import Dataset, tf
from staging_tf1.arguments import AUTOTUNE, MOST_THREADS
from staging_tf1.cluster.fence import fence_of
from staging_tf1.define import specs
from staging_tf1.define.mapped import SEED
from staging_tf1.feed.autotune import most_threads
from staging_tf1.feed.pipeline import Input, MapOps, Mapped, Pipeline, Plan, Producer, pipelines_of
from staging_tf1.feed.queue_runner import register
from staging_tf1.graph.dependencies import ancestors
from staging_tf1.graph.feed_queue import FeedQueue
from staging_tf1.graph.position import DynamicPosition, Position
from staging_tf1.graph.sink import Block, Sink, Tensors, queue_key
from staging_tf1.graph.token_area import TokenArea, on
from staging_tf1.spec import flatten, flatten_with_paths, map_structure, pack
from staging_tf1.workers.pool import LANES_EACH


def build(plan: Plan, scope: str) -> Pipeline:
    """Make the ops of `plan` and register its pipeline, which is named after its scope. Nothing is refused any more."""
    # Without the caller's control dependencies, which each step that takes a batch would run.
    with tf.control_dependencies(None), tf.name_scope(scope) as unique:
        name = unique.rstrip("/")
        with on(None if plan.cluster is None else plan.cluster.own_device):
            position, init = _position(plan), None
            sinks: Sequence[Sink]
            if plan.queue is not None:
                components = tf.nest.flatten(plan.inputs[0].components, expand_composites=True)
                sinks = [FeedQueue(name, components, plan.capacity, plan.queue)]
            else:
                sinks, init = _areas(plan, name, position)
            map_ops = _map_ops(plan.inputs)
            pipeline = Pipeline(plan, name, tuple(sinks), _producers(plan, name, sinks), init, map_ops, position)
            register(pipeline)
    return pipeline


def _position(plan: Plan) -> Position | None:
    if plan.fingerprint is None:
        return None
    where: dict[str, Any] = {}
    if plan.cluster is not None:
        fence = fence_of(plan.cluster, tf.get_default_graph())
        where = {"device": plan.cluster.shared_device, "fence": fence.check}
    make = DynamicPosition if plan.towers.dynamic else partial(Position, keeps_state=plan.keeps_state)
    return make(plan.fingerprint, plan.towers, **where)


def _areas(plan: Plan, name: str, position: Position | None) -> tuple[list[TokenArea], Any | None]:
    """Return an area for each tower, and the initializer of the iterator that they share, if there is one."""
    iterator, areas = None, []
    for tower, entry in enumerate(plan.inputs):
        with tf.name_scope(f"tower_{tower}") if len(plan.inputs) > 1 else nullcontext():
            if iterator is None:
                iterator = _iterator(plan, position)
            area = TokenArea(
                _tower_name(plan, name, tower),
                _tensors(entry, iterator, keeps_state=plan.keeps_state),
                capacity=plan.capacity,
                device=plan.devices[tower],
                stamps=position is not None and (plan.towers.dynamic or plan.counts_passed),
                releases=len(plan.inputs) == 1 or plan.lockstep,
                advance=None if position is None else partial(position.advance, tower),
                block=None if plan.one_by_one else _block(entry),
            )
            areas.append(area)
    return areas, None if iterator is None else iterator.initializer


def _iterator(plan: Plan, position: Position | None) -> Any | None:
    """Make the iterator of a plan's dataset, one for all towers; None for other inputs.

    With an iterator each, towers would see a shuffled dataset in different orders, and their shards would overlap.
    """
    rest = plan.inputs[0].values
    if not isinstance(rest, Dataset):
        return None
    # The position is read when the iterator is initialized, after a restore. If elements may be bad, `skip` cannot be
    # used: it starts counting again after a bad element, and so skips good ones.
    if position is not None and not plan.fast_forwards:
        rest = rest.skip(position.first_of_all())
    return tf.data.make_initializable_iterator(rest)


def _tensors(entry: Input, iterator: Any | None, *, keeps_state: bool) -> Tensors:
    """Make the tensors of one batch.

    Args:
      entry: the input of a tower.
      iterator: the iterator of its dataset; None for other inputs.
      keeps_state: whether each batch is fed with the state of its stream.
    """
    # Batches of a source come from the host, whatever the device scope of the caller.
    with tf.device("/device:CPU:0") if entry.source is not None else nullcontext():
        if entry.source is not None:
            tensors = _fed(entry, keeps_state)
        else:
            values = entry.values if iterator is None else iterator.get_next()
            tensors = Tensors(_flat(values), values, [])
        if entry.components is entry.given:
            return tensors
        structure = _converted(entry, tensors.structure)
        return tensors._replace(flat=_flat(structure), structure=structure)


def _block(entry: Input) -> Block:
    """Return how one run puts several batches of an input, which has no composites."""
    mapped = entry.mapped
    fed = flatten(map_structure(specs.as_type_spec, entry.spec))
    if mapped is not None and mapped.takes_seed:
        fed.append(SEED)
    return Block(fed, lambda parts: _flat(_staged_of(entry, parts)), can_fail=mapped is not None)


def _staged_of(entry: Input, fed: Sequence[Any]) -> Any:
    """Make what is staged of one batch, out of tensors like those that are fed."""
    if entry.mapped is None:
        batch = pack(entry.given, fed)
    else:
        before = entry.mapped.before
        count = len(flatten(before.given))
        batch = entry.mapped.function(_staged_of(before, fed[:count]), *fed[count:])
    return batch if entry.components is entry.given else _converted(entry, batch)


def _converted(entry: Input, batch: Any) -> Any:
    leaves = zip(flatten_with_paths(batch), flatten(entry.given), flatten(entry.components), strict=True)
    return pack(batch, [_fit(leaf, had, want, path) for (path, leaf), had, want in leaves])


def _fed(entry: Input, keeps_state: bool) -> Tensors:
    if entry.mapped is None:
        type_specs = map_structure(specs.as_type_spec, entry.spec)
        names = [leaf.name for leaf in flatten(entry.spec)]
    else:
        type_specs, names = entry.given, [path for path, _ in flatten_with_paths(entry.given)]
    fed = pack(type_specs, [_placeholders(spec, name) for spec, name in zip(flatten(type_specs), names)])
    placeholders = _flat(fed)
    label = [tf.placeholder(tf.string, [], name="state")] if keeps_state else []
    # With `map_fn`, they are parsed before it.
    features = None if entry.source is None or entry.mapped is not None else entry.source.features
    if features is None:
        return Tensors(placeholders, fed, placeholders + label, *label)
    parsed = tf.io.parse_example(placeholders[0], features)
    return Tensors(_flat(parsed), parsed, placeholders + label, *label)


def _fit(leaf: Any, had: Any, wanted: Any, path: str) -> Any:
    if specs.is_dense(wanted) and str(had.shape) != str(wanted.shape):
        leaf = tf.ensure_shape(leaf, wanted.shape, name=_op_name("declared", path))
    if getattr(had, "dtype", None) != getattr(wanted, "dtype", None):
        leaf = tf.cast(leaf, wanted.dtype, name=_op_name("cast", path))
    return leaf


def _flat(values: Any) -> list[Any]:
    return [tf.convert_to_tensor(tensor) for tensor in tf.nest.flatten(values, expand_composites=True)]


def _placeholders(type_spec: Any, name: str | None) -> Any:
    """Make a tensor to feed; a sparse or ragged one is made of several."""
    parts = tf.nest.flatten(type_spec, expand_composites=True)
    names = [_op_name(name or "batch", *([str(i)] if len(parts) > 1 else [])) for i in range(len(parts))]
    fed = [tf.placeholder(part.dtype, part.shape, name=name) for part, name in zip(parts, names)]
    return tf.nest.pack_sequence_as(type_spec, fed, expand_composites=True)


def _op_name(*parts: str) -> str:
    return re.sub(r"[^A-Za-z0-9_]+", "_", "_".join(filter(None, parts))).strip("_") or "batch"


def _producers(plan: Plan, name: str, sinks: Sequence[Sink]) -> tuple[Producer, ...]:
    producers = []
    for number, entry in enumerate(plan.inputs):
        # Several generators fill one queue.
        tower = min(number, len(sinks) - 1)
        producer = Producer(
            _tower_name(plan, name, number),
            entry.source,
            plan,
            num_feed_threads(plan, number),
            number,
            tower,
            chained=entry.source is None and _is_chained(sinks[tower].put.op),
        )
        producers.append(producer)
    return tuple(producers)


def _map_ops(inputs: Sequence[Input]) -> tuple[MapOps | None, ...]:
    """Make the ops of `map_fn`, if there is one. Inputs of the same spec have the same ops."""
    functions = {id(entry.mapped.function): entry.mapped for entry in inputs if entry.mapped is not None}
    made = {key: _ops_of(mapped) for key, mapped in functions.items()}
    return tuple(None if entry.mapped is None else made[id(entry.mapped.function)] for entry in inputs)


def _ops_of(mapped: Mapped) -> MapOps:
    with tf.name_scope("map_fn"), tf.device("/device:CPU:0"):
        batch = _tensors(mapped.before, None, keeps_state=False)
        seed = tf.placeholder(SEED.dtype, SEED.shape, name="seed") if mapped.takes_seed else None
        outputs = _flat(mapped.function(batch.structure, *([] if seed is None else [seed])))
    return MapOps(tuple(batch.placeholders), seed, tuple(outputs))


def num_feed_threads(plan: Plan, number: int) -> int:
    """Return how many threads feed an input: enough to keep all worker processes busy, or for AUTOTUNE to park some.

    Args:
      plan: with its inputs.
      number: the index of the input.
    """
    if plan.num_processes:
        return plan.num_processes * LANES_EACH
    most = MOST_THREADS // len(plan.devices)
    return most_threads(plan.inputs[number].source, most) if plan.num_threads == AUTOTUNE else plan.num_threads


def _tower_name(plan: Plan, name: str, number: int) -> str:
    return f"{name}/{number}" if len(plan.inputs) > 1 else name


def _is_chained(put: Any) -> bool:
    """Whether the values of `put` come from another pipeline of this graph."""
    queues = {queue_key(sink.queue) for pipeline in pipelines_of(tf.get_default_graph()) for sink in pipeline.sinks}
    return bool(queues) and any(op.name in queues for op in ancestors([put]))
