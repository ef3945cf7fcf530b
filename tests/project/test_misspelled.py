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
from staging_tf1.cli.main import main

Options = dict[str, Any]
SOURCE = sources.ArraySource(np.arange(4), batch_size=2)
ROWS: list[tuple[Callable[..., Any], Options, str]] = [
    (staging.staged, {"values": 1, "capcity": 2}, "staged() got unknown argument 'capcity'. Did you mean 'capacity'?"),
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
    (SOURCE.with_options, {"shufle": 1}, "with_options() got unknown argument 'shufle'. Did you mean 'shuffle'?"),
    (SOURCE.weighted, {"weigths": [1]}, "weighted() got unknown argument 'weigths'. Did you mean 'weights'?"),
    (sources.mix, {"source": [SOURCE]}, "mix() got unknown argument 'source'. Did you mean 'sources'?"),
    (sources.cached, {"pth": "x"}, "cached() got unknown argument 'pth'. Did you mean 'path'?"),
    (
        staging.StagingArea.from_tensors,
        {"tensors": 1, "capcity": 2},
        "from_tensors() got unknown argument 'capcity'. Did you mean 'capacity'?",
    ),
    (
        staging.StagingSummaryHook,
        {"save_step": 1},
        "StagingSummaryHook got unknown argument 'save_step'. Did you mean 'save_steps'?",
    ),
    (staging.start, {"session": 1}, "start() got unknown argument 'session'. Did you mean 'sess'?"),
    (
        staging.Cluster,
        {"silence_sec": 1},
        "Cluster got unknown argument 'silence_sec'. Did you mean 'silence_secs'?",
    ),
    (
        sources.as_source,
        {"value": [[1]], "batch_size": 2},
        "as_source() got unknown argument 'batch_size'. It takes value.",
    ),
]


@pytest.mark.parametrize(("call", "options", "message"), ROWS, ids=[row[2].split(" Did")[0] for row in ROWS])
def test_a_misspelled_argument(call: Callable[..., Any], options: Options, message: str) -> None:
    with tf.Graph().as_default() as graph, pytest.raises(TypeError) as raised:
        call(**options)
    assert str(raised.value) == message
    assert not graph.get_operations()


X = np.arange(4)
# Values that do not fit.
VALUES: list[tuple[Callable[..., Any], tuple[Any, ...], str]] = [
    (
        sources.ArraySource,
        (X, X),
        "ArraySource got 2 values, expected 1: arrays. Pass options by name: ArraySource(arrays, batch_size=32).",
    ),
    (sources.ArraySource, (X,), "ArraySource got no batch_size, which it needs: ArraySource(arrays, batch_size=32)."),
    (
        sources.ArraySource,
        (),
        "ArraySource got no arrays and batch_size, which it needs: ArraySource(arrays, batch_size=32).",
    ),
    (
        sources.MapSource,
        (X, 32),
        "MapSource got 2 values, expected 1: dataset. Pass options by name: MapSource(dataset, batch_size=32).",
    ),
    (
        sources.TFRecordSource,
        ("a", "b"),
        "TFRecordSource got 2 values, expected 1: files. Pass options by name: TFRecordSource(files, batch_size=32).",
    ),
    (
        sources.GeneratorSource,
        (list, tf.int64),
        "GeneratorSource got 2 values, expected 1: generator_fn. Pass options by name: GeneratorSource(generator_fn, "
        "spec=...).",
    ),
    (sources.concatenate, (SOURCE, SOURCE), "concatenate() got 2 values, expected 1: sources."),
    (
        sources.cached,
        (X, "cache", 2),
        "cached() got 3 values, expected 2: data, path. Pass options by name: cached(data, path, batch_size=32).",
    ),
    (
        sources.CachedSource,
        ("cache",),
        "CachedSource got no batch_size, which it needs: CachedSource(path, batch_size=32).",
    ),
    (SOURCE.split, (0.8,), "split() got no seed, which it needs: split(fraction, seed)."),
    (SOURCE.shard, (2,), "shard() got no count, which it needs: shard(index, count)."),
    (SOURCE.shard, (0, 1, 2), "shard() got 3 values, expected 2: index, count."),
    (
        staging.staged,
        (X, X),
        "staged() got 2 values, expected 1: values. Pass options by name: staged(values, capacity=...).",
    ),
]


@pytest.mark.parametrize(("call", "values", "message"), VALUES, ids=[row[2].split(",")[0] for row in VALUES])
def test_values_that_do_not_fit(call: Callable[..., Any], values: tuple[Any, ...], message: str) -> None:
    with pytest.raises(TypeError) as raised:
        call(*values)
    assert str(raised.value) == message


def test_a_subclass_is_named_where_its_user_passes_the_arguments() -> None:
    class Same(sources.ArraySource):
        pass

    class Own(sources.ArraySource):
        def __init__(self, path: str) -> None:
            super().__init__(X)  # type: ignore[call-arg]

    with pytest.raises(TypeError, match=r"^Same got no batch_size, which it needs: Same\(arrays, batch_size=32\)\."):
        Same(X)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match=r"^ArraySource got no batch_size"):
        Own("path")


def test_a_misspelled_argument_of_a_session() -> None:
    with pytest.raises(TypeError, match=r"unknown argument 'stal_secs'\. Did you mean 'stall_secs'\? It passes these"):
        staging.StagingSession(stal_secs=1)


@pytest.mark.parametrize(
    ("argv", "hint"),
    [
        (["trian"], "expected one of "),
        (["trian"], ". Did you mean 'train'? (see staging-tf1 --help)"),
        (["train", "--epoch=1"], "unrecognized arguments: --epoch=1. Did you mean '--epochs'? (see "),
        (["index", "x", "--qqq"], "unrecognized arguments: --qqq (see "),
        (["run", "--stall_secs", "1", "x.py"], "unrecognized arguments: --stall_secs"),
    ],
)
def test_a_misspelled_command(argv: list[str], hint: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(argv)
    assert ended.value.code == 2 and hint in capsys.readouterr().err


def test_an_argument_like_none_lists_all() -> None:
    @only_known
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
