"""Misspelled names and arguments are answered with the right one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

import staging_tf1 as staging
from staging_tf1 import sources
from staging_tf1.arguments import only_known

Options = dict[str, Any]
ROWS: list[tuple[Callable[..., Any], Options, str]] = [
    (staging.staged, {"values": 1, "capcity": 2}, "staged() got unknown argument 'capcity'. Did you mean 'capacity'?"),
    (
        staging.staged,
        {"values": 1, "prefetch": 2},
        "staged() got unknown argument 'prefetch'. Did you mean 'capacity'?",
    ),
    (
        staging.staged,
        {"values": 1, "num_parallel_calls": 2},
        "staged() got unknown argument 'num_parallel_calls'. Did you mean 'num_threads'?",
    ),
    (
        staging.StagingArea,
        {"dtypes": [tf.int32], "capcity": 2},
        "StagingArea got unknown argument 'capcity'. Did you mean 'capacity'?",
    ),
    (
        staging.MapStagingArea,
        {"dtypes": [tf.int32], "capcity": 2},
        "MapStagingArea got unknown argument 'capcity'. Did you mean 'capacity'?",
    ),
    (
        staging.CustomRunner,
        {"source": 1, "num_thread": 2},
        "CustomRunner got unknown argument 'num_thread'. Did you mean 'num_threads'?",
    ),
    (
        staging.StagingHook,
        {"stall_sec": 1},
        "StagingHook got unknown argument 'stall_sec'. Did you mean 'stall_secs'?",
    ),
    (
        sources.ArraySource,
        {"arrays": np.arange(4), "batch_size": 2, "shufle": True},
        "ArraySource got unknown argument 'shufle'. Did you mean 'shuffle'?",
    ),
    (
        sources.MapSource,
        {"dataset": [1], "batchsize": 2},
        "MapSource got unknown argument 'batchsize'. Did you mean 'batch_size'?",
    ),
    (
        sources.GeneratorSource,
        {"generator_fn": list, "specs": None},
        "GeneratorSource got unknown argument 'specs'. Did you mean 'spec'?",
    ),
    (
        sources.TFRecordSource,
        {"files": "r", "epoch": 2},
        "TFRecordSource got unknown argument 'epoch'. Did you mean 'epochs'?",
    ),
]


@pytest.mark.parametrize(("call", "options", "message"), ROWS, ids=[row[2].split(" Did")[0] for row in ROWS])
def test_a_misspelled_argument(call: Callable[..., Any], options: Options, message: str) -> None:
    with tf.Graph().as_default() as graph, pytest.raises(TypeError) as raised:
        call(**options)
    assert str(raised.value) == message
    assert not graph.get_operations()


def test_a_misspelled_argument_of_a_session() -> None:
    with pytest.raises(TypeError, match=r"unknown argument 'stal_secs'\. Did you mean 'stall_secs'\? It passes these"):
        staging.StagingSession(stal_secs=1)


def test_an_argument_like_none_lists_all() -> None:
    @only_known("f()")
    def f(first: int, *, second: int = 2) -> int:
        return first + second

    assert f(1, second=3) == 4
    with pytest.raises(TypeError) as raised:
        f(1, xyz=3)  # type: ignore[call-arg]
    assert str(raised.value) == "f() got unknown argument 'xyz'. It takes first, second."


@pytest.mark.parametrize(
    ("module", "name", "hint"),
    [
        (staging, "StagingAera", ". Did you mean 'StagingArea'?"),
        (staging, "stagd", ". Did you mean 'staged'?"),
        (staging, "xyz", ""),
        (staging, "ArraySource", ". Sources are in staging_tf1.sources"),
        (sources, "ArraySorce", ". Did you mean 'ArraySource'?"),
        (sources, "TFRecordDataset", ". Did you mean 'TFRecordSource'?"),
        (sources, "__wrapped__", ""),
    ],
)
def test_a_misspelled_name(module: Any, name: str, hint: str) -> None:
    with pytest.raises(AttributeError) as raised:
        getattr(module, name)
    assert str(raised.value) == f"module {module.__name__!r} has no attribute {name!r}{hint}"
