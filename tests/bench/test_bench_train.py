"""`staging-tf1 bench --train module:build`: the threads or processes that suit the user's own step best."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from staging_tf1.bench import suites
from staging_tf1.bench.rounds import Answer, Outcome
from staging_tf1.bench.suites import advice, own_systems
from staging_tf1.bench.tables import Table, as_text
from staging_tf1.bench.worker import Request, answer
from staging_tf1.cli import bench

_MODULE = """
import numpy as np
import tensorflow.compat.v1 as tf
import staging_tf1 as staging

def source():
    x = np.random.default_rng(0).random((64, 3), np.float32)
    return staging.sources.ArraySource({"x": x, "y": x.sum(1)}, batch_size=16)

def train(batch):
    error = tf.linalg.matvec(batch["x"], tf.get_variable("w", [3])) - batch["y"]
    return tf.train.GradientDescentOptimizer(0.1).minimize(tf.reduce_mean(error**2))

def build():
    return source(), train

def pipeline(**feeding):
    return train(staging.staged(source(), **feeding))

def named(num_threads=1, num_processes=0):
    feeding = {"num_processes": num_processes} if num_processes else {"num_threads": num_threads}
    return train(staging.staged(source(), **feeding))

def queued(**feeding):
    runner = staging.CustomRunner(source(), queue="fifo", **feeding)
    return train(runner.get_inputs())

def stream():
    return (lambda: iter([np.zeros((2, 3))] * 10**6)), lambda x: tf.reduce_sum(x)

def locked_source():
    words = (word for word in ())
    transform = lambda batch: (words, batch)[1]
    return staging.sources.ArraySource(np.zeros([4, 3]), batch_size=2, transform=transform)

def locked():
    return locked_source(), lambda x: tf.reduce_sum(x)

def piped(**feeding):
    return tf.reduce_sum(staging.staged(locked_source(), name="locked", **feeding))

def half(num_threads=1):
    return train(staging.staged(source(), num_threads=num_threads))

def needy(size):
    return build()

def deaf(**feeding):
    return train(staging.staged(source()))

def nothing(**feeding):
    return tf.constant(1)

def pair(**feeding):
    return build()

def forgetful(**feeding):
    train(staging.staged(source(), **feeding))

number = 3
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    (tmp_path / "train_own.py").write_text(_MODULE, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    yield
    sys.modules.pop("train_own", None)


@pytest.mark.thinned
@pytest.mark.parametrize("function", ["build", "pipeline", "named", "queued"])
@pytest.mark.parametrize("system", ["staged", "staged_processes"])
def test_a_step_is_fed_by_as_many_threads_or_processes_as_asked_for(function: str, system: str, module: None) -> None:
    got = answer(Request(f"train_own:{function}", system, "", steps=3, threads=2))
    assert got["measured"]["steps"] == 3


@pytest.mark.parametrize(
    ("function", "system", "why"),
    [
        ("pipeline", "const", "train_own:pipeline stages its input itself. Let build() return (source, train)"),
        ("named", "feed_dict", "train_own:named stages its input itself. Let build() return (source, train)"),
        ("stream", "staged_processes", "staged() got num_processes= with a GeneratorSource, which can only be read in"),
        ("locked", "staged_processes", "staged() got num_processes= with a source that cannot be moved to another pr"),
        ("piped", "staged_processes", "staged(name='locked') got num_processes= with a source that cannot be moved to"),
    ],
)
def test_what_cannot_be_measured_is_skipped_with_the_reason(function: str, system: str, why: str, module: None) -> None:
    assert answer(Request(f"train_own:{function}", system, "", steps=3))["skipped"].startswith(why)


@pytest.mark.parametrize(
    ("function", "message"),
    [
        ("absent", "--train train_own:absent: module 'train_own' has no function 'absent'."),
        ("number", "--train train_own:number: number is int, expected a function."),
        ("half", "--train train_own:half: half(num_threads=1) must take no arguments and return (source, train), or"),
        ("needy", "--train train_own:needy: needy(size) must take no arguments and return (source, train), or take"),
        (
            "deaf",
            "--train train_own:deaf: deaf(num_threads=3) made a pipeline with num_threads=1. Pass its arguments on: "
            "def deaf(**feeding): ... staged(source, **feeding).",
        ),
        (
            "nothing",
            "--train train_own:nothing: nothing(num_threads=3) called no staged() and no CustomRunner. Pass its "
            "arguments on: def nothing(**feeding): ... staged(source, **feeding).",
        ),
        (
            "pair",
            "--train train_own:pair: pair(num_threads=3) returned tuple, expected the train op. A function that takes "
            "num_threads and num_processes calls staged(source, ...) itself.",
        ),
        ("forgetful", "--train train_own:forgetful: forgetful(num_threads=3) returned NoneType, expected the train op"),
    ],
)
def test_a_build_that_does_something_else_is_told(function: str, message: str, module: None) -> None:
    assert answer(Request(f"train_own:{function}", "staged", "", steps=3, threads=3))["failed"].startswith(message)


def test_a_build_that_ignores_the_number_of_processes_is_told(module: None) -> None:
    failed = answer(Request("train_own:deaf", "staged_processes", "", steps=3, threads=2))["failed"]
    assert re.match(r"--train train_own:deaf: deaf\(num_processes=2\) made a pipeline with num_processes=", failed)


def outcome(name: str, *wall_ms: float) -> Outcome:
    made = Outcome(name)
    for wall in wall_ms:
        figures = {"wall_ms": wall, "cpu_ms": 0.0, "steps": 1, "peak_mb": 1.0, "batch_size": 16}
        made.add(Answer(measured=figures))
    return made


def told(**wall_ms: Any) -> list[str]:
    names = {name.replace("_by_", ":"): values for name, values in wall_ms.items()}
    outcomes = {name: outcome(name, *values) for name, values in names.items()}
    return advice(outcomes, own_systems(cores=2))


def test_the_fastest_is_named_with_its_speed_over_one_thread_and_the_line_to_write() -> None:
    assert told(staged_by_1=[8, 9, 8], staged_by_2=[7, 9, 9], staged_processes_by_2=[4, 4.5, 2]) == [
        "best for this step: staged_processes:2, 2.00 (2.00 to 4.00) times as fast as staged:1",
        "write: staging.staged(source, num_processes=2)",
    ]


def test_of_two_that_are_equally_fast_the_simpler_one_is_named() -> None:
    assert told(staged_by_1=[8.1, 8.2], staged_by_4=[8.0, 8.0], staged_processes_by_1=[8.0, 8.0]) == [
        "best for this step: staged:1",
        "write: staging.staged(source, num_threads=1)",
    ]


def test_rounds_that_disagree_are_told() -> None:
    said, line = told(staged_by_1=[8, 8, 4], staged_by_2=[4, 4, 5])
    assert said == (
        "best for this step: staged:2, 2.00 (0.80 to 2.00) times as fast as staged:1; the rounds disagree, so repeat "
        "this with more --rounds on a less busy machine"
    )
    assert line == "write: staging.staged(source, num_threads=2)"


def test_what_was_not_measured_is_not_named() -> None:
    assert told() == []
    only = {"staged:4": outcome("staged:4", 2.0), "staged:1": Outcome("staged:1", failed="no answer in 3 s")}
    assert advice(only, own_systems(cores=2))[0] == "best for this step: staged:4"


def test_the_plan_compares_threads_and_processes_up_to_the_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(suites, "usable_cores", lambda: 4)
    (plan,) = bench._plans(bench.parser().parse_args(["--train", "train_own:build"]))
    assert list(plan.requests) == [
        *("const", "feed_dict", "staged:1", "staged:2", "staged:4"),
        *("staged_processes:1", "staged_processes:2", "staged_processes:4"),
    ]
    assert plan.requests["staged_processes:4"].threads == 4
    assert [str(each) for each in own_systems(cores=1)][-1] == "staged_processes:2"


def test_the_advice_stands_below_the_table() -> None:
    table = Table("own", {"staged:1": outcome("staged:1", 1.0)}, None, ["best for this step: staged:1"])
    assert as_text({}, [table]).splitlines()[-1] == "  best for this step: staged:1"
