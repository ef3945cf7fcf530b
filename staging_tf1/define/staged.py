"""`staged()`: one call from values to tensors that are one step behind."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from staging_tf1._tf import tf
from staging_tf1.arguments import INT64_MAX, MOST_STAGED, MOST_THREADS, choice, flag, op_name, refuse, shown, whole
from staging_tf1.define.inputs import Input, fitted, inputs_for
from staging_tf1.feed.pipeline import Pipeline, Producer
from staging_tf1.feed.queue_runner import is_chained, register
from staging_tf1.feed.resume import RESUME_MODES
from staging_tf1.feed.skip import SkipRule, skip_rule
from staging_tf1.feed.threads import check_nice
from staging_tf1.graph.callsite import CallSite
from staging_tf1.graph.guards import building
from staging_tf1.graph.position import Position
from staging_tf1.graph.sink import Sink, Staging, staged_sink

# `memory_limit` in the kernel is an int of 32 bits, so a larger element would be miscounted.
_TWO_GIB = 2**31


@dataclass(frozen=True)
class _Options:
    """The arguments of one call, checked."""

    # The device of each tower; None keeps the scope around the call.
    devices: list[str | None]
    capacity: int
    memory_limit: int
    num_threads: int
    nice: int
    lockstep: bool
    skip_rule: SkipRule
    resume: str


def staged(
    values: Any,
    *,
    capacity: int = 2,
    memory_limit: int = 0,
    device: str | None = None,
    devices: Sequence[str] | None = None,
    num_threads: int = 1,
    nice: int = 0,
    lockstep: bool = False,
    cast: Any = None,
    spec: Any = None,
    ignored_exception_types: Any = (),
    max_ignored: int | None = None,
    resume: str = "exact",
    name: str | None = None,
) -> Any:
    """Stages `values` and returns tensors of the same structure, one step behind.

    A feed thread puts batches into a `StagingArea` while the step runs; the returned tensors take them out. Nothing
    blocks a thread of TensorFlow's pools, the end of the data is `tf.errors.OutOfRangeError` after the last batch,
    and a run that fetches nothing of the result takes nothing. The threads start with `StagingSession`,
    `StagingHook`, `staging.start` or `tf.train.start_queue_runners`. The idea is `tf.staged` of DeepRec
    (docs/docs_en/Stage.md) and `prefetch` of tensorpack's StagingInput.

    Args:
      values: any nest of tensors (dict, tuple, list, namedtuple, one tensor, `tf.SparseTensor`, `tf.RaggedTensor`),
        a source (`staging.sources`), an iterable or generator function of numpy batches, or a `tf.data.Dataset`.
        Tensors are computed anew for every batch, by the feed thread.
      capacity: elements (batches) that the area holds at most, up to 2**20.
      memory_limit: bytes that the area holds at most; 0 is no limit. Lowers `capacity` to what fits, so the shapes
        must be known.
      device: where the area is, such as "/device:GPU:0"; the device scope of the call if None.
      devices: a device for each tower. The result is a list with one structure a tower, each fed other batches by
        its own thread. If the towers' numbers of batches differ, the step that not every tower has a batch for takes
        from none; the towers that have some left can then be run alone.
      num_threads: feed threads a tower; all towers together have up to 1,024. Batches of a source keep their order; of
        tensors only with one thread.
      nice: by how much the priority of the feed threads is lowered, 0 to 19, as nice(2) counts (Linux; elsewhere it
        does nothing). 10 lets a step of several milliseconds have the cores it wants, and the threads those it leaves:
        see docs/performance.md. Steps of a millisecond get slower, and so does all where other programs want the cores.
      lockstep: no thread; each step's `Session.run` puts one batch and takes the one before. Needs `StagingSession`
        or `StagingHook`.
      cast: a dtype for all components, or a dict from component paths to dtypes, {"image": tf.float16}: they are cast
        by the feed thread's run and staged in that dtype, which the returned tensors have. Halves what the area holds
        and what a copy to a device moves. A path is as messages show it: "image", "obs.pixels", "[0]".
      spec: a nest of `tf.TensorSpec` that the values must fit, before `cast`; if not, one table tells all conflicts.
        Where it knows more of a shape than the values, the returned tensors have that shape, and a batch of another
        one is an error. A generator is then not read before the threads start.
      ignored_exception_types: exceptions of the source that cost their batch and nothing else: it is skipped, counted
        (`PipelineStats.ignored`) and logged. A generator cannot go on after an exception; the other sources can. In
        lockstep, what the graph computes from the output of a dataset or queue is a part of the step, and fails it.
        A restored run goes on behind the last batch that was consumed, the ones skipped before it included. Of a
        dataset it computes what was consumed again, to find the place, and of a stream that towers share it repeats
        up to as many batches as were skipped (docs/workflow.md).
      max_ignored: how many of those in one session; the next one is raised. None is no limit.
      resume: what to do with a checkpoint that was saved with another source. "restart" begins with the first batch.
        The other two carry the position over to other towers, shards or batch sizes, and leave out no record: "exact"
        only if none comes twice, "ignore" at whatever number of repeats, which it logs. A position in another order
        (seed, number of records) "exact" refuses; "ignore" goes on at the same number in the new order.
        The position counts the batches that steps have consumed. It is a global variable, so every checkpoint holds
        it; a restored run goes on with the next batch. Sources and datasets have one.
      name: what ops, threads and messages are called after; unique in the graph.

    Returns:
      The structure of `values` with staged tensors in it; a list of those with `devices`.

    Raises:
      TypeError, ValueError: an argument of the wrong kind, or an element larger than `memory_limit`.
      SpecError: tensors of another graph, values that are not as `spec` declares, a component that `cast` cannot cast.
      BuildError: called where it must not be: in a loop, a function, a finalized graph.

    >>> import numpy as np
    >>> with tf.Graph().as_default():
    ...     batch = staged(ArraySource({"x": np.arange(6)}, batch_size=4, epochs=1))
    ...     total = tf.reduce_sum(batch["x"])
    ...     with StagingSession() as sess:
    ...         [int(sess.run(total)), int(sess.run(total))]
    [6, 9]
    """
    op_name("staged()", name)
    what = "staged()" if name is None else f"staged(name='{name}')"
    with building("staged()") as site:
        towers = _check_devices(device, devices, what)
        options = _Options(
            devices=towers,
            capacity=whole(what, "capacity", capacity, 1, MOST_STAGED, "elements"),
            memory_limit=whole(what, "memory_limit", memory_limit, 0, INT64_MAX, "bytes; 0 is no limit"),
            num_threads=whole(what, "num_threads", num_threads, 1, MOST_THREADS // len(towers)),
            nice=check_nice(nice, what),
            lockstep=flag(what, "lockstep", lockstep),
            skip_rule=skip_rule(ignored_exception_types, max_ignored, what),
            resume=choice(what, "resume", resume, RESUME_MODES),
        )
        inputs = inputs_for(values, spec, len(towers), what, skips=bool(options.skip_rule.types))
        inputs = [fitted(each, spec, cast, what) for each in inputs]
        _check_lockstep(options, inputs, what)
        options = replace(options, capacity=_fit(options, inputs, what))
        # Outside the caller's control dependencies: every step that takes a batch would compute them.
        with tf.control_dependencies(None), tf.name_scope(name or "staged") as scope:
            structures = _build(scope.rstrip("/"), site, inputs, options)
    return structures[0] if devices is None else structures


def _build(name: str, site: CallSite, inputs: Sequence[Input], options: _Options) -> list[Any]:
    """Makes the ops and registers the pipeline; returns the structure of staged tensors of each tower."""
    first = inputs[0]
    position = None
    if first.fingerprint is not None:
        position = Position(first.fingerprint, len(inputs), keeps_state=first.keeps_state)
    sinks: list[Sink] = []
    structures: list[Any] = []
    consumed: list[list[Any]] = []
    for tower, each in enumerate(inputs):
        with tf.name_scope(f"tower_{tower}") if len(inputs) > 1 else nullcontext():
            made = each.tensors(position)
            how = _how_to_stage(tower, each, options, position)
            sink_name = f"{name}/{tower}" if len(inputs) > 1 else name
            sinks.append(staged_sink(sink_name, made.flat, made.placeholders, how, made.label))
        structures.append(tf.nest.pack_sequence_as(made.structure, list(sinks[-1].outputs), expand_composites=True))
        consumed.append(made.flat)
    register(
        Pipeline(
            name,
            site,
            tuple(sinks),
            tuple(_producer(tower, sink, each, options) for tower, (sink, each) in enumerate(zip(sinks, inputs))),
            options.lockstep,
            first.init,
            options.resume,
            position,
            fast_forward=tuple(consumed[0]) if first.fast_forwards else (),
        )
    )
    return structures


def _how_to_stage(tower: int, each: Input, options: _Options, position: Position | None) -> Staging:
    return Staging(
        capacity=options.capacity,
        device=options.devices[tower],
        lockstep=options.lockstep,
        release=len(options.devices) == 1 or options.lockstep,
        advance=None if position is None else partial(position.advance, tower),
        # In rotation, and in the graph, a bad batch has no number: the position does not count it.
        counts=position is not None and bool(options.skip_rule.types) and each.source is not None and not each.shared,
    )


def _producer(tower: int, sink: Sink, each: Input, options: _Options) -> Producer:
    return Producer(
        sink.name,
        each.source,
        each.spec,
        options.num_threads,
        options.nice,
        tower,
        shares_input=each.shared,
        chained=each.source is None and is_chained(sink.put),
        skip_rule=options.skip_rule,
        keeps_state=each.keeps_state,
    )


def _check_devices(device: str | None, devices: Sequence[str] | None, what: str) -> list[str | None]:
    if devices is None:
        _check_device(device, what)
        return [device]
    if device is not None:
        raise ValueError(
            f"{what} got both device={shown(device)} and devices={shown(devices)}. Give one: devices= makes towers."
        )
    expected = "a list with a device for each tower"
    if isinstance(devices, str) or not isinstance(devices, Sequence):
        refuse(what, "devices", devices, expected)
    if not 0 < len(devices) <= MOST_THREADS:
        refuse(what, "devices", devices, expected, ValueError)
    for each in devices:
        _check_device(each, what)
    return list(devices)


def _check_device(device: Any, what: str) -> None:
    if device is None:
        return
    if not isinstance(device, str):
        refuse(what, "device", device, "a string such as '/device:GPU:0'")
    try:
        tf.DeviceSpec.from_string(device)
    except ValueError as error:
        raise ValueError(f"{what} got device={shown(device)}, expected a name such as '/device:GPU:0'.") from error


def _check_lockstep(options: _Options, inputs: Sequence[Input], what: str) -> None:
    if not options.lockstep:
        return
    if options.num_threads > 1:
        raise ValueError(
            f"{what} got num_threads={options.num_threads} with lockstep=True, which has no thread. Drop one."
        )
    if options.nice:
        raise ValueError(f"{what} got nice={options.nice} with lockstep=True, which has no thread. Drop one.")
    if len(inputs) > 1 and inputs[0].computes_in_step:
        raise ValueError(
            f"{what} got tensors, several devices and lockstep=True: in one step the tensors have one value, so all "
            f"towers would get the same batch. Give staged() the dataset or source itself, or lockstep=False."
        )


def _fit(options: _Options, inputs: Sequence[Input], what: str) -> int:
    """The capacity that fits into the memory limit."""
    limit = options.memory_limit
    if limit == 0:
        return options.capacity
    sizes = [each.element_bytes for each in inputs if each.element_bytes is not None]
    if len(sizes) < len(inputs):
        raise ValueError(
            f"{what} got memory_limit={limit} bytes, but the size of an element is not known when the graph "
            f"is built. Set the shapes (tensor.set_shape), or limit the number of elements with capacity= instead."
        )
    largest = max(sizes)
    if largest >= _TWO_GIB or largest > limit:
        expected = "less than 2 GiB" if largest >= _TWO_GIB else f"at most memory_limit={limit} bytes"
        raise ValueError(
            f"{what}: an element has {largest} bytes, expected {expected}. Use smaller batches, or no memory_limit."
        )
    return min(options.capacity, limit // largest) if largest else options.capacity
