"""The inputs of a plan: for each tower, tensors to compute, a dataset to iterate, or its share of a source to read.

Makes no op.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from staging_tf1._tf import Dataset, tf
from staging_tf1.define import specs
from staging_tf1.define.mapped import mapped
from staging_tf1.errors import ClusterError, LeftoverWarning, SpecError, warn
from staging_tf1.feed.pipeline import Input, Plan
from staging_tf1.feed.source_errors import errors_only
from staging_tf1.graph.dependencies import service_of
from staging_tf1.graph.position import Fingerprint
from staging_tf1.sources import GeneratorSource, Source, StreamSource
from staging_tf1.sources.coerce import check_spec, source_from
from staging_tf1.sources.reshard import BY_BATCHES, DATA_SERVICE, MAP_SEED
from staging_tf1.sources.spans import end_of, next_kept
from staging_tf1.spec import component_name, flatten_with_paths
from staging_tf1.spec.arrays import as_array, describe


def with_inputs(plan: Plan, values: Any, declared: Any, map_fn: Any, cast: Any) -> Plan:
    """Return the plan with an input for each tower. Make no op.

    Args:
      plan: how the towers share the input.
      values: the argument of `staged()`.
      declared: its argument `spec`, whose shapes the values get. With one, a generator is not read to find its spec.
      map_fn: its argument, a function of the tensors of one batch.
      cast: its argument, the dtypes that the values get.

    Raises:
      TypeError, SpecError, ValueError, BuildError: `values` cannot be staged, do not fit `spec`, or cannot be mapped or
        cast.
      ClusterError: they cannot be divided among the workers of a cluster.
    """
    if isinstance(values, Dataset):
        plan = _with_dataset(plan, values)
    elif _is_nest_of_tensors(values, plan.caller):
        if plan.towers.dynamic:
            check_divisible(plan, "tensors")
        _check_numbered(plan, "tensors")
        given = specs.of_tensors(values)
        plan = replace(plan, inputs=(Input(given, given, values=values),) * len(plan.devices))
    else:
        with errors_only(plan.caller):
            source = source_from(plan.caller, "values", values)
            if isinstance(source, Source):
                plan = _with_source(plan, source, declared)
            else:
                plan = _with_stream(plan, source, declared)
    inputs = [
        _with_components(entry, specs.with_declared(entry.components, declared, plan.caller)) for entry in plan.inputs
    ]
    if map_fn is not None:
        inputs = mapped(inputs, map_fn, plan.caller)
        plan = _with_seed_of_map(plan, inputs[0])
    inputs = [_with_components(entry, specs.with_casts(entry.components, cast, plan.caller)) for entry in inputs]
    return replace(plan, inputs=tuple(inputs))


def _with_seed_of_map(plan: Plan, entry: Input) -> Plan:
    """Return the plan with the seed that its `map_fn` takes in the fingerprint, which may have it as that of the order.

    Workers with sources of their own have seeds of their own.
    """
    source, fingerprint = entry.source, plan.fingerprint
    takes_seed = entry.mapped is not None and entry.mapped.takes_seed
    if not takes_seed or plan.towers.own_inputs or fingerprint is None or not isinstance(source, Source):
        return plan
    if source.seed is None or fingerprint.get("seed") == source.seed:
        return plan
    return replace(plan, fingerprint={**fingerprint, MAP_SEED: source.seed})


def _with_components(entry: Input, components: Any) -> Input:
    return entry if components is entry.components else replace(entry, components=components)


def element_bytes(entry: Input) -> int | None:
    """Return the bytes of one element of the area; None if the number varies or is unknown."""
    source = entry.source
    if entry.mapped is not None:
        return specs.element_bytes(entry.components, None)
    if entry.components is not entry.given:
        batch_size = source.batch_size if isinstance(source, Source) else None
        return specs.element_bytes(entry.components, batch_size)
    if source is not None:
        return source.bytes_per_batch if isinstance(source, Source) and source.features is None else None
    if entry.is_computed:
        # In the graph, composite values are tensors, and each has a size.
        return specs.element_bytes(specs.of_tensors(tf.nest.flatten(entry.values, expand_composites=True)), None)
    return specs.element_bytes(entry.given, None)


def _is_nest_of_tensors(values: Any, caller: str) -> bool:
    if isinstance(values, (Source, StreamSource)):
        return False
    leaves = tf.nest.flatten(values, expand_composites=True)
    tensors = [leaf for leaf in leaves if tf.is_tensor(leaf) or isinstance(leaf, tf.Variable)]
    if not tensors:
        if isinstance(values, (dict, tuple)) or (tf.nest.is_nested(values) and not isinstance(values, list)):
            raise TypeError(
                f"{caller} got a {type(values).__name__} without tensors as values. Wrap arrays in a source: "
                f"staging.sources.ArraySource(arrays, batch_size=...)."
            )
        return False
    for path, leaf in flatten_with_paths(values):
        if leaf is None:
            raise TypeError(f"{caller} got None as component '{path}'. Leave it out, or pass a tensor.")
        if isinstance(leaf, np.ndarray):  # a constant among tensors: TensorFlow would drop its mask
            as_array(leaf, None, f"{caller}: {component_name(path)}")
    for tensor in leaves:
        _check_graph(tensor, caller)
    return True


def _check_graph(tensor: Any, caller: str) -> None:
    if not tf.is_tensor(tensor):
        return
    home = getattr(tensor, "graph", None)
    if home is None:
        raise SpecError(
            f"{caller} got an eager tensor, {describe(tensor.dtype, tensor.shape)}, which belongs to no graph. Build "
            "it within `with graph.as_default():`, or pass its value: tensor.numpy()."
        )
    if home is not tf.get_default_graph():
        raise SpecError(
            f"{caller} got tensor '{tensor.name}', which belongs to a different graph than the default one. Build both "
            f"within the same `with graph.as_default():`."
        )


def _check_graph_of_dataset(dataset: Any, caller: str) -> None:
    variant = tf.data.experimental.to_variant(dataset)
    home = getattr(variant, "graph", None) if not hasattr(variant, "numpy") else None
    if home is not tf.get_default_graph():
        where = "was made eagerly" if home is None else "belongs to a different graph than the default one"
        raise SpecError(
            f"{caller} got a tf.data.Dataset that {where}. Build it within the same `with graph.as_default():`, or "
            f"store its records: staging_tf1.sources.cached(dataset, path, batch_size=...)."
        )


def _with_dataset(plan: Plan, dataset: Any) -> Plan:
    _check_graph_of_dataset(dataset, plan.caller)
    check_divisible(plan, "a tf.data.Dataset")
    _check_numbered(plan, "a tf.data.Dataset")
    given = dataset.element_spec
    # Without BY_BATCHES a position cannot be mapped: batch 3 of one pass has nothing to do with that of another.
    whole: Fingerprint = (
        {"source": DATA_SERVICE} if service_of(dataset) else {"source": "tf.data.Dataset", **BY_BATCHES}
    )
    inputs = (Input(given, given, values=dataset),) * len(plan.devices)
    return replace(plan, inputs=inputs, fingerprint=fingerprint_of(plan, whole))


def _with_source(plan: Plan, source: Source, declared: Any) -> Plan:
    fingerprint = fingerprint_of(plan, source.fingerprint())
    if plan.skip:
        fingerprint = {**fingerprint, "skip": plan.skip.text}
    shards = divided(plan, source, saves_seed=True)
    checked = [specs.narrowed(check_spec(plan.caller, shard, shard.spec), declared) for shard in shards]
    limit = common_batches(plan, source)
    _check_left_out(plan, source, shards, limit)
    inputs = tuple(_source_input(shard, spec) for shard, spec in zip(shards, checked))
    return replace(plan, inputs=inputs, fingerprint=fingerprint, limit=limit)


def _with_stream(plan: Plan, source: StreamSource, declared: Any) -> Plan:
    check_divisible(plan, f"a {type(source).__name__}")
    _check_numbered(plan, f"a {type(source).__name__}")
    if isinstance(source, GeneratorSource) and source.spec is None and declared is not None:
        source = source.with_spec(declared)
    spec = specs.narrowed(check_spec(plan.caller, source, source.resolve_spec()), declared)
    whole = {**source.fingerprint(), **BY_BATCHES} if source.can_resume else None
    return replace(
        plan,
        inputs=(_source_input(source, spec),) * len(plan.devices),
        fingerprint=None if whole is None else fingerprint_of(plan, whole),
        # Towers in rotation would all have to save the state of the last one, and workers of a cluster one each. They
        # read up to their position instead.
        keeps_state=source.keeps_state and len(plan.devices) == 1 and not plan.towers.own_inputs,
    )


def _source_input(source: Source | StreamSource, spec: Any) -> Input:
    given = specs.of_source(source, spec)
    return Input(given, given, source, spec)


def _check_numbered(plan: Plan, values: str) -> None:
    """Raise TypeError if batches are left out by their numbers, and an input has none."""
    if plan.skip:
        raise TypeError(
            f"{plan.caller} got skip={plan.skip.short} and {values}, which can only be read in order. Pass a "
            f"random-access source (staging.sources), or leave the batches out where they are made."
        )


def _check_left_out(plan: Plan, source: Source, shards: Sequence[Any], limit: int | None) -> None:
    """Raise ValueError if batches are left out that do not exist; or all of them, here or by the source."""
    if not (plan.skip or source.leaves_out):
        return
    # The first shard is the longest.
    longest = source.shard(0, plan.towers.shards) if plan.towers.shards > 1 else source
    end = end_of(longest, limit)
    if plan.skip and end is not None and plan.skip.stops[-1] > end:
        each = " for each tower" if plan.towers.shards > 1 else ""
        raise ValueError(
            f"{plan.caller} got skip={plan.skip.short}, expected batch numbers from 0 to {end - 1}: {source!r} has "
            f"{end} batches{each}."
        )
    for shard in shards:
        if next_kept(shard, plan.skip, 0, end_of(shard, limit)) is None:
            by = " or ".join(["skip="] * bool(plan.skip) + ["without()"] * source.leaves_out)
            raise ValueError(
                f"{plan.caller}: nothing is left of {shard!r}: {by} leaves out each of its batches, expected at least "
                f"one."
            )


def check_divisible(plan: Plan, values: str) -> None:
    """Raise ClusterError for an input that cannot be divided among the workers."""
    here = plan.towers
    if here.dynamic:
        raise ClusterError(
            f"{plan.caller} got share='dynamic' and {values}, which can only be read in order: the chief could not "
            f"hand out the batches. Pass a random-access source (staging.sources), or divide it yourself and use "
            f"share='own'."
        )
    if here.shards > here.towers:
        raise ClusterError(
            f"{plan.caller} got {values}, which can only be read in order: each of the {here.shards // here.towers} "
            f"workers would read all of it. Pass a random-access source (staging.sources), or divide it yourself, for "
            f"example with dataset.shard(cluster.num_workers, cluster.worker_index), and say so with share='own'."
        )


def divided(plan: Plan, source: Source | StreamSource, *, saves_seed: bool) -> list[Source | StreamSource]:
    """Return what each tower of this process reads: a shard of a source, or the same stream.

    Args:
      plan: whose towers share the source.
      source: the input of all workers and towers.
      saves_seed: whether the workers get the chief's seed, and a restored run that of the checkpoint.

    Raises:
      ClusterError: a stream cannot be divided.
      ValueError: a tower would get nothing; or workers would draw different seeds.
    """
    caller, here = plan.caller, plan.towers
    if not isinstance(source, Source):
        check_divisible(plan, f"a {type(source).__name__}")
        return [source] * here.towers
    in_cluster = here.own_inputs or here.shards > here.towers
    # The checkpoint has one seed, which is not that of a worker's own source.
    if source.seed_was_drawn and in_cluster and (here.own_inputs or not saves_seed):
        raise ValueError(
            f"{caller} got a {type(source).__name__} without a seed in a cluster: each worker, and each restart of "
            f"one, would draw another seed, and records would be repeated or left out. Pass seed= to the source."
        )
    if here.shards == 1:
        return [source]
    got = f"{caller} got {here.towers} devices"
    if here.shards > here.towers:
        got += f" on {here.shards // here.towers} workers"
    _check_enough(source, here.shards, got)
    try:
        shards: list[Source | StreamSource] = [source.shard(shard, here.shards) for shard in here.own_shards]
    except ValueError as error:
        raise ValueError(f"{got}, but its source cannot be split into {here.shards} shards: {error}") from error
    if len({id(shard) for shard in shards}) < here.towers:
        raise ValueError(
            f"{caller}: {type(source).__name__}.shard() returned the same source for two towers, so both would get its "
            f"records. Return a new source for each shard; staging_tf1.testing.assert_shards_partition checks it."
        )
    return shards


def common_batches(plan: Plan, source: Source | StreamSource) -> int | None:
    """Return how many batches each shard may have, so that all have the same number; None if there is no limit.

    Warns of the batches that are left over.
    """
    here = plan.towers
    if not here.equal or not isinstance(source, Source) or source.num_batches is None:
        return None
    counts = [source.shard(shard, here.shards).num_batches or 0 for shard in range(here.shards)]
    least, total = min(counts), sum(counts)
    if total > least * here.shards and not here.first:
        warn(
            f"{plan.caller}: in synchronous training each of the {here.shards} workers or towers takes {least} "
            f"batches; {total - least * here.shards} of {total} are left over. To leave out none, choose a batch_size "
            f"that divides the records evenly.",
            LeftoverWarning,
        )
    return least


def _check_enough(source: Source, shards: int, got: str) -> None:
    batches = source.num_records is None
    most = source.num_batches if batches else source.num_records
    if most is None or most >= shards:
        return
    unit = "batch(es)" if batches else "record(s)"
    raise ValueError(
        f"{got}, but a source of only {most} {unit}: {shards - most} tower(s) would get none. Give it at most {most} "
        f"device(s)."
    )


def fingerprint_of(plan: Plan, whole: Fingerprint) -> Fingerprint:
    """Return what the checkpoint keeps of the source that the workers share, or of their own sources.

    Args:
      plan: whose workers share it.
      whole: the fingerprint of the whole source.
    """
    workers = plan.towers.own_inputs
    if not workers:
        return whole
    # The sources of the workers may differ in the rest.
    kept = {key: value for key, value in whole.items() if key in ("source", "batch_size", "dealt")}
    return {**kept, "share": "own", "workers": workers}
