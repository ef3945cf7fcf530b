"""One area or queue in one session: puts and their counts, releases, close, cancel; and places that get lost."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import nullcontext
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
import tensorflow.compat.v1 as tf
from hypothesis import HealthCheck, given, settings
from pipelines import half_a_get
from running import graphs_as_built
from slow import examples

import staging_tf1 as staging
from staging_tf1.cluster.clock import Clock
from staging_tf1.cluster.gate import Gate
from staging_tf1.feed.accounts import counts_of
from staging_tf1.feed.pipeline import pipelines_of
from staging_tf1.feed.repair import release_stranded, repair_slots
from staging_tf1.feed.sink_run import Canceller, SinkRun
from staging_tf1.feed.threads import Stopped
from staging_tf1.graph.dependencies import ancestors
from staging_tf1.sources import ArraySource

pytestmark = pytest.mark.usefixtures("kept_in")
LIMIT_SECS = 200.0
SOURCE = ArraySource(np.arange(100), batch_size=1)


def area(name: str = "area", towers: int = 1, capacity: int = 2, **options: Any) -> tuple[list[Any], list[Any]]:
    """An area of `capacity` for each tower, which nothing feeds: the sinks, and the tensors that take."""
    taken = staging.staged(SOURCE, devices=["/cpu:0"] * towers, capacity=capacity, name=name, **options)
    (pipeline,) = (each for each in pipelines_of(tf.get_default_graph()) if each.name == name)
    return list(pipeline.sinks), taken


def queue(capacity: int = 2) -> tuple[Any, Any]:
    """A queue of `capacity`, which nothing feeds: the sink, and the tensor that takes."""
    runner = staging.CustomRunner(SOURCE, queue="fifo", capacity=capacity, batch_size=1, name="queue")
    taken = runner.get_inputs()
    (pipeline,) = (each for each in pipelines_of(tf.get_default_graph()) if each.name == "queue")
    return pipeline.sinks[0], taken


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    """Threads for what waits."""
    with ThreadPoolExecutor() as threads:
        yield threads


def begun(*sinks: Any) -> Any:
    """A session in which `sinks` are empty."""
    sess = tf.Session()
    sess.run(tf.global_variables_initializer())
    sess.run([sink.reset for sink in sinks])
    return sess


def batch(number: int) -> Any:
    return np.array([number])


def wait_until(condition: Callable[[], bool]) -> None:
    until = time.monotonic() + LIMIT_SECS
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.001)


def under_way(run: SinkRun) -> int:
    begun, ended = run.puts()
    return begun - ended


def puts_that_wait(pool: ThreadPoolExecutor, run: SinkRun, count: int) -> list[Future[None]]:
    """Fill the sink, and begin as many more puts, of the numbers from 100 on."""
    for number in range(run.sink.capacity):
        run.put(batch(number))
    waiting = [pool.submit(run.put, batch(100 + number)) for number in range(count)]
    wait_until(lambda: under_way(run) == count)
    return waiting


def rest(sess: Any, taken: Any) -> list[int]:
    """All that can be taken before the end."""
    got = []
    with pytest.raises(tf.errors.OutOfRangeError):
        while True:
            got.append(int(sess.run(taken)[0]))
    return got


# Puts.


def test_a_put_that_fails_has_ended_and_keeps_no_place(graph: Any) -> None:
    (sink,), (taken,) = area()
    with begun(sink) as sess:
        run = SinkRun(sink, sess, 1)
        for _ in range(3):
            with pytest.raises(tf.errors.InvalidArgumentError):
                run.put(np.zeros([1, 1], np.int64))
        assert run.puts() == (3, 3)
        for number in range(sink.capacity):
            run.put(batch(number))
        assert sess.run(sink.size) == sink.capacity
        sess.run(taken)
        # Another has closed it, which is no stop.
        sess.run(sink.close)
        with pytest.raises(tf.errors.CancelledError):
            run.put(batch(0))
        assert run.puts() == (6, 6)


# For how many batches of the source an element stands.


def position(sess: Any) -> list[int]:
    (variable,) = (each for each in tf.global_variables() if each.op.name.endswith("/position"))
    return sess.run(variable).tolist()  # type: ignore[no-any-return]


def test_released_elements_keep_the_order_of_their_stamps(graph: Any) -> None:
    sinks, taken = area(towers=2, capacity=5, ignored_exception_types=KeyError)
    with begun(*sinks) as sess:
        runs = [SinkRun(sink, sess, 1) for sink in sinks]
        for number, stamp in enumerate([3, 1, 5, 2]):
            runs[0].put(batch(number), stamp=stamp)
        runs[1].put(batch(9), stamp=7)
        assert sess.run([sink.size for sink in sinks]) == [0, 0], "they are staged, and nobody may take them"
        runs[0].release(2)
        assert sess.run([sink.size for sink in sinks]) == [2, 0]
        assert (int(sess.run(taken[0])[0]), position(sess)) == (0, [3, 0])
        runs[0].put(batch(4), stamp=1)
        runs[0].release(3)
        reached = []
        for number in range(1, 5):
            assert int(sess.run(taken[0])[0]) == number
            reached.append(position(sess)[0])
        assert reached == [4, 9, 11, 12]
        runs[1].release(1)
        assert int(sess.run(taken[1])[0]) == 9 and position(sess) == [12, 7]


# The end.


@pytest.mark.parametrize("kind", ["area", "queue"])
def test_what_has_ended_may_be_closed_again_and_is_not_cancelled_afterwards(graph: Any, kind: str) -> None:
    sink, taken = queue() if kind == "queue" else [each[0] for each in area()]
    with begun(sink) as sess:
        run, canceller = SinkRun(sink, sess, 1), Canceller(sess, [sink])
        run.put(batch(7))
        run.close()
        run.close()
        canceller.cancel([run])
        canceller.cancel([run])
        run.close()
        assert run.over and not run.cancelled
        assert rest(sess, taken) == [7]


# Cancelling.


def stopped(puts: Sequence[Future[None]]) -> bool:
    """Whether all of them end, with `Stopped`."""
    return all(isinstance(put.exception(LIMIT_SECS), Stopped) for put in puts)


@pytest.mark.usefixtures("patient")
@pytest.mark.parametrize("waiting", [0, 1, 3])
def test_cancelling_ends_every_put_and_keeps_what_is_there(graph: Any, pool: ThreadPoolExecutor, waiting: int) -> None:
    (sink,), (taken,) = area()
    with begun(sink) as sess:
        run, canceller = SinkRun(sink, sess, 1), Canceller(sess, [sink])
        puts = puts_that_wait(pool, run, waiting)
        canceller.cancel([run])
        # TensorFlow would log a run that fails, also after a loop that went well.
        assert [put.result(LIMIT_SECS) for put in puts] == [None] * waiting
        check_refused(run, begun=2 + waiting)
        got = rest(sess, taken)
        assert got[:2] == [0, 1] and sorted(got[2:]) == [100, 101, 102][:waiting]


def check_refused(run: SinkRun, begun: int) -> None:
    """After a cancel, all puts have ended, and the next one is refused."""
    assert run.puts() == (begun, begun)
    with pytest.raises(Stopped):
        run.put(batch(0))
    assert run.puts() == (begun, begun), "a put that is refused has not begun"
    assert run.over and run.cancelled


def test_a_put_that_still_computes_does_not_delay_a_cancel(graph: Any, pool: ThreadPoolExecutor) -> None:
    values = tf.FIFOQueue(1, tf.int64, [[1]])
    taken = staging.staged(values.dequeue())
    (sink,) = pipelines_of(graph)[0].sinks
    give, end = values.enqueue([[7]]), values.close(cancel_pending_enqueues=True)
    with begun(sink) as sess:
        run, canceller = SinkRun(sink, sess, 1), Canceller(sess, [sink])
        put = pool.submit(run.put)
        waits = pool.submit(rest, sess, taken)
        wait_until(lambda: under_way(run) == 1)
        began = time.perf_counter()
        canceller.cancel([run])
        assert waits.result(LIMIT_SECS) == [] and time.perf_counter() - began < 10.0
        sess.run(give)
        assert stopped([put])
        sess.run(end)


@pytest.fixture(params=[False, True])
def unoptimized(request: pytest.FixtureRequest) -> Iterator[None]:
    """Graphs as they are built: TensorFlow's optimizer changes which ops of a run come first."""
    with graphs_as_built() if request.param else nullcontext():
        yield


@pytest.mark.usefixtures("unoptimized", "patient")
def test_a_cancel_reaches_only_the_sinks_that_it_names(graph: Any, pool: ThreadPoolExecutor) -> None:
    (first,), (first_get,) = area("one")
    (second,), (second_get,) = area("two")
    third, third_get = queue()
    with begun(first, second, third) as sess:
        runs = [SinkRun(sink, sess, 1) for sink in (first, second, third)]
        canceller = Canceller(sess, [first, second, third])
        puts = [puts_that_wait(pool, run, count) for run, count in zip(runs, (2, 1, 1))]
        canceller.cancel([])
        canceller.cancel(runs[:1])
        assert [put.result(LIMIT_SECS) for put in puts[0]] == [None, None]
        assert [run.over for run in runs] == [True, False, False]
        for taken, (put,) in ((second_get, puts[1]), (third_get, puts[2])):
            sess.run(taken)
            put.result(LIMIT_SECS)  # it had only been waiting for room
        puts = [[pool.submit(run.put, batch(200))] for run in runs[1:]]
        wait_until(lambda: all(under_way(run) == 1 for run in runs[1:]))
        canceller.cancel(runs[1:])
        assert puts[0][0].result(LIMIT_SECS) is None and stopped(puts[1]) and all(run.cancelled for run in runs)
        got = [rest(sess, taken) for taken in (first_get, second_get, third_get)]
        assert [sorted(got[0]), *got[1:]] == [[0, 1, 100, 101], [1, 100, 200], [1, 100]]


# Places.


def repair(asked: Sequence[Any], sess: Any) -> list[int]:
    """How many slots each sink had lost, for pairs of a sink and its puts."""
    counts = counts_of([sink for sink, _ in asked], sess)
    return [repair_slots(sink, counts, sess, puts) for sink, puts in asked]


def release(asked: Sequence[Any], sess: Any) -> list[int]:
    """How many elements of each sink were stranded, for pairs of a sink and the feeds of its put."""
    counts = counts_of([sink for sink, _ in asked], sess)
    return [release_stranded(sink, counts, sess, fed) for sink, fed in asked]


def places(sess: Any, sink: Any) -> tuple[int, int]:
    """How many are free, and how many hold an element."""
    free, held = sess.run([sink.repair.free, sink.repair.held])
    return int(free), int(held)


def test_a_put_that_waits_for_a_place_is_not_one_that_holds_it(graph: Any, pool: ThreadPoolExecutor) -> None:
    (sink,), (taken,) = area()
    lose = half_a_get(taken)
    with begun(sink) as sess:
        run, canceller = SinkRun(sink, sess, 1), Canceller(sess, [sink])
        (waiting,) = puts_that_wait(pool, run, 1)
        assert repair([(sink, run.puts)], sess) == [0]
        assert under_way(run) == 1 and places(sess, sink) == (0, 2)
        sess.run(lose)
        repair([(sink, run.puts)], sess)
        waiting.result(LIMIT_SECS)  # in the place that was lost
        repair([(sink, run.puts)], sess)
        assert places(sess, sink) == (0, 2)
        canceller.cancel([run])


def test_a_place_too_many_is_taken_away_as_soon_as_it_is_free(graph: Any) -> None:
    (sink,), (taken,) = area()
    with begun(sink) as sess:
        run = SinkRun(sink, sess, 1)
        for number in range(2):
            run.put(batch(number))
        sess.run(sink.repair.give_back)  # for a get under way that was taken for a failed one
        run.put(batch(2))
        assert places(sess, sink) == (0, 3)
        assert repair([(sink, run.puts)], sess) == [0]
        sess.run(taken)
        assert repair([(sink, run.puts)], sess) == [-1] and places(sess, sink) == (0, 2)


def test_a_slow_put_that_was_mistaken_is_put_right_by_the_next_repair(graph: Any) -> None:
    (sink,), _ = area()
    with begun(sink) as sess:
        sess.run(sink.repair.take_away)  # by a put that does not come on
        assert repair([(sink, lambda: (1, 0))], sess) == [1]
        sess.run(sink.repair.give_back)  # it has failed after all
        assert repair([(sink, lambda: (1, 1))], sess) == [-1]
        assert places(sess, sink) == (2, 0)


def test_a_put_that_ends_during_a_repair_has_lost_nothing(graph: Any) -> None:
    (sink,), _ = area()
    with begun(sink) as sess:
        sess.run(sink.repair.take_away)  # by a put that fails before the repair looks at it

        def puts() -> tuple[int, int]:
            if places(sess, sink) == (1, 0):
                sess.run(sink.repair.give_back)
            return 1, 1

        assert repair([(sink, puts)], sess) == [0]
        assert places(sess, sink) == (2, 0)


@settings(max_examples=examples(25), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.sampled_from(["put", "take", "lose", "repair"]), max_size=12))
def test_repairs_give_back_what_was_lost_and_invent_nothing(events: list[str]) -> None:
    with tf.Graph().as_default():
        (sink,), (taken,) = area(capacity=3)
        lose = half_a_get(taken)
        with begun(sink) as sess:
            run = SinkRun(sink, sess, 1)
            held = lost = 0
            for event in [*events, "repair"]:
                if event == "put" and held + lost < sink.capacity:
                    run.put(batch(0))
                    held += 1
                elif event in ("take", "lose") and held:
                    sess.run(taken if event == "take" else lose)
                    held, lost = held - 1, lost + (event == "lose")
                elif event == "repair":
                    assert repair([(sink, run.puts)], sess) == [lost]
                    lost = 0
                assert places(sess, sink) == (sink.capacity - held - lost, held)


def test_stranded_elements_are_released_with_the_count_that_their_put_had(graph: Any, kept_in: str) -> None:
    if kept_in == "queue":
        pytest.skip("a put into a queue is atomic")
    sinks, taken = area(towers=2, lockstep=True, ignored_exception_types=KeyError)
    with begun(*sinks) as sess:
        asked = [(sinks[0], {sinks[0].put.stamp: 4}), (sinks[1], {})]
        assert release(asked, sess) == [0, 0]
        (stage,) = (op for op in ancestors([sinks[0].put.op]) if op.type == "Stage")
        for number in range(2):
            sess.run(stage, {sinks[0].put.placeholders[0]: batch(number)})  # a put that fails before it says so
        assert sess.run(sinks[0].size) == 0
        assert release(asked, sess) == [2, 0]
        assert release(asked, sess) == [0, 0]
        assert [int(sess.run(taken[0])[0]) for _ in range(2)] == [0, 1]
        assert position(sess) == [8, 0]


def test_only_puts_into_areas_wait_while_a_cluster_stands_still(pool: ThreadPoolExecutor, graph: Any) -> None:
    # A step that waits for a queue would never end.
    (of_area,), _ = area()
    of_queue, dequeued = queue()
    gate = Gate(Clock())
    with begun(of_area, of_queue) as sess:
        runs = SinkRun(of_area, sess, 1, gate), SinkRun(of_queue, sess, 1, gate)
        gate.close()
        waits = pool.submit(runs[0].put, batch(1))
        runs[1].put(batch(2))
        assert sess.run(dequeued).tolist() == [2]
        assert runs[0].puts() == (0, 0) and not waits.done()
        gate.open()
        waits.result(LIMIT_SECS)
