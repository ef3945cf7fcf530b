"""Builds the pipeline of a plan."""

from __future__ import annotations

from typing import Any

import tensorflow.compat.v1 as tf
from soak.plan import QUEUE_KINDS, Plan
from soak.sources import BAD_RECORD, ERRORS, SoakSource

import staging_tf1 as staging
from staging_tf1.sources import GeneratorSource

_SPEC = {name: tf.TensorSpec([None], tf.int64) for name in ("id", "double")}


def build(plan: Plan, source: SoakSource) -> list[Any]:
    """For each tower the batch that its steps take."""
    if plan.kind in QUEUE_KINDS:
        return [runner(plan, source).get_inputs()]
    options: dict[str, Any] = dict(capacity=plan.capacity, num_threads=plan.threads, lockstep=plan.lockstep)
    values: Any = source
    if plan.streams:
        values = stream(plan, source)
    elif plan.from_dataset:
        values = dataset(plan)
    if "classic" in plan.kind:
        values = runner(plan, source).get_inputs()
    else:
        options.update(skips(plan))
    if plan.towers == 1:
        return [staging.staged(values, **options)]
    return list(staging.staged(values, devices=[f"/device:CPU:{n % 2}" for n in range(plan.towers)], **options))


def stream(plan: Plan, source: SoakSource) -> GeneratorSource:
    return GeneratorSource(source.as_generator, spec=_SPEC, resume="skip" if plan.resumes else "error")


def runner(plan: Plan, source: SoakSource) -> staging.CustomRunner:
    return staging.CustomRunner(
        [stream(plan, part) for part in source.parts(plan.threads)] if plan.kind == "generators" else source,
        queue="shuffle" if plan.shuffles else "fifo",
        batch_size=plan.taken if plan.by_records else None,
        num_threads=plan.threads,
        seed=1 if plan.repeatable else None,
        **skips(plan),
    )


def skips(plan: Plan) -> dict[str, Any]:
    if plan.fault != "ignored":
        return {}
    error = tf.errors.InvalidArgumentError if plan.from_dataset else type(ERRORS[plan.error](""))
    return dict(ignored_exception_types=(error,), max_ignored=plan.max_ignored)


def dataset(plan: Plan) -> Any:
    """The batches of the source, made by TensorFlow, two at a time."""

    def make(ids: Any) -> Any:
        bad = tf.constant(sorted(plan.bad), tf.int64)
        good = tf.logical_not(tf.reduce_any(tf.equal(ids[:, tf.newaxis], bad)))
        with tf.control_dependencies([tf.debugging.Assert(good, [BAD_RECORD])]):
            return {"id": tf.identity(ids), "double": 2 * ids}

    return tf.data.Dataset.range(plan.records).batch(plan.batch).map(make, num_parallel_calls=2)
