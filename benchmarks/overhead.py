"""The cost of our layers per step, over TensorFlow's own: microseconds, in turns within one process.

    python benchmarks/overhead.py [--rounds 7] [--json out.json]

All four comparisons use a scalar, so only the overhead remains:

- the put and get of `staged()` (tokens, slots, the check that it is started) minus those of a raw area, each in one
  callable of `tf.Session`: at most 25 us;
- `StagingSession.make_callable` minus `tf.Session.make_callable`, without a pipeline: at most 10 us;
- the same on a staged tensor, while its feed thread runs;
- `StagingSession.run` minus `tf.train.MonitoredTrainingSession.run` without hooks: at most 20 us.
"""

from __future__ import annotations

from contextlib import ExitStack

import tensorflow.compat.v1 as tf
from common import Step, difference, finish, flags, in_turn, turns

import staging_tf1 as staging
from staging_tf1.feed.pipeline import pipelines_of

COMPARED = {
    "staged put and get, over a raw area's": ("staged area", "raw area"),
    "StagingSession.make_callable": ("StagingSession callable", "Session callable"),
    "StagingSession.make_callable, staged": ("StagingSession callable, staged", "Session callable, staged"),
    "StagingSession.run": ("StagingSession.run", "MonitoredTrainingSession.run"),
}


def main(argv: list[str] | None = None) -> dict[str, tuple[float, float, float]]:
    """Print each comparison; return its median, minimum and maximum, in microseconds."""
    options = flags(__doc__).parse_args(argv)
    with ExitStack() as stack:
        found = in_turn(
            {**areas(stack), **callables(stack), **staged_callables(stack), **runs(stack)}, **turns(options, 0.3)
        )
    over = {name: difference(found, more, less) for name, (more, less) in COMPARED.items()}
    for name, (median, least, most) in over.items():
        print(f"{name:40} {median:+7.1f} us ({least:+.1f} to {most:+.1f})")
    finish(options, {"us a step": found, "us over": over})
    return over


def areas(stack: ExitStack) -> dict[str, Step]:
    """One run that gets and puts: a raw area, and a staged one with the put that lockstep adds to the step."""
    with tf.Graph().as_default() as graph:
        value = tf.get_variable("value", initializer=1.0)
        put = tf.raw_ops.Stage(values=[value.read_value()], capacity=2, shared_name="raw")
        got = tf.raw_ops.Unstage(dtypes=[tf.float32], shared_name="raw")
        raw = stack.enter_context(tf.Session())
        raw.run(tf.global_variables_initializer())
        raw.run(put)
        raw_step = raw.make_callable([tf.group(*got), put])

    with tf.Graph().as_default() as graph:
        value = tf.get_variable("value", initializer=1.0)
        batch = staging.staged(value.read_value(), lockstep=True)
        taken = tf.group(batch)
        (pipeline,) = pipelines_of(graph)
        session = stack.enter_context(staging.StagingSession())
        # The `tf.Session` inside, which adds nothing to a run.
        plain = session.run_step_fn(lambda step_context: step_context.session)
        staged_step = plain.make_callable([taken, pipeline.sinks[0].put])
    return {"raw area": raw_step, "staged area": staged_step}


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
        plain = ours.run_step_fn(lambda step_context: step_context.session)
        return {
            "Session callable, staged": plain.make_callable(taken),
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


if __name__ == "__main__":
    main()
