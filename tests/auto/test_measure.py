"""`auto_stage(measure=True)`, how long an analysis takes, and whether staging pays."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import Any

import auto_graphs
import pytest
import tensorflow.compat.v1 as tf
from auto_graphs import KINDS, Counted, equal, run
from load import slowdown

import staging_tf1 as staging
from staging_tf1.errors import AutoStageError
from staging_tf1.lifecycle import auto_gain
from staging_tf1.lifecycle.auto_gain import Gain


@pytest.fixture(autouse=True)
def graph() -> Any:
    tf.disable_control_flow_v2()
    with tf.Graph().as_default() as graph:
        yield graph


# As measured, a few ops behind a queue are not worth to be moved on each machine.
MEASURED = [KINDS[kind] for kind in ("images", "text", "towers")] + [partial(auto_graphs.queues, more_ops=100)]


@pytest.mark.parametrize("build", MEASURED)
def test_measured_times_change_no_batch(build: Any) -> None:
    plain, staged = run(build, auto=False, steps=10), run(build, auto=True, steps=10, measure=True)
    assert len(plain) == 10
    assert equal(plain, staged)


def test_measuring_adds_nothing_to_the_graph(graph: Any) -> None:
    auto_graphs.images()
    before = graph.as_graph_def().SerializeToString(deterministic=True)
    measured, estimated = staging.auto_stage(measure=True, dry_run=True), staging.auto_stage(dry_run=True)
    assert graph.as_graph_def().SerializeToString(deterministic=True) == before
    sizes = {each.name: each.bytes for each in measured.boundary}
    labels = next(each for each in estimated.boundary if each.name == "IteratorGetNext:1")
    # A batch of three labels; the estimate counts its unknown size as 32.
    assert (sizes[labels.name], labels.bytes) == (24, 256)


def shared() -> None:
    iterator = tf.data.make_initializable_iterator(tf.data.Dataset.range(6), shared_name="numbers")
    trained(iterator.get_next())


def with_a_python_function() -> None:
    auto_graphs.python()


def fed_initializer() -> None:
    trained(tf.data.make_initializable_iterator(tf.data.Dataset.range(tf.placeholder(tf.int64, []))).get_next())


def trained(x: Any) -> None:
    w = tf.get_variable("w", initializer=1.0, use_resource=True)
    tf.train.GradientDescentOptimizer(0.1).minimize(w * tf.cast(x, tf.float32))


UNMEASURED = {
    "a Python function": (with_a_python_function, "would call the Python function of 'PyFunc'"),
    "a shared name": (shared, "takes from 'numbers', a shared name"),
    "an initializer that is fed": (fed_initializer, "'MakeIterator' must be fed"),
}


@pytest.mark.parametrize("case", UNMEASURED)
def test_what_cannot_be_measured_is_refused_and_changes_nothing(case: str, graph: Any) -> None:
    build, words = UNMEASURED[case]
    build()
    before = graph.as_graph_def().SerializeToString(deterministic=True)
    with pytest.raises(AutoStageError, match=rf"measure=True.*{words}.*Leave measure out"):
        staging.auto_stage(measure=True)
    assert graph.as_graph_def().SerializeToString(deterministic=True) == before


@pytest.mark.parametrize(("ops", "secs"), [(10_000, 1), pytest.param(100_000, 10, marks=pytest.mark.slow)])
def test_an_analysis_is_quick(ops: int, secs: float) -> None:
    sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
    try:
        import auto_stage as benchmark
    finally:
        sys.path.pop(0)
    built, moved, took = benchmark.measured(ops)
    assert built >= ops and moved >= ops / 20
    assert took < secs * slowdown()


# Whether it pays.


def gain(put: float = 0.02, step: float = 0.025, wait: float = 0.0, busy: float = 0.3) -> Gain:
    return Gain("x", 200, put, step, wait, busy)


def test_a_gain_says_what_a_step_would_take() -> None:
    assert gain().why_not == "" and str(gain()).endswith("Unstaged it would take at most about 45.0 ms")
    assert gain(wait=0.001).unstaged_secs == pytest.approx(0.044)


@pytest.mark.parametrize(
    ("measured", "words"),
    [
        (gain(put=0.001), "the input takes little of a step"),
        (gain(busy=0.95), "the process uses 95 % of the cores"),
        (gain(put=0.0255, step=0.025, wait=0.025), "a step still waits for nearly all of the input"),
    ],
)
def test_a_gain_says_why_it_does_not_pay(measured: Gain, words: str) -> None:
    assert words in measured.why_not and f"Staging does not pay: {words}" in str(measured)


def test_after_200_steps_it_is_said_that_staging_does_not_pay(monkeypatch: Any, caplog: Any) -> None:
    assert auto_gain._JUDGED_AFTER == 200
    monkeypatch.setattr(auto_gain, "_JUDGED_AFTER", 20)
    # On a busy machine a few small ops may take more than a twentieth of a step.
    monkeypatch.setattr(auto_gain, "_LITTLE", 1.0)
    model = Counted(300, iterator="one_shot")
    heavy = tf.linalg.matmul(*[tf.random.normal([1000, 1000]) * model.w] * 2)
    staging.auto_stage(model.train)
    with tf.Session() as sess:
        model.init(sess)
        for step in range(21):
            assert "does not pay" not in caplog.text, step
            sess.run([model.train, heavy.op])
    assert "auto_stage(): 'auto_stage': after 20 steps, a batch takes" in caplog.text
    assert "Staging does not pay: the input takes little of a step" in caplog.text
