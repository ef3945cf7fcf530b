"""`staged()`: one call from values to staged tensors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from staging_tf1.arguments import (
    AUTOTUNE,
    INT64_MAX,
    MOST_STAGED,
    MOST_THREADS,
    NAMED_AUTOTUNE,
    choice,
    flag,
    op_name,
    whole,
)
from staging_tf1.cluster.cluster import Cluster
from staging_tf1.define.build import build
from staging_tf1.define.checks import (
    SHARES,
    check_cluster,
    check_devices,
    check_dynamic,
    check_in_processes,
    check_processes,
    check_threads,
    tower_range_of,
)
from staging_tf1.define.inputs import element_bytes, with_inputs
from staging_tf1.errors import short_traceback
from staging_tf1.feed.pipeline import Plan
from staging_tf1.feed.resume import RESUME_MODES
from staging_tf1.feed.source_errors import errors_only, skip_rule
from staging_tf1.feed.threads import check_nice
from staging_tf1.graph.dependencies import service_of
from staging_tf1.graph.guards import building
from staging_tf1.sources.reshard import DATA_SERVICE
from staging_tf1.sources.spans import checked_spans

# The kernel's `memory_limit` is a 32-bit int, so a larger element would be miscounted.
_TWO_GIB = 2**31


@short_traceback
def staged(
    values: Any,
    *,
    capacity: int = 2,
    memory_limit: int = 0,
    device: str | None = None,
    devices: Sequence[str] | None = None,
    num_threads: int = 1,
    num_processes: int = 0,
    nice: int = 0,
    lockstep: bool = False,
    map_fn: Callable[..., Any] | None = None,
    cast: Any = None,
    spec: Any = None,
    ignored_exception_types: Any = (),
    max_ignored: int | None = None,
    skip: Any = (),
    resume: str = "exact",
    cluster: Cluster | None = None,
    share: str = "static",
    name: str | None = None,
) -> Any:
    """Stage `values` and return prefetched tensors of the same structure.

    A feed thread puts batches into a `StagingArea` while the step runs; the returned tensors take them out. A run takes
    a batch only if it fetches something that depends on them. After the last batch it raises
    `tf.errors.OutOfRangeError`. Nothing waits in a thread of TensorFlow's pools. The feed threads start with
    `StagingSession`, `StagingHook`, `staging.start` or `tf.train.start_queue_runners`. The idea is that of `tf.staged`
    in DeepRec (docs/docs_en/Stage.md) and of `prefetch` in tensorpack's StagingInput.

    Args:
      values: any nest of tensors (dict, tuple, list, namedtuple, one tensor, `tf.SparseTensor`, `tf.RaggedTensor`),
        a source (`staging.sources`), an iterable or generator function of numpy batches, or a `tf.data.Dataset`. The
        feed thread computes tensors anew for every batch. Batches may hold sparse and ragged values, such as a
        `tf.SparseTensorValue`: the result then has a `tf.SparseTensor` or `tf.RaggedTensor` (docs/sources.md).
      capacity: maximum number of elements (batches) in the area, up to 2**20.
      memory_limit: maximum number of bytes in the area; 0 is no limit. Lowers `capacity` to what fits, so the shapes
        must be known.
      device: device of the area, such as "/device:GPU:0"; None is the device scope of the call.
      devices: a device for each tower. The result is a list with one structure per tower. Each tower gets different
        batches, from its own threads. If not every tower has a batch left, a common step takes nothing. The towers that
        have batches can then be fetched separately.
      num_threads: feed threads per tower, up to 1,024 for all towers. Batches of a source keep their order; batches
        that the graph computes only keep it with one thread. `tf.data.AUTOTUNE` (-1, also `staging.AUTOTUNE`) starts
        with one thread, and adds and removes threads by what the steps wait; batches and their order stay the same.
        Sources only.
      num_processes: worker processes per tower that make the batches of a random-access source, in the same order as
        threads. 0 uses threads. For sources whose work is done in Python, which holds the GIL. Each batch is made in
        memory that the worker shares with this process, and is not copied. `memory_limit` also limits that
        memory, which the next batch in order may exceed (docs/performance.md). The source must be picklable. Linux
        only.
      nice: lowers the priority of the feed threads and the worker processes, 0 to 19 as in nice(2). Linux only; ignored
        elsewhere. With 10, a step of several milliseconds gets the cores it needs, and the threads get the rest. Steps
        of a millisecond get slower, and so does everything if other programs need the cores (docs/performance.md).
      lockstep: no feed thread. Each step's `Session.run` puts one batch and takes the previous one. Needs
        `StagingSession` or `StagingHook`.
      map_fn: a function of the tensors of one batch, in the structure of the source's batches, that returns the tensors
        to stage, as that of `tf.data.Dataset.map` does. It is traced, and feed threads run its ops ahead of the step:
        casts, crops, `tf.io.parse_example`, `tf.io.decode_jpeg` (with `tf.map_fn`), tables; with `num_threads=n` for n
        batches at once, and the batches keep their order. If it has an argument `seed`, it gets an int64 tensor [2],
        made of the source's seed and the batch's number, for `tf.random.stateless_uniform` and the like. So a batch is
        augmented the same with any number of threads, and after a resume. Variables, placeholders, other inputs,
        stateful random ops, and all other ops that may differ from run to run are refused, also behind tensors that
        were made before. An op that fails is an exception of the source (`ignored_exception_types`). Sources and
        generators only.
      cast: a dtype for all components, or a dict from component paths to dtypes, such as {"image": tf.float16}. The
        feed thread's run casts the components; they are staged and returned in that dtype. From float32 to float16
        this halves the memory of the area and the bytes copied to a device. Paths are those of messages: "image",
        "obs.pixels", "[0]". It is `tf.cast`: from floats to integers, fractions are dropped, and NaN and values out of
        range become arbitrary integers without an error.
      spec: a nest of `tf.TensorSpec`, `tf.SparseTensorSpec` and `tf.RaggedTensorSpec` that the values must fit, before
        `cast`. If they do not, the error lists all conflicts in a table. If a declared shape is more specific than that
        of the values, the returned tensors have it, and a batch of another shape is an error. A generator with a spec
        is not read before the threads start.
      ignored_exception_types: exceptions of the source for which a batch is skipped, counted (`PipelineStats.ignored`)
        and logged. A generator ends at its first exception; other sources continue. In lockstep, the ops between a
        dataset or queue and `values` are part of the step: their exceptions fail it. A restored run resumes after the
        last consumed batch and the batches skipped before it. Of a dataset, it computes and drops what was consumed;
        of a stream that towers share, it repeats at most as many batches as were skipped (docs/workflow.md).
      max_ignored: how many batches may be skipped per session; the next exception is raised. None is no limit.
      skip: numbers of batches that no step gets: a list of numbers and ranges, such as `[range(1200, 1300), 1502]`.
        Of each tower's shard, and so of each step, these batches are left out; all others keep their numbers. It may
        change at each resume (docs/sources.md). Random-access sources only. For single records, see
        `RecordSource.without`.
      resume: what to do with a checkpoint that was saved with another source. "restart" begins with the first batch.
        "exact" and "ignore" map the position to other towers, shards or batch sizes, without leaving out a record.
        "exact" raises if a record would be repeated, or if the order is different (seed, number of records). "ignore"
        logs the number of repeats, and continues at the same number in a different order. If the checkpoint has no
        position of this pipeline, because it is new or was renamed, "exact" raises, and the others restore the rest and
        begin with the first batch. The position counts the batches that steps have consumed. It is a global variable,
        so a checkpoint holds it if the saver is made after this call, without a `var_list`. Sources and datasets
        have a position; a generator has one only with `GeneratorSource(..., resume="skip")`. "exact" is refused for a
        dataset of the tf.data service, which delivers in a new order each time (docs/data_service.md).
      cluster: the `Cluster` whose workers share the input. The area is on this worker's own task; the position of all
        workers is one variable on the first parameter server. Every worker calls `staged()` with the same arguments.
      share: how the workers share it. "static" gives each worker, and each tower of it, a shard of the source. "own"
        means that `values` are already this worker's own: a generator, or a `tf.data.Dataset` that you have sharded.
        Tensors are always the worker's own. "dynamic" lets the chief hand out the batches of one common order, about a
        second of work at a time: a slow worker gets fewer, and what a dead one had not consumed goes to the others. For
        preemptible or unequal machines, with a random-access source and one device for each worker.
      name: name for ops, threads and messages; unique in the graph.

    Returns:
      The structure of `values`, or of what `map_fn` returns, with staged tensors in it; with `devices`, a list of such
      structures.

    Raises:
      TypeError, ValueError: an argument is invalid, or an element is larger than `memory_limit`.
      SpecError: a tensor belongs to another graph, the values do not fit `spec`, or a component cannot be cast.
      BuildError: called in a loop, a function or a finalized graph; or `map_fn` uses what a batch must not depend on.
      ClusterError: the input cannot be divided among the workers, or this process is a parameter server.

    >>> import numpy as np
    >>> with tf.Graph().as_default():
    ...     batch = staged(ArraySource({"x": np.arange(6)}, batch_size=4, epochs=1))
    ...     total = tf.reduce_sum(batch["x"])
    ...     with StagingSession() as sess:
    ...         [int(sess.run(total)), int(sess.run(total))]
    [6, 9]
    """
    op_name("staged()", name)
    caller = "staged()" if name is None else f"staged(name='{name}')"
    with building("staged()") as site:
        cluster = check_cluster(caller, cluster)
        towers = check_devices(caller, device, devices, cluster)
        plan = Plan(
            caller=caller,
            made_at=site,
            cluster=cluster,
            devices=towers,
            capacity=whole(caller, "capacity", capacity, 1, MOST_STAGED, "elements"),
            memory_limit=whole(caller, "memory_limit", memory_limit, 0, INT64_MAX, "bytes; 0 is no limit"),
            num_threads=check_threads(caller, num_threads, MOST_THREADS // len(towers)),
            num_processes=check_processes(caller, num_processes, num_threads, len(towers)),
            nice=check_nice(nice, caller),
            lockstep=flag(caller, "lockstep", lockstep),
            skip_rule=skip_rule(ignored_exception_types, max_ignored, caller),
            skip=checked_spans(caller, "skip", skip, INT64_MAX, "batch"),
            resume=choice(caller, "resume", resume, RESUME_MODES),
            towers=tower_range_of(cluster, choice(caller, "share", share, SHARES), len(towers)),
        )
        check_dynamic(plan)
        plan = with_inputs(plan, values, spec, map_fn, cast)
        _check_lockstep(plan)
        _check_parallel(plan)
        _check_resume(plan)
        pipeline = build(replace(plan, capacity=_fit(plan)), name or "staged")
    batches = [sink.get.batch for sink in pipeline.sinks if sink.get is not None]
    return batches[0] if devices is None else batches


def _check_lockstep(plan: Plan) -> None:
    if not plan.lockstep:
        return
    if plan.num_threads != 1:
        number = NAMED_AUTOTUNE if plan.num_threads == AUTOTUNE else plan.num_threads
        raise ValueError(f"{plan.caller} got num_threads={number} with lockstep=True, which has no thread. Drop one.")
    if plan.num_processes:
        raise ValueError(
            f"{plan.caller} got num_processes={plan.num_processes} with lockstep=True, which reads each batch when a "
            f"step needs it, so one process would work at a time. Drop one."
        )
    if plan.nice:
        raise ValueError(f"{plan.caller} got nice={plan.nice} with lockstep=True, which has no thread. Drop one.")
    if len(plan.devices) > 1 and plan.inputs[0].is_computed:
        raise ValueError(
            f"{plan.caller} got tensors, several devices and lockstep=True: in one step the tensors have one value, so "
            f"all towers would get the same batch. Pass the dataset or source itself, or use lockstep=False."
        )


def _check_parallel(plan: Plan) -> None:
    sources = [entry.source for entry in plan.inputs]
    if plan.num_threads == AUTOTUNE and None in sources:
        raise ValueError(
            f"{plan.caller} got num_threads={NAMED_AUTOTUNE} with values that the graph computes, whose order depends "
            f"on the number of threads. Use num_threads=1 and parallel ops (tf.data: "
            f"num_parallel_calls=tf.data.AUTOTUNE), or pass a source (staging_tf1.sources), whose batches keep their "
            f"order."
        )
    if plan.num_processes:
        check_in_processes(plan.caller, sources)


def _check_resume(plan: Plan) -> None:
    if plan.resume == "exact" and plan.fingerprint is not None and plan.fingerprint.get("source") == DATA_SERVICE:
        raise ValueError(
            f"{plan.caller} got resume='exact', the default, with a dataset that reads from "
            f"{service_of(plan.inputs[0].values)}. The service delivers in a new order each time, so no position in it "
            f"can be resumed exactly. Use resume='restart' to begin a restored run with a new pass over the data, or "
            f"resume='ignore' to drop as many batches of the new pass as had been consumed."
        )


def _fit(plan: Plan) -> int:
    """Return the capacity that fits into the memory limit."""
    limit = plan.memory_limit
    if limit == 0:
        return plan.capacity
    with errors_only(plan.caller):
        sizes = [size for entry in plan.inputs if (size := element_bytes(entry)) is not None]
    if len(sizes) < len(plan.inputs):
        raise ValueError(
            f"{plan.caller} got memory_limit={limit} bytes, but the size of an element is unknown at build time. Set "
            f"the shapes (tensor.set_shape), or limit the number of elements with capacity= instead."
        )
    largest = max(sizes)
    if largest >= _TWO_GIB or largest > limit:
        expected = "less than 2 GiB" if largest >= _TWO_GIB else f"at most memory_limit={limit} bytes"
        raise ValueError(
            f"{plan.caller}: an element has {largest} bytes, expected {expected}. Use smaller batches, or no "
            f"memory_limit."
        )
    return min(plan.capacity, limit // largest) if largest else plan.capacity
