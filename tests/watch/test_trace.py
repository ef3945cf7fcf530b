"""The timeline of a run explains itself: a row a thread, every batch from its source to its step, counts that agree."""

from __future__ import annotations

import io
import itertools
import json
import re
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

import staging_tf1 as staging
from staging_tf1.cli.main import main
from staging_tf1.watch import trace as trace_module
from staging_tf1.watch.trace_json import Event, Feed, dump
from staging_tf1.watch.trace_report import as_text, report_on

pytestmark = pytest.mark.usefixtures("quick_graphs")

_BATCHES = 5


def _source(batches: int = _BATCHES, **options: Any) -> Any:
    return staging.sources.ArraySource(np.arange(2 * batches), batch_size=2, epochs=1, **options)


def _run(x: Any, path: Path) -> list[dict[str, Any]]:
    with staging.StagingSession(trace_file=str(path)) as sess:
        while not sess.should_stop():
            sess.run(x)
    return _events(path)


def _events(path: Path) -> list[dict[str, Any]]:
    events: list[dict[str, Any]] = json.loads(path.read_text())["traceEvents"]
    names = {event["tid"]: event["args"]["name"] for event in events if event["name"] == "thread_name"}
    return [{**event, "line": names[event["tid"]]} for event in events if event["ph"] == "X"]


def _of(events: list[dict[str, Any]], name: str) -> list[dict[str, Any]]:
    return [event for event in events if event["name"] == name]


# What holds of every timeline.


def _check(path: Path) -> list[dict[str, Any]]:
    """Check the file's structure; return its events."""
    events = json.loads(path.read_text())["traceEvents"]
    spans = [event for event in events if event["ph"] == "X"]
    _check_rows(events, spans)
    _check_flows(events, spans)
    for event in spans:
        assert event["dur"] >= 0 and event["ts"] >= 0
        assert {"batch", "bytes"} <= set(event["args"])
    colours = {(event["args"]["batch"], event["cname"]) for event in spans if "cname" in event}
    assert len(colours) == len({batch for batch, _ in colours})
    return _events(path)


def _check_rows(events: list[dict[str, Any]], spans: list[dict[str, Any]]) -> None:
    named = {event["tid"]: event["args"]["name"] for event in events if event["name"] == "thread_name"}
    assert len(set(named.values())) == len(named)
    for row in named:
        open_until: list[float] = []
        for event in sorted(
            (each for each in spans if each["tid"] == row), key=lambda each: (each["ts"], -each["dur"])
        ):
            while open_until and open_until[-1] <= event["ts"] + 1e-3:
                open_until.pop()
            end = event["ts"] + event["dur"]
            # Within the event around it: events of one row do not overlap otherwise.
            assert not open_until or end <= open_until[-1] + 1e-3, event
            open_until.append(end)


def _check_flows(events: list[dict[str, Any]], spans: list[dict[str, Any]]) -> None:
    flows: dict[int, list[dict[str, Any]]] = {}
    for event in events:
        if event["ph"] in "stf":
            flows.setdefault(event["id"], []).append(event)
    for steps in flows.values():
        assert [step["ph"] for step in steps] == ["s", *["t"] * (len(steps) - 2), "f"]
        assert [step["ts"] for step in steps] == sorted(step["ts"] for step in steps)
        kinds, batches = [], set()
        for step in steps:
            around = [
                span
                for span in spans
                if span["tid"] == step["tid"] and span["ts"] - 1e-3 <= step["ts"] <= span["ts"] + span["dur"] + 1e-3
            ]
            assert around
            kinds.append({span["name"].split(" (")[0] for span in around})
            batches |= {span["args"]["batch"] for span in around if span["name"] in ("source", "put")}
        order = [kind for kind in ("source", "put", "get", "step") if any(kind in each for each in kinds)]
        assert all(kind in each for kind, each in zip(order, kinds, strict=False))


def _check_counts(
    events: list[dict[str, Any]], batches: dict[str, list[int]], nbytes: int, *, reads: bool = True
) -> None:
    """Each delivered batch has one source, one put and one get, in one step."""
    kinds = ("source", "put", "get") if reads else ("put", "get")
    for pipeline, numbers in batches.items():
        for kind in kinds:
            found = [each["args"] for each in _of(events, kind) if each["args"]["pipeline"] == pipeline]
            assert sorted(each["batch"] for each in found) == numbers, (pipeline, kind)
            assert {each["bytes"] for each in found} <= {nbytes}
    assert len(_of(events, "step")) == max(map(len, batches.values()))


def _pipelines() -> dict[str, Any]:
    return {
        "one thread": lambda: staging.staged(_source(), name="train"),
        "lockstep": lambda: staging.staged(_source(), lockstep=True, name="train"),
        "lockstep, interruptible": lambda: staging.staged(_source(), lockstep=True, name="train"),
        "three threads": lambda: staging.staged(_source(40), num_threads=3, capacity=4, name="train"),
        "stream": lambda: staging.staged(
            staging.sources.GeneratorSource(lambda: iter(np.arange(10).reshape(5, 2)), resume="skip"), name="train"
        ),
        "queue": lambda: staging.CustomRunner(_source(), queue="fifo", name="train").get_inputs(),
    }


@pytest.mark.parametrize("how", _pipelines())
def test_every_batch_is_followed_from_its_source_to_its_step(graph: Any, tmp_path: Path, how: str) -> None:
    path = tmp_path / "trace.json"
    x = _pipelines()[how]()
    options = {"stall_raises": True, "stall_secs": 60} if "interruptible" in how else {}
    with staging.StagingSession(trace_file=str(path), **options) as sess:
        while not sess.should_stop():
            sess.run(x)
    events = _check(path)
    _check_counts(events, {"train": list(range(40 if "three" in how else _BATCHES))}, nbytes=16)
    told = json.loads(path.read_text())["otherData"]
    assert told["batches"] == len(_of(events, "get")) and told["events not kept"] == 0
    assert set(told["legend"]) >= {"source", "put", "get", "step", "flows", "args", "colours", "rows"}


@pytest.mark.parametrize("lockstep", [False, True])
def test_batches_that_the_graph_computes_have_no_source(graph: Any, tmp_path: Path, lockstep: bool) -> None:
    dataset = tf.data.Dataset.from_tensor_slices(np.arange(2 * _BATCHES)).batch(2)
    _run(staging.staged(dataset, lockstep=lockstep, name="train"), tmp_path / "trace.json")
    events = _check(tmp_path / "trace.json")
    _check_counts(events, {"train": list(range(_BATCHES))}, nbytes=0, reads=False)
    assert not _of(events, "source")


@pytest.mark.parametrize("lockstep", [False, True])
def test_each_tower_has_its_own_batches(graph: Any, tmp_path: Path, lockstep: bool) -> None:
    x = staging.staged(_source(8), devices=["/cpu:0", "/cpu:0"], lockstep=lockstep, name="train")
    _run(x, tmp_path / "trace.json")
    events = _check(tmp_path / "trace.json")
    towers = {f"train/{tower}": [0, 1, 2, 3] for tower in (0, 1)}
    _check_counts(events, towers, nbytes=16)
    assert [step["args"]["bytes"] for step in _of(events, "step")] == [32] * 4
    assert all(set(step["args"]["batch"]) == set(towers) for step in _of(events, "step"))


def test_two_threads_that_run_steps_have_a_row_each(graph: Any, tmp_path: Path) -> None:
    x = staging.staged(_source(40), name="train")
    path = tmp_path / "trace.json"
    with staging.StagingSession(trace_file=str(path)) as sess:
        step = sess.make_callable(x)

        def some() -> None:
            for _ in range(20):
                step()

        threads = [threading.Thread(target=some, name=f"stepper {number}") for number in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    events = _check(path)
    _check_counts(events, {"train": list(range(40))}, nbytes=16)
    assert Counter(step["line"] for step in _of(events, "step")) == {"stepper 0": 20, "stepper 1": 20}


def test_what_was_not_delivered_is_marked(graph: Any, tmp_path: Path) -> None:
    ahead = threading.Event()

    class Faulty(staging.sources.RecordSource):
        def record_spec(self, batch_size: int | None) -> Any:
            return staging.sources.ArraySource(np.arange(2), batch_size=2).record_spec(batch_size)

        def gather(self, numbers: Any) -> Any:
            found = np.arange(200)[numbers]
            if 4 in found:
                raise ValueError
            if 12 in found:
                ahead.set()  # batch 6, so batch 5 has been put
            return found

    x = staging.staged(
        Faulty(200, batch_size=2, epochs=1), capacity=2, ignored_exception_types=ValueError, max_ignored=1, name="train"
    )
    path = tmp_path / "trace.json"
    with staging.StagingSession(trace_file=str(path)) as sess:
        for _ in range(4):
            sess.run(x)
        assert ahead.wait(200)
    events = _check(path)
    assert [get["args"]["batch"] for get in _of(events, "get")] == [0, 1, 3, 4]
    assert [each["args"]["batch"] for each in _of(events, "put")] == [0, 1, 3, 4]
    assert [each["args"]["batch"] for each in _of(events, "source")[:4]] == [0, 1, 3, 4]
    not_delivered = [each["args"]["batch"] for each in _of(events, "source (not delivered)")]
    assert not_delivered[0] == 2
    not_taken = [each["args"]["batch"] for each in _of(events, "put (not taken)")]
    assert not_taken and not_taken == list(range(5, 5 + len(not_taken)))
    read = {each["args"]["batch"] for each in events if each["name"].startswith("source")}
    assert read == {2, 0, 1, 3, 4, *not_taken, *not_delivered}


def test_runs_without_a_batch_and_runs_that_fail(graph: Any, tmp_path: Path) -> None:
    x = staging.staged(_source(), name="train")
    other, bad = tf.constant(1), tf.Assert(tf.constant(False), ["no"])
    path = tmp_path / "trace.json"
    with staging.StagingSession(trace_file=str(path)) as sess:
        sess.run(other)
        for _ in range(2):
            sess.run(x)
        with pytest.raises(tf.errors.InvalidArgumentError):
            sess.run(bad)
        while not sess.should_stop():
            sess.run(x)
    events = _check(path)
    _check_counts(events, {"train": list(range(_BATCHES))}, nbytes=16)
    runs = [run["args"] for run in _of(events, "run")]
    assert [(run["batch"], run["bytes"], run.get("error")) for run in runs] == [
        (-1, 0, None),
        (-1, 0, "InvalidArgumentError"),
        (-1, 0, "OutOfRangeError"),
    ]


def test_a_queue_of_records_mixes_batches(graph: Any, tmp_path: Path) -> None:
    x = staging.CustomRunner(_source(), name="train", min_after_dequeue=0, capacity=10).get_inputs(5)
    _run(x, tmp_path / "trace.json")
    events = _check(tmp_path / "trace.json")
    assert [len(_of(events, kind)) for kind in ("source", "put", "get", "step")] == [5, 5, 2, 2]


def test_a_resumed_run_has_the_numbers_of_its_source(graph: Any, tmp_path: Path) -> None:
    tf.train.get_or_create_global_step()
    x = staging.staged(_source(), name="train")
    step = [x, tf.assign_add(tf.train.get_global_step(), 1)]
    path = tmp_path / "trace.json"
    for first, steps in ((0, 2), (2, 3)):
        with staging.StagingSession(
            trace_file=str(path), checkpoint_dir=str(tmp_path / "checkpoints"), log_step_count_steps=None
        ) as sess:
            for _ in range(steps):
                sess.run(step)
        gets = [get["args"]["batch"] for get in _of(_check(path), "get")]
        assert gets == list(range(first, first + steps))


def test_only_the_last_events_are_kept(graph: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trace_module, "_MOST_EVENTS", 50)
    x = staging.staged(_source(40), name="train")
    _run(x, tmp_path / "trace.json")
    events = _check(tmp_path / "trace.json")
    dropped = json.loads((tmp_path / "trace.json").read_text())["otherData"]["events not kept"]
    assert len(events) == 50 and dropped >= 4 * 40 - 50
    assert [get["args"]["batch"] for get in _of(events, "get")][-1] == 39


class _FailsTwice(tf.train.SessionRunHook):  # type: ignore[misc]
    """Makes MonitoredSession create the session three times."""

    def __init__(self) -> None:
        self._starts = 0

    def after_create_session(self, session: Any, coord: Any) -> None:
        self._starts += 1
        if self._starts <= 2:
            raise tf.errors.AbortedError(None, None, "preempted")


def test_the_threads_of_the_last_start_are_traced(graph: Any, tmp_path: Path) -> None:
    x = staging.staged(_source())
    path = tmp_path / "trace.json"
    with staging.StagingSession(hooks=[_FailsTwice()], trace_file=str(path)) as sess:
        while not sess.should_stop():
            sess.run(x)
    gets = _of(_check(path), "get")
    assert [event["args"]["batch"] for event in gets] == list(range(_BATCHES))
    for name in ("source", "put"):
        traced = {event["args"]["batch"] for event in _of(_events(path), name)}
        assert traced >= set(range(_BATCHES)), name


def test_without_a_trace_nothing_is_noted(graph: Any) -> None:
    x = staging.staged(_source(), name="train")
    hook = staging.StagingHook()
    with tf.train.MonitoredTrainingSession(hooks=[hook]) as sess:
        sess.run(x)
        (state,) = hook.runs[0].states
        assert (state.on_left, state.on_put_in_step, state.nbytes) == (None, None, 0)


@pytest.mark.parametrize("lockstep", [False, True])
def test_every_step_and_get_stands_in_the_timeline(graph: Any, tmp_path: Path, lockstep: bool) -> None:
    events = _run(staging.staged(_source(), lockstep=lockstep, name="train"), tmp_path / "trace.json")
    gets = [event for event in events if event["name"] == "get"]
    assert [event["args"]["batch"] for event in gets] == list(range(_BATCHES))
    assert {event["args"]["pipeline"] for event in gets} == {"train"}
    assert {event["line"] for event in gets} == {"MainThread"}
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


def test_no_arrow_leads_to_a_step_that_ended_before_the_put() -> None:
    # Two steps at the same time, of which each is told the other's batch.
    feed = Feed("train", True, itertools.count())
    text = io.StringIO()
    puts = [
        Event("put", "feed", began, began + 1, feed, batch=batch, element=batch) for batch, began in ((0, 0), (1, 5))
    ]
    steps = [Event("step", f"stepper {number}", 0, ended, number=number) for number, ended in ((0, 6), (1, 2))]
    gets = [Event("get", f"stepper {number}", 0, 1, feed, element=number, number=number) for number in (0, 1)]
    dump([*puts, *steps, *gets], 0.0, 0, {}, text)
    flows = [(event["id"], event["ph"]) for event in json.loads(text.getvalue())["traceEvents"] if event["ph"] in "stf"]
    assert flows == [(1, "s"), (1, "t"), (1, "f")]


# What a timeline says.


def _event(name: str, tid: int, ts: float, dur: float, **args: Any) -> dict[str, Any]:
    return {
        "name": name,
        "ph": "X",
        "tid": tid,
        "ts": ts * 1e6,
        "dur": dur * 1e6,
        "args": {"batch": 0, "bytes": 8, **args},
    }


def _timeline(*events: dict[str, Any], **verdicts: str) -> dict[str, Any]:
    names = [
        {"name": "thread_name", "ph": "M", "tid": tid, "args": {"name": name}}
        for tid, name in ((1, "feed:train:0"), (2, "MainThread"))
    ]
    return {"traceEvents": [*names, *events], "otherData": {"legend": {}, "events not kept": 2, "verdicts": verdicts}}


# A source of 3 s, a put of 1 s, and a step of 4 s that waited 3 s.
_INPUT_BOUND = _timeline(
    _event("source", 1, 0, 3, pipeline="train"),
    _event("put", 1, 3, 1, pipeline="train"),
    _event("source (not delivered)", 1, 4, 0.5, pipeline="train", batch=1),
    _event("step", 2, 0, 4, step=0),
    _event("get", 2, 0, 3, pipeline="train"),
    _event("step", 2, 5, 1, step=1, batch=1),
    _event("get", 2, 5, 0, pipeline="train", batch=1),
    _event("run", 2, 6, 2, batch=-1),
    train="input-bound",
)


def test_the_report_of_a_timeline() -> None:
    report = report_on(_INPUT_BOUND, slowest=1)
    assert (report.secs, report.steps, report.not_delivered, report.not_taken, report.events_not_kept) == (
        8,
        2,
        1,
        0,
        2,
    )
    parts = {(each.thread, each.part): (each.count, each.secs, round(each.share, 3)) for each in report.parts}
    assert parts == {
        ("feed:train:0", "source"): (2, 3.5, 0.778),
        ("feed:train:0", "put"): (1, 1.0, 0.222),
        ("MainThread", "step"): (2, 5.0, 0.625),
        ("MainThread", "get"): (2, 3.0, 0.375),
        ("MainThread", "run"): (1, 2.0, 0.25),
    }
    (wait,) = report.waits
    assert (wait.batches, wait.steps_waited_secs, wait.steps_waited_share, wait.feeders_waited_secs) == (
        2,
        3.0,
        0.6,
        1.0,
    )
    assert wait.verdict == "input-bound"
    (slow,) = report.slowest
    assert (slow.step, slow.ms, slow.waited_ms) == (0, 4000.0, 3000.0)
    text = as_text(report)
    assert "train: steps waited 3.00 s (60 % of their time) for 2 batches" in text
    assert text.endswith("1 batches were read and not delivered\n2 earlier events were not kept")


@pytest.mark.parametrize("values", ["tensors", "source", "lockstep"])
def test_the_verdict_is_that_of_stats(graph: Any, tmp_path: Path, values: str) -> None:
    """Also its advice: more threads would change the order of tensors."""
    slow = _source(transform=lambda batch: (threading.Event().wait(0.01), batch)[1])
    tensors = tf.py_func(lambda: (threading.Event().wait(0.01), 1)[1], [], tf.int64, stateful=True)
    path = tmp_path / "trace.json"
    x = staging.staged(tensors if values == "tensors" else slow, lockstep=values == "lockstep", name="train")
    with staging.StagingSession(trace_file=str(path)) as sess:
        for _ in range(_BATCHES):
            sess.run(x)
    (wait,), (stats,) = report_on(json.loads(path.read_text())).waits, sess.stats()
    assert wait.verdict == stats.verdict and wait.verdict.startswith("input-bound: ")
    assert ("num_threads" in wait.verdict) == (values == "source")
    assert wait.verdict.endswith("(unsure: measured for under 2 s)")


def test_an_error_leaves_a_verdict_too(graph: Any, tmp_path: Path) -> None:
    x = staging.staged(_source(), name="train")
    path = tmp_path / "trace.json"
    with pytest.raises(KeyError), tf.train.MonitoredSession(hooks=[staging.StagingHook(trace_file=str(path))]) as sess:
        sess.run(x)
        raise KeyError
    (wait,) = report_on(json.loads(path.read_text())).waits
    assert re.match("(input|compute)-bound: ", wait.verdict)
    told = _timeline(_event("get", 2, 0, 1, pipeline="train"))
    del told["otherData"]["verdicts"]
    assert report_on(told).waits[0].verdict.startswith("bottleneck unknown: ")


def test_the_report_of_a_timeline_without_events() -> None:
    assert as_text(report_on(_timeline())).startswith("0 steps in 0.00 s")


def test_the_command_prints_the_report(graph: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "trace.json"
    _run(staging.staged(_source(), name="train"), path)
    assert main(["trace", str(path), "--slowest", "2"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    heads = [line for line in out.splitlines() if line and not line.startswith(" ")]
    assert re.fullmatch(r"5 steps in \d\.\d\d s", heads[0])
    assert heads[1:4] == ["time by part", "who waited for whom", "slowest steps"]
    assert re.search(r"^  train: steps waited \d.\d\d s \(\d+ % of their time\) for 5 batches; feed threads", out, re.M)
    assert main(["trace", str(path), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["steps"], told["waits"][0]["batches"], len(told["slowest"])) == (5, 5, 5)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "cannot be read: No such file or directory. Check the path and its permissions."),
        ("", "is empty: a timeline is written when its session is closed."),
        ("{", "is not JSON: Expecting property name enclosed in double quotes: line 1 column 2 (char 1)."),
        ("[]", "is not a timeline of staging_tf1; write one with trace_file=."),
        ('{"otherData": {}}', "is not a timeline of staging_tf1; write one with trace_file=."),
        ('{"otherData": []}', "is not a timeline of staging_tf1; write one with trace_file=."),
    ],
)
def test_the_command_refuses_what_is_no_timeline(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str | None, message: str
) -> None:
    path = tmp_path / "trace.json"
    if text is not None:
        path.write_text(text)
    assert main(["trace", str(path)]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(f"staging-tf1 trace: {str(path)!r} {message}"[:60]) and message in err
