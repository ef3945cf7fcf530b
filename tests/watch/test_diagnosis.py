"""The diagnosis of constructed snapshots, and what a report shows of them."""

from __future__ import annotations

import subprocess
import sys
import threading
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

import staging_tf1 as staging
from staging_tf1.feed import threads
from staging_tf1.feed.pipeline import pipelines_of
from staging_tf1.graph.probes import probes_of
from staging_tf1.watch.diagnosis import diagnose
from staging_tf1.watch.snapshot import Observer
from staging_tf1.watch.stall import report_text
from staging_tf1.watch.thread_location import users_line, users_location
from staging_tf1.watch.views import FeederView, Pending, Snapshot, StepView, StoreView, TaskView

_STEP = StepView(30.0, ", at train.py:41 in main()", takes=True)
_FEEDER = FeederView(
    name="feed:train:0",
    doing=threads.WAITING_FOR_SOURCE,
    secs=29.0,
    batch=511,
    batches=512,
    mean_source_secs=0.1,
    location=", at reader.py:12 in read()",
)
_AREA = StoreView("'train'", "staged", size=0, capacity=2, closed=False, wanted=1, feeders=(_FEEDER,))
_QUEUE = StoreView("queue 'q'", "queue", size=0, capacity=0, closed=False, wanted=4)


def _diagnose(*stores: StoreView) -> str:
    found = diagnose(Snapshot(_STEP, stores))
    assert found.waits
    return f"{found.cause}. {found.cure}."


def _fed_by(**changes: Any) -> StoreView:
    return replace(_AREA, feeders=(replace(_FEEDER, **changes),))


@pytest.mark.parametrize(
    ("store", "sentence"),
    [
        (
            _AREA,
            "is stuck: feed thread 'feed:train:0' has been in it for 29.0 s, at reader.py:12 in read(), after 512 ",
        ),
        (
            _fed_by(location=", reading http://host/a", url="http://host/a"),
            "has been in it for 29.0 s, reading http://host/a, after 512 batches. Check the server and the network. "
            "After timeout_secs= of the source, 60 s unless it is given, the request is tried once more, and then ",
        ),
        (_fed_by(mean_source_secs=20.0), "is slower than the step: it takes 20.0 s per batch"),
        (_fed_by(batches=0), "and has not returned its first batch"),
        (_fed_by(doing=threads.NOT_STARTED), "its feed threads were created but never started"),
        (_fed_by(doing=threads.ENDED), "has no element, and its feed threads have ended without "),
        (
            _fed_by(doing=threads.WAITING_FOR_SHARE),
            "feed thread 'feed:train:0' has waited 29.0 s for batches that the chief hands out, and the other workers "
            "have not consumed those that they have been given. Look at their logs",
        ),
        (_fed_by(doing=threads.PUTTING), "the ops that compute the batches of 'train' have not returned for 29.0"),
        (
            replace(_fed_by(doing=threads.PUTTING), service="the tf.data service at host:5000"),
            "the tf.data service at host:5000 has delivered nothing to 'train' for 29.0 s. Check that its dispatcher ",
        ),
        (replace(_AREA, error="OSError: disk"), "the thread that fed 'train' has died: OSError: disk"),
        (replace(_AREA, feeders=()), "is empty, because its feed threads were never started in this session"),
        (_QUEUE, "queue 'q' is empty, and no thread is putting into it"),
        (replace(_QUEUE, put_at="a.py:3"), "died or was never started; what fills it was made at a.py:3. Start it"),
        (replace(_QUEUE, idle_runner=True), "is empty, and its QueueRunner was never started in this session. Call"),
        (replace(_QUEUE, is_remote=True), "and no thread of this process is putting into it. If another process fills"),
        (
            replace(_QUEUE, error="FailedPreconditionError: uninitialized"),
            "died: FailedPreconditionError: uninitialized. Run",
        ),
        (
            replace(_QUEUE, kind="barrier", incomplete=4),
            "holds 0 complete elements, and the step takes 4; 4 more lack a",
        ),
        (
            replace(_QUEUE, kind="barrier"),
            "and no thread is inserting into it. Run its insert_many for every component",
        ),
        (replace(_QUEUE, putters=1), "and the put of another thread is still running"),
        (replace(_QUEUE, size=3), "holds 3 elements, and a dequeue of 4 needs 4; nothing adds more"),
        (
            replace(_QUEUE, size=10, min_after_dequeue=100, putters=1),
            "holds 10 elements, and a dequeue of 4 needs 104, because min_after_dequeue=100 of them must stay. Wait "
            "until",
        ),
        (replace(_QUEUE, has_put=False), "and the graph has no op that puts into it. Build its enqueue()."),
        (replace(_QUEUE, wanted=0, step_puts=True, capacity=4, size=4), "is full (4 of 4), and this run puts into it"),
    ],
)
def test_each_cause_has_its_sentence(store: StoreView, sentence: str) -> None:
    assert sentence in _diagnose(store)


def test_a_run_that_creates_the_session_starts_no_queue_runner() -> None:
    found = diagnose(Snapshot(replace(_STEP, creates_session=True), (replace(_QUEUE, idle_runner=True),)))
    assert "and this run initializes the variables: a MonitoredSession starts the queue runners after" in found.cause


def test_the_store_behind_the_one_that_waits_is_named() -> None:
    files = replace(_QUEUE, name="queue 'files'", wanted=0, inputs=("queue 'q'",), error="OSError: disk")
    waits = replace(_QUEUE, putters=1, inputs=("queue 'files'",))
    assert _diagnose(waits, files) == (
        "queue 'q' is empty, because what fills it waits, too: the thread that fed queue 'files' has died: OSError: "
        "disk. Fix that exception; with a coordinator or StagingSession, your run would have raised it."
    )
    # Two that wait for each other.
    assert "and the put of another thread is still running" in _diagnose(waits, replace(files, error="", putters=1))


def test_workers_that_keep_batches_and_give_no_sign_of_life_are_named() -> None:
    tasks = (
        TaskView("ps 0", "host:1", 99.0, is_ps=True),
        TaskView("worker 0", "host:2", 1.0),
        TaskView("worker 1", "host:3", 40.0),
        TaskView("worker 3", "host:4", 50.0, finished=True),
    )
    found = diagnose(Snapshot(_STEP, (_fed_by(doing=threads.WAITING_FOR_SHARE),), tasks=tasks))
    assert found.cause.endswith("hands out, and these have given no sign of life: worker 1 at host:3 (40 s)")


def test_the_first_store_that_explains_the_wait_is_named() -> None:
    ready = replace(_AREA, name="'ready'", size=2)
    not_asked = replace(_AREA, name="'not asked'", wanted=0)
    assert "'late'" in _diagnose(ready, not_asked, replace(_AREA, name="'late'"))


@pytest.mark.parametrize(
    "store",
    [
        replace(_AREA, size=1),  # there is something to take
        replace(_AREA, closed=True),  # the end of the data, which the step is about to see
        replace(_AREA, size=None),  # unknown
        replace(_AREA, wanted=0),
    ],
)
def test_what_does_not_explain_a_wait_is_not_blamed(store: StoreView) -> None:
    found = diagnose(Snapshot(_STEP, (store,)))
    assert not found.waits
    assert found.cause.startswith("the step is not waiting for input")


def test_a_report_shows_everything_the_cause_first() -> None:
    tower = replace(_AREA, capacity=2, withheld=1)
    shuffled = replace(_QUEUE, size=3, min_after_dequeue=100, error="OSError: disk")
    unknown = StoreView("area 'raw'", "area", size=None, capacity=0, closed=None, step_puts=True)
    snapshot = Snapshot(_STEP, (tower, shuffled, unknown), uninitialized=("weights", "bias"))
    lines = report_text(snapshot, diagnose(snapshot)).splitlines()
    assert lines[0] == "A step has not returned for 30.0 s, at train.py:41 in main()."
    assert lines[1].startswith("Most likely: the source of 'train' is stuck: ")
    assert lines[2:] == [
        "  'train': 0 of 2 elements; open; the step takes 1; 1 staged for an incomplete round",
        "    feed:train:0: in the source for 29.0 s, batch 511, 512 delivered, at reader.py:12 in read()",
        "  queue 'q': 3 elements, unbounded; open; min_after_dequeue=100; the step takes 4",
        "    last exception: OSError: disk",
        "  area 'raw': ? elements, unbounded; the step puts into it",
        "  uninitialized variables: weights, bias",
    ]


# Real sessions.


def _source() -> Any:
    return staging.sources.ArraySource(np.arange(8), batch_size=2, epochs=1)


def test_a_snapshot_shows_variables_without_a_value_and_of_a_closed_session_no_sizes(graph: Any) -> None:
    tf.get_variable("weights", [2])
    numbers = tf.FIFOQueue(3, tf.int64, [], name="numbers")
    take = numbers.dequeue()
    observer = Observer(graph, [])
    with tf.Session() as sess:
        snapshot = observer.snapshot(sess, Pending(0, 0.0, {"a": [take]}, None))
    assert snapshot.uninitialized == ("weights",)
    (store,) = snapshot.stores
    assert (store.name, store.size, store.capacity, store.closed, store.wanted) == ("queue 'numbers'", 0, 3, False, 1)
    (store,) = observer.snapshot(sess, Pending(0, 0.0, [], None)).stores
    assert store.size is store.closed is None


def test_a_snapshot_shows_that_a_session_is_being_created(graph: Any) -> None:
    observer, seen = Observer(graph, []), list[bool]()

    def look(scaffold: Any, sess: Any) -> None:
        snapshot = observer.snapshot(sess, Pending(threading.get_ident(), 0.0, [], None))
        seen.append(snapshot.step.creates_session)

    with tf.train.MonitoredSession(tf.train.ChiefSessionCreator(tf.train.Scaffold(init_fn=look))) as sess:
        sess.run_step_fn(lambda step_context: look(None, step_context.session))
    assert seen == [True, False]


def test_what_is_fed_is_not_waited_for(graph: Any) -> None:
    numbers = tf.FIFOQueue(3, tf.int64, [], name="numbers")
    take = numbers.dequeue()
    observer = Observer(graph, [])
    assert observer.touches(Pending(0, 0.0, take + 1, None)).takes == {"numbers": 1}
    assert observer.touches(Pending(0, 0.0, take + 1, {take: 7})).takes == {}
    assert observer.touches(Pending(0, 0.0, object(), None)).takes == {}


def test_a_take_of_many_wants_as_many(graph: Any) -> None:
    shuffled = tf.RandomShuffleQueue(30, 20, tf.int64, [], name="shuffled")
    some, single = shuffled.dequeue_many(4), shuffled.dequeue()
    observer = Observer(graph, [])
    assert observer.touches(Pending(0, 0.0, [some, single], None)).takes == {"shuffled": 4}
    assert observer.probes["shuffled"].min_after_dequeue == 20


def test_the_queues_inside_a_pipeline_are_not_shown(graph: Any) -> None:
    staging.staged(_source(), name="train")
    staging.CustomRunner(_source(), batch_size=2, seed=1, name="classic").get_inputs()
    observer = Observer(graph, pipelines_of(graph))
    assert sorted(observer.probes) == ["classic/queue", "train/tokens"]


def test_probes_are_made_once_and_not_in_a_finalized_graph(graph: Any) -> None:
    tf.FIFOQueue(3, tf.int64, [], name="numbers")
    assert list(probes_of(graph)) == ["numbers"]
    ops = len(graph.get_operations())
    assert list(probes_of(graph)) == ["numbers"] and len(graph.get_operations()) == ops
    tf.FIFOQueue(3, tf.int64, [], name="late")
    graph.finalize()
    assert list(probes_of(graph)) == ["numbers"]


def test_the_misfit_fails_one_get_and_leaves_the_area_usable(graph: Any) -> None:
    area = staging.StagingArea([tf.int64], [[]], capacity=1)
    put, got, misfit = area.put([7]), area.get(), area.misfit_op()
    failures: list[BaseException] = []
    with tf.Session() as sess:

        def step() -> None:
            try:
                sess.run(got)
            except tf.errors.InvalidArgumentError as error:
                failures.append(error)

        thread = threading.Thread(target=step)
        thread.start()
        sess.run(misfit)
        thread.join()
        sess.run(put)
        assert sess.run(got) == [7]
    assert len(failures) == 1


def test_the_users_line_of_a_thread() -> None:
    inside, done = threading.Event(), threading.Event()

    def stand_here() -> None:
        inside.set()
        done.wait(200)

    thread = threading.Thread(target=stand_here)
    thread.start()
    inside.wait(200)
    line = users_line(thread.ident)
    done.set()
    thread.join()
    assert line is not None and str(line).startswith("test_diagnosis.py:") and line.function == "stand_here"
    assert users_location(None) == ""


# Python makes frame objects while it holds a lock that the garbage needs. A thread has none before.
COLLECTS = """
import gc, sys, threading
from staging_tf1.watch.thread_location import users_line

class Dying:
    def __init__(self):
        self.itself = self
    def __del__(self):
        sys._current_frames()

ended = threading.Event()
users_line(threading.get_ident())
for threshold in range(1, 60):
    ready = threading.Barrier(9)
    def stand_here():
        ready.wait()
        ended.wait()
    threads = [threading.Thread(target=stand_here, daemon=True) for _ in range(8)]
    for thread in threads:
        thread.start()
    ready.wait()
    gc.collect()
    gc.disable()
    Dying()
    gc.set_threshold(threshold)
    gc.enable()
    users_line(threading.get_ident())
    gc.set_threshold(700)
print("through")
"""


@pytest.mark.matrix  # test_the_watchdog_survives_what_it_looks_at has objects that fail
def test_a_thread_is_looked_at_whatever_garbage_there_is() -> None:
    # In a process of its own, because the whole process would stand still.
    done = subprocess.run([sys.executable, "-c", COLLECTS], capture_output=True, text=True, timeout=200, check=False)
    assert done.stdout == "through\n", done.stderr
