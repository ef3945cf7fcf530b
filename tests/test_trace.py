"""The timeline of a run: every source, put, get and step, in a format that trace viewers read."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import staging_tf1 as staging
from staging_tf1.cli.main import main

_BATCHES = 5


def _source() -> Any:
    return staging.sources.ArraySource(np.arange(2 * _BATCHES), batch_size=2, epochs=1)


def _run(x: Any, path: Path) -> list[dict[str, Any]]:
    with staging.StagingSession(trace_file=str(path)) as sess:
        while not sess.should_stop():
            sess.run(x)
    return _events(path)


def _events(path: Path) -> list[dict[str, Any]]:
    events: list[dict[str, Any]] = json.loads(path.read_text())["traceEvents"]
    names = {event["tid"]: event["args"]["name"] for event in events if event["ph"] == "M"}
    return [{**event, "line": names[event["tid"]]} for event in events if event["ph"] == "X"]


@pytest.mark.parametrize("lockstep", [False, True])
def test_every_step_and_get_stands_in_the_timeline(graph: Any, tmp_path: Path, lockstep: bool) -> None:
    events = _run(staging.staged(_source(), lockstep=lockstep, name="train"), tmp_path / "trace.json")
    gets = [event for event in events if event["name"] == "get"]
    assert [event["args"]["batch"] for event in gets] == list(range(_BATCHES))
    assert {event["line"] for event in gets} == {"get train"}
    steps = [event for event in events if event["name"] == "step"]
    assert {event["line"] for event in steps} == {"MainThread"}
    # A get starts with its step and ends before it.
    spans = [(step["ts"], step["ts"] + step["dur"]) for step in steps]
    for get in gets:
        assert any(first == get["ts"] and get["ts"] + get["dur"] <= last for first, last in spans)
    assert all(event["dur"] >= 0 for event in events)


def test_the_feed_thread_has_a_line_of_its_own(graph: Any, tmp_path: Path) -> None:
    # More batches than the area holds, because puts before the session is ready are not recorded.
    source = staging.sources.ArraySource(np.arange(40), batch_size=2, epochs=1)
    events = _run(staging.staged(source, capacity=1, name="train"), tmp_path / "trace.json")
    seen = Counter((event["line"], event["name"]) for event in events)
    assert seen["feed:train:0", "put"] >= 15
    assert seen["feed:train:0", "source"] >= 15
    puts = [event["args"]["batch"] for event in events if event["name"] == "put"]
    assert puts == sorted(puts) and puts[-1] == 19


def test_a_queue_has_its_gets_too(graph: Any, tmp_path: Path) -> None:
    x = staging.CustomRunner(_source(), queue="fifo", name="train").get_inputs()
    events = _run(x, tmp_path / "trace.json")
    assert sum(event["name"] == "get" for event in events) == _BATCHES


def test_the_fast_path_is_traced(graph: Any, tmp_path: Path) -> None:
    x = staging.staged(_source(), name="train")
    path = tmp_path / "trace.json"
    with staging.StagingSession(trace_file=str(path)) as sess:
        step = sess.make_callable(x)
        for _ in range(_BATCHES):
            step()
    assert sum(event["name"] == "get" for event in _events(path)) == _BATCHES


def test_a_run_that_fails_leaves_a_timeline(graph: Any, tmp_path: Path) -> None:
    x = staging.staged(_source(), name="train")
    path = tmp_path / "trace.json"
    with pytest.raises(KeyError), staging.StagingSession(trace_file=str(path)) as sess:
        sess.run(x)
        raise KeyError
    assert sum(event["name"] == "get" for event in _events(path)) == 1


def test_a_file_that_cannot_be_written_is_refused_at_once(graph: Any, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="absent"):
        staging.StagingHook(trace_file=str(tmp_path / "absent" / "trace.json"))


def test_the_training_command_writes_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "trace.json"
    assert main(["train", "--epochs", "1", "--trace", str(path)]) == 0
    assert "batches" in capsys.readouterr().out
    names = {event["name"] for event in _events(path)}
    assert {"source", "put", "get", "step"} <= names


def test_the_training_command_refuses_a_file_that_cannot_be_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "absent" / "trace.json"
    assert main(["train", "--trace", str(path)]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line == f"staging-tf1 train: --trace {str(path)!r} cannot be written: No such file or directory."
