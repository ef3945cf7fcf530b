"""One `Plan` for each call: complete before any op is made, never changed, and read by all later stages."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

import staging_tf1
from staging_tf1 import CustomRunner, staged
from staging_tf1.define import build as builder
from staging_tf1.define import custom_runner
from staging_tf1.define import staged as staged_module
from staging_tf1.feed.pipeline import Pipeline, Plan, pipelines_of
from staging_tf1.sources import ArraySource, GeneratorSource

TWO = ["/device:CPU:0", "/device:CPU:0"]


def source() -> ArraySource:
    return ArraySource({"x": np.arange(40, dtype=np.float32), "y": np.arange(40)}, batch_size=4, shuffle=True, seed=1)


def batches() -> Any:
    yield {"x": np.zeros((2, 3), np.float32), "name": np.array(["a", "b"], object)}


# Each makes one pipeline.
CALLS: dict[str, Callable[[], Any]] = {
    "source": lambda: staged(source(), num_threads=3, capacity=5, name="train"),
    "towers": lambda: staged(source(), devices=TWO, memory_limit=96, capacity=50),
    "lockstep": lambda: staged(source(), lockstep=True),
    "autotune": lambda: staged(source(), num_threads=staging_tf1.AUTOTUNE, cast={"x": tf.float16}),
    "processes": lambda: staged(source(), num_processes=2, nice=3),
    "dynamic": lambda: staged(source(), share="dynamic"),
    "map_fn": lambda: staged(source(), map_fn=lambda batch: {"sum": batch["x"] + 1}, cast=tf.float16),
    "generator": lambda: staged(GeneratorSource(batches, resume="skip"), ignored_exception_types=ValueError),
    "rotation": lambda: staged(batches, devices=TWO),
    "shuffle": lambda: CustomRunner(source(), batch_size=4, seed=3),
    "fifo": lambda: CustomRunner(source(), queue="fifo", num_threads=2, capacity=7, name="queue"),
    "generators": lambda: CustomRunner([batches, batches], queue="fifo"),
}
# As above, of values that belong to one graph.
OF_THE_GRAPH: dict[str, Callable[[], Any]] = {
    "tensors": lambda: staged({"x": tf.random.uniform([4, 2])}),
    "dataset": lambda: staged(tf.data.Dataset.range(10).batch(2), devices=TWO, resume="ignore"),
}


def ops_of(graph: tf.Graph) -> list[Any]:
    return [
        (op.name, op.type, [tensor.name for tensor in op.inputs], [op.name for op in op.control_inputs], op.device)
        for op in graph.get_operations()
    ]


@pytest.mark.parametrize("call", [*CALLS, *OF_THE_GRAPH])
def test_the_plan_is_complete_before_any_op_is_made(call: str, monkeypatch: pytest.MonkeyPatch) -> None:
    planned: list[tuple[Plan, set[str]]] = []

    def build(plan: Plan, scope: str) -> Pipeline:
        planned.append((plan, {op.name.split("/")[0] for op in tf.get_default_graph().get_operations()}))
        return builder.build(plan, scope)

    for module in (staged_module, custom_runner):
        monkeypatch.setattr(module, "build", build)
    with tf.Graph().as_default() as graph:
        {**CALLS, **OF_THE_GRAPH}[call]()
    (pipeline,) = pipelines_of(graph)
    ((plan, scopes),) = planned
    assert pipeline.name not in scopes
    assert {id(reader.plan) for reader in (pipeline, *pipeline.producers)} == {id(plan)}
    with pytest.raises(dataclasses.FrozenInstanceError):
        plan.capacity = 1  # type: ignore[misc]


@pytest.mark.parametrize("call", CALLS)
def test_a_plan_is_built_again_in_another_graph(call: str) -> None:
    with tf.Graph().as_default() as first:
        CALLS[call]()
    (pipeline,) = pipelines_of(first)
    with tf.Graph().as_default() as second:
        again = builder.build(pipeline.plan, pipeline.name)
    assert ops_of(second) == ops_of(first)
    assert again.producers == pipeline.producers
