"""Locks of a cluster that the close of a session wants. The garbage collector may close one anywhere, at any time."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import tensorflow.compat.v1 as tf
from clusters import only_worker, timed_runs

import staging_tf1 as staging
from staging_tf1.cluster.connection import Connection
from staging_tf1.lifecycle.in_step import InStep

# Only detects deadlocks.
LIMIT_SECS = 60.0


def in_time(call: Callable[[], Any]) -> Any:
    """Return what `call` returns. Fail if it hangs, and leave its thread behind."""
    results: list[Any] = []
    thread = threading.Thread(target=lambda: results.append(call()), daemon=True)
    thread.start()
    thread.join(LIMIT_SECS)
    assert not thread.is_alive(), "a deadlock"
    return results[0]


class Dropped:
    """Garbage that calls something when it is collected."""

    def __init__(self, call: Callable[[], Any]) -> None:
        self.itself, self.call = self, call

    def __del__(self) -> None:
        self.call()


class Collects:
    """An array. Whoever reads it collects the garbage."""

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        gc.collect()
        return np.array(1, dtype)


@pytest.fixture
def cluster() -> staging.Cluster:
    return only_worker()


def test_a_session_that_is_collected_in_a_run_can_use_the_same_connection(cluster: staging.Cluster) -> None:
    server = cluster.layout.servers[0]
    connection = Connection(f"grpc://{cluster.layout.address(server)}", server.device)
    with connection.building():
        x = tf.placeholder(tf.int64, [])
        y = x + 1
    of_garbage: list[int] = []
    Dropped(lambda: of_garbage.append(connection.run(y, {x: 2})))
    assert in_time(lambda: connection.run(y, {x: Collects()})) == 2
    assert of_garbage == [3]
    connection.close()


def test_a_thread_that_is_being_started_or_joined_waits_for_no_lock(
    cluster: staging.Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    member, began, stopping, looked = cluster.member, threading.Event(), threading.Event(), []
    set_ident = threading.Thread._set_ident  # type: ignore[attr-defined]

    def look(thread: threading.Thread) -> None:
        set_ident(thread)
        if thread.name.startswith("cluster:"):
            looked.append(member.has_finished(member.task))
            member.check_layout()

    def hear(entries: Any) -> None:
        began.set()
        assert stopping.wait(LIMIT_SECS)
        looked.append(cluster.member is member)

    monkeypatch.setattr(threading.Thread, "_set_ident", look)
    member.on_news = hear
    member.register("train", SimpleNamespace(stop=stopping.set, give_back=lambda: None))
    in_time(member.start)
    assert began.wait(LIMIT_SECS)
    in_time(cluster.close)
    assert looked == [False, False, False, True]


def test_a_cluster_that_is_closed_in_one_of_its_own_threads_is_closed_completely(cluster: staging.Cluster) -> None:
    member, heard, left = cluster.member, threading.Event(), threading.Event()

    def close(entries: Any) -> None:
        # As the garbage collector may do with the last session, in any thread.
        cluster.close()
        left.set()

    member.on_news = close
    member.start()
    assert left.wait(LIMIT_SECS)
    member.on_news = lambda entries: heard.set()
    member.start()
    assert heard.wait(LIMIT_SECS), "it gives no signs of life again"
    cluster.close()


def test_a_cluster_that_is_closed_while_its_threads_are_started_leaves_none(
    cluster: staging.Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    member, closed, start = cluster.member, threading.Event(), cluster.member.pauses.start

    def close(entries: Any) -> None:
        cluster.close()
        closed.set()

    def start_late() -> None:
        assert closed.wait(LIMIT_SECS)
        start()

    member.on_news = close
    monkeypatch.setattr(member.pauses, "start", start_late)
    member.start()
    assert not member.pauses.is_watching


def test_a_session_that_is_closed_late_leaves_the_news_to_the_next_one(cluster: staging.Cluster) -> None:
    def in_step() -> InStep:
        session = tf.Session(graph=tf.Graph())
        return InStep(cluster, session, None, timed_runs(session), ends_with_first=False)

    first, second = in_step(), in_step()
    news = cluster.member.on_news
    first.close()
    assert cluster.member.on_news == news is not None
    second.close()
    assert cluster.member.on_news is None
    cluster.close()
