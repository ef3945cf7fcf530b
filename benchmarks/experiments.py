"""What the package itself costs, in turns within one process: two processes differ by more than these microseconds.

    python benchmarks/experiments.py [overhead shuffle cast synthetic scaling] [--rounds N] [--json out.json]

overhead (7 rounds): our layers per step, over TensorFlow's own, in microseconds on a scalar.
  - the put and get of `staged()` (tokens, slots, the check that it is started) minus those of a raw area, each in one
    callable of `tf.Session`: at most 25 us;
  - `StagingSession.make_callable` minus `tf.Session.make_callable`, without a pipeline: at most 10 us;
  - the same on a staged tensor, while its feed thread runs;
  - `StagingSession.run` minus `tf.train.MonitoredTrainingSession.run` without hooks: at most 20 us.
shuffle (71 rounds): a full-epoch shuffle over reading in order, on W1 and W2: at most 5 %.
cast (7 rounds): memory of the area and time per step of W2 when staging float32, float16 (`cast=`), or bytes that the
  step converts.
synthetic (31 rounds): real over synthetic, the throughput with the input pipeline divided by that on constant data, as
  on TensorFlow's old benchmark pages. A small convolutional network trains on the digits, which are shuffled, moved by
  up to two pixels and scaled in Python. The cost of the input grows more slowly with the batch size than the step. At
  least 0.97 if a step on constant data takes 20 ms or more.
scaling (7 rounds): the time per step against one quantity. The step only takes its batch, so all of its time is ours.
  - bytes: one component of 1 KB to 64 MB; flat up to about 100 KB, then a straight line, because the gather is a copy;
  - threads: 1 to 8 on a source that waits 8 ms for each batch; 8 ms divided by the threads, until nothing waits;
  - towers: 1 to 4, a batch of 64 KB for each; a straight line, because each tower takes one more batch;
  - capacity: 1 to 64 batches of 64 KB; flat;
  - steps: 10^2 to 10^5 in one session; flat, because a step does not depend on the steps before it.
"""

from __future__ import annotations

import statistics
import time
from contextlib import ExitStack
from typing import Any

import numpy as np
import tensorflow.compat.v1 as tf
from common import Step, difference, finish, flags, in_turn, ratio, rotated, turns
from measure import measured
from tqdm import tqdm
from workloads import WORKLOADS

import staging_tf1 as staging
from staging_tf1.data import load_images
from staging_tf1.feed.pipeline import pipelines_of
from staging_tf1.sources import ArraySource, aligned_empty

COMPARED = {
    "staged put and get, over a raw area's": ("staged area", "raw area"),
    "StagingSession.make_callable": ("StagingSession callable", "Session callable"),
    "StagingSession.make_callable, staged": ("StagingSession callable, staged", "Session callable, staged"),
    "StagingSession.run": ("StagingSession.run", "MonitoredTrainingSession.run"),
}
KB, MB = 2**10, 2**20
CAST_CAPACITY = 2
WAIT_SECS = 0.008
# For each quantity that is varied: its values, and those of the quick form.
VARIED: dict[str, tuple[list[int], list[int]]] = {
    "bytes": ([KB, 4 * KB, 16 * KB, 64 * KB, 256 * KB, MB, 4 * MB, 16 * MB, 64 * MB], [KB, MB]),
    "threads": ([1, 2, 3, 4, 6, 8], [1, 2]),
    "towers": ([1, 2, 3, 4], [1, 2]),
    "capacity": ([1, 2, 4, 8, 16, 32, 64], [1, 4]),
    "steps": ([100, 1_000, 10_000, 100_000], [10, 20]),
}
SHIFTS = range(-2, 3)
# For each way to move an 8x8 image, wrapping around its edges: the number of the pixel at each place.
MOVES = np.array(
    [np.roll(np.arange(64).reshape(8, 8), (down, right), (0, 1)).ravel() for down in SHIFTS for right in SHIFTS]
)


def shown(spread: tuple[float, float, float]) -> str:
    return "{:.3f} ({:.3f} to {:.3f})".format(*spread)


def overhead(options: Any) -> dict[str, Any]:
    """Print what each layer adds, in microseconds."""
    with ExitStack() as stack:
        steps = {**areas(stack), **callables(stack), **staged_callables(stack), **runs(stack)}
        found = in_turn(steps, **turns(options, 0.3))
    for name, (more, less) in COMPARED.items():
        print("{:40} {:+7.1f} us ({:+.1f} to {:+.1f})".format(name, *difference(found, more, less)))
    return found


def areas(stack: ExitStack) -> dict[str, Step]:
    """One run that gets and puts: a raw area, and a staged one with the put that lockstep adds to the step."""
    with tf.Graph().as_default():
        value = tf.get_variable("value", initializer=1.0)
        put = tf.raw_ops.Stage(values=[value.read_value()], capacity=2, shared_name="raw")
        got = tf.raw_ops.Unstage(dtypes=[tf.float32], shared_name="raw")
        raw = stack.enter_context(tf.Session())
        raw.run(tf.global_variables_initializer())
        raw.run(put)
        raw_step = raw.make_callable([tf.group(*got), put])

    with tf.Graph().as_default() as graph:
        value = tf.get_variable("value", initializer=1.0)
        taken = tf.group(staging.staged(value.read_value(), lockstep=True))
        (pipeline,) = pipelines_of(graph)
        session = stack.enter_context(staging.StagingSession())
        staged_step = inner(session).make_callable([taken, pipeline.sinks[0].put.op])
    return {"raw area": raw_step, "staged area": staged_step}


def inner(session: Any) -> Any:
    """The `tf.Session` inside a StagingSession, which adds nothing to a run."""
    return session.run_step_fn(lambda step_context: step_context.session)


def callables(stack: ExitStack) -> dict[str, Step]:
    """A callable of each session, on a graph without a pipeline."""
    with tf.Graph().as_default():
        op = tf.group(tf.constant(1.0))
        plain = stack.enter_context(tf.Session())
        ours = stack.enter_context(staging.StagingSession())
        return {"Session callable": plain.make_callable(op), "StagingSession callable": ours.make_callable(op)}


def staged_callables(stack: ExitStack) -> dict[str, Step]:
    """A callable of each session, both on the same staged tensor."""
    with tf.Graph().as_default():
        value = tf.get_variable("value", initializer=1.0)
        taken = tf.group(staging.staged(value.read_value(), capacity=8))
        ours = stack.enter_context(staging.StagingSession())
        return {
            "Session callable, staged": inner(ours).make_callable(taken),
            "StagingSession callable, staged": ours.make_callable(taken),
        }


def runs(stack: ExitStack) -> dict[str, Step]:
    """`run` of each session, on a graph without a pipeline."""
    with tf.Graph().as_default():
        op = tf.group(tf.constant(1.0))
        ours = stack.enter_context(staging.StagingSession())
        theirs = stack.enter_context(tf.train.MonitoredTrainingSession())
        return {
            "MonitoredTrainingSession.run": lambda: theirs.run(op),
            "StagingSession.run": lambda: ours.run(op),
        }


def shuffle(options: Any) -> dict[str, Any]:
    """Print the time of shuffled batches over that in order."""
    found = {}
    for name in ("W1", "W2"):
        workload = WORKLOADS[name]
        data = workload.open(workload.records[options.quick])
        with ExitStack() as stack:
            steps = {}
            for order in ("shuffled", "in order"):
                with tf.Graph().as_default():
                    batch = staging.staged(workload.source(data, seed=1, shuffle=order == "shuffled"))
                    steps[order] = staged_step(workload.model(batch), stack)
            found[name] = in_turn(steps, **turns(options, 0.2))
        print(f"{name}: shuffled takes {shown(ratio(found[name], 'shuffled', 'in order'))} of the time in order")
    return found


def staged_step(fetches: Any, stack: ExitStack) -> Step:
    """A step in a StagingSession on the default graph."""
    step: Step = stack.enter_context(staging.StagingSession()).make_callable(fetches)
    return step


def cast(options: Any) -> dict[str, Any]:
    """Print, for each way, the bytes of a full area and the time per step relative to float32."""
    workload = WORKLOADS["W2"]
    data = workload.open(workload.records[options.quick])
    ways: dict[str, tuple[Any, dict[str, Any]]] = {
        "float32": (workload.source(data, seed=1), {}),
        "cast=float16": (workload.source(data, seed=1), {"cast": {"image": tf.float16}}),
        "uint8, converted after the area": (workload.compact_source(data, seed=1), {}),
    }
    steps, held = {}, {}
    with ExitStack() as stack:
        for way, (source, arguments) in ways.items():
            with tf.Graph().as_default():
                batch = staging.staged(source, capacity=CAST_CAPACITY, **arguments)
                held[way] = CAST_CAPACITY * sum(each.shape.num_elements() * each.dtype.size for each in batch.values())
                if way.startswith("uint8"):
                    batch = workload.expand(batch)
                batch["image"] = tf.cast(batch["image"], tf.float32)
                steps[way] = staged_step(workload.model(batch), stack)
        found = in_turn(steps, **turns(options, 1.0))
    for way, nbytes in held.items():
        times = shown(ratio(found, way, "float32"))
        print(f"{way:34} {nbytes / 2**20:6.1f} MiB in the area; time per step, float32 = 1: {times}")
    return found


def synthetic(options: Any) -> dict[str, Any]:
    """Print real over synthetic for each batch size."""
    found = {}
    for batch_size in (64,) if options.quick else (64, 256, 1024):
        with ExitStack() as stack:
            steps = {"synthetic": constant_digits(batch_size, stack), "real": staged_digits(batch_size, stack)}
            found[batch_size] = in_turn(steps, **turns(options, 0.5))
        millis = statistics.median(found[batch_size]["synthetic"]) / 1e3
        share = shown(ratio(found[batch_size], "synthetic", "real"))
        print(f"{batch_size} digits per batch, {millis:.1f} ms per step on constant data; real over synthetic: {share}")
    return found


def staged_digits(batch_size: int, stack: ExitStack) -> Step:
    """A step on the staged digits."""
    digits = load_images()
    source = ArraySource(
        {"image": digits.x_train, "label": digits.y_train.astype(np.int32)},
        batch_size=batch_size,
        shuffle=True,
        seed=1,
        across_epochs=True,
        transform=moved_and_scaled,
    )
    with tf.Graph().as_default():
        return staged_step(digits_model(staging.staged(source)), stack)


def constant_digits(batch_size: int, stack: ExitStack) -> Step:
    """The same step on a constant batch in the graph."""
    rng = np.random.default_rng(0)
    with tf.Graph().as_default():
        image = tf.Variable(rng.random((batch_size, 8, 8), np.float32), trainable=False)
        label = tf.Variable(rng.integers(0, 10, batch_size, np.int32), trainable=False)
        train_op = digits_model({"image": image.value(), "label": label.value()})
        session = stack.enter_context(tf.Session())
        session.run(tf.global_variables_initializer())
        return session.make_callable(train_op)


def moved_and_scaled(batch: dict[str, Any], rng: np.random.Generator) -> dict[str, Any]:
    """Move each image by up to two pixels and scale it to float32 from 0 to 1, in one gather and one more pass."""
    image = batch["image"]
    pixels = MOVES[rng.integers(len(MOVES), size=len(image))]
    pixels += np.arange(0, image.size, 64)[:, np.newaxis]
    scaled = aligned_empty(image.shape, np.float32)
    np.multiply(image.take(pixels).reshape(image.shape), np.float32(1 / 16), out=scaled)
    return {"image": scaled, "label": batch["label"]}


def digits_model(batch: dict[str, Any]) -> Any:
    """The train op: three 3x3 convolutions of 32, 64 and 64 channels, a mean, ten classes; SGD."""
    values = batch["image"][..., tf.newaxis]
    for index, channels in enumerate((32, 64, 64)):
        kernel = tf.get_variable(f"conv{index}", [3, 3, values.shape[-1], channels])
        values = tf.nn.relu(tf.nn.conv2d(values, kernel, strides=1, padding="SAME"))
    logits = tf.matmul(tf.reduce_mean(values, axis=[1, 2]), tf.get_variable("logits", [64, 10]))
    loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=batch["label"], logits=logits))
    return tf.train.GradientDescentOptimizer(0.1).minimize(loss)


def scaling(options: Any) -> dict[str, Any]:
    """Print the median milliseconds per step for each value of each quantity. The values take turns."""
    found = {}
    for what, (usual, quick) in VARIED.items():
        values = quick if options.quick else usual
        found[what] = {value: [] for value in values}
        for turn in tqdm(range(1 if options.quick else options.rounds), desc=what, disable=None):
            for value in rotated(values, turn):
                found[what][value].append(varied_step(what, value, 0.05 if options.quick else 0.7))
        print(what)
        for value, millis in found[what].items():
            print(f"{value:>12,}: {statistics.median(millis):9.4f} ms per step")
    return found


def varied_step(what: str, value: int, secs: float) -> float:
    """Milliseconds of a step that only takes a batch, with this value of the quantity."""
    if what == "threads":
        return one_step(vectors(KB, wait_secs=WAIT_SECS), secs, num_threads=value)
    if what == "towers":
        return one_step(vectors(64 * KB, records=16 * value), secs, devices=["/cpu:0"] * value)
    if what == "capacity":
        return one_step(vectors(64 * KB), secs, capacity=value)
    if what == "bytes":
        return one_step(vectors(value), secs)
    return one_step(vectors(KB), secs, steps=value)


def vectors(nbytes: int, *, records: int = 4, wait_secs: float = 0.0) -> Any:
    """A source whose batch is one record of `nbytes` bytes. Each batch may wait, like remote storage."""

    def wait(batch: Any, rng: np.random.Generator) -> Any:
        time.sleep(wait_secs)
        return batch

    rows = np.zeros((records, nbytes // 4), np.float32)
    return ArraySource(rows, batch_size=1, transform=wait if wait_secs else None)


def one_step(source: Any, secs: float, *, steps: int | None = None, **arguments: Any) -> float:
    """Milliseconds of a step that only takes a batch of `source`, staged with those arguments."""
    with tf.Graph().as_default():
        batches = staging.staged(source, **arguments)
        taken = tf.group(*(batches if isinstance(batches, list) else [batches]))
        with staging.StagingSession() as session:
            step = session.make_callable(taken)
            if steps is None:
                return measured(step, secs)["wall_ms"]
            # The number of steps is varied, so the first hundred steps count as well: no warm-up.
            start = time.perf_counter()
            for _ in range(steps):
                step()
            return (time.perf_counter() - start) * 1e3 / steps


# Each part, and its rounds.
PARTS = {
    "overhead": (overhead, 7),
    "shuffle": (shuffle, 71),
    "cast": (cast, 7),
    "synthetic": (synthetic, 31),
    "scaling": (scaling, 7),
}


def main(argv: list[str] | None = None) -> None:
    """Print the figures of each part."""
    words = flags(__doc__, rounds=None)
    words.add_argument("parts", nargs="*", metavar="PART", help=f"some of {', '.join(PARTS)} (default: all)")
    options = words.parse_args(argv)
    if unknown := set(options.parts) - set(PARTS):
        words.error(f"got {', '.join(sorted(unknown))}, expected some of {', '.join(PARTS)}")
    rounds, found = options.rounds, {}
    for part in options.parts or PARTS:
        run, options.rounds = PARTS[part][0], rounds or PARTS[part][1]
        found[part] = run(options)
    finish(options, found)


if __name__ == "__main__":
    main()
