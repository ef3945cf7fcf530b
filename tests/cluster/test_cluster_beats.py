"""Signs of life: what they cost the server of the ledger, and what a task learns from them.

The ledger is on a real server of this process; the tasks are threads of it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from clusters import until

from staging_tf1.cluster.layout import Task
from staging_tf1.cluster.member import Member
from staging_tf1.errors import ClusterError


@pytest.fixture
def make_tasks(make_members: Callable[..., Any]) -> Callable[[int], Any]:
    """Make two parameter servers and so many workers."""
    return lambda workers: make_members(workers, 2, silence_secs=2.0)


@pytest.mark.parametrize("sync", [False, True])
@pytest.mark.parametrize("workers", [2, 200])
def test_a_workers_sign_of_life_reads_as_many_entries_in_a_cluster_of_any_size(
    make_tasks: Any, monkeypatch: pytest.MonkeyPatch, workers: int, sync: bool
) -> None:
    tasks = make_tasks(workers)
    chief, worker = tasks.member("worker", 0), tasks.member("worker", 1)
    for name in ("task", "fence", "done"):
        chief.ledger.write({f"{name}/{task}": {"process": "1"} for task in chief.layout.workers})
    read: dict[Task, int] = {}

    def counting(member: Member) -> None:
        run = member.ledger._run

        def counted(fetches: Any, feed: Any = None) -> Any:
            result = run(fetches, feed)
            read[member.task] = read.get(member.task, 0) + (
                0 if result is None else len(getattr(result, "keys", result))
            )
            return result

        monkeypatch.setattr(member.ledger, "_run", counted)
        member._beat(0)

    if sync:
        # News of all workers are wanted.
        worker.on_news = lambda entries: None
    counting(chief)
    counting(worker)
    everything = 3 * workers
    assert read[chief.task] >= everything
    assert read[worker.task] >= everything if sync else read[worker.task] <= 6


def test_a_worker_knows_from_the_chief_which_others_are_silent(make_tasks: Any) -> None:
    tasks = make_tasks(3)
    chief, worker, lost = (tasks.member("worker", index) for index in range(3))
    lost._beat(0)
    for each in (chief, worker):
        each.start()
    until(lambda: chief.signs.silent_secs(lost.task) > 3.0, "the chief has heard nothing of it for long")
    until(lambda: str(lost.task) in chief.ledger.read([f"task/{chief.task}"])[f"task/{chief.task}"]["silent"], "told")
    assert not worker.signs.knows(lost.task)
    worker.read()
    assert worker.signs.silent_secs(lost.task) > 1.0
    assert worker.signs.silent_secs(chief.task) < 2.0
    assert "silent for" in worker.signs.described(lost.task)


def test_a_worker_hears_the_chief_and_the_parameter_servers_all_the_time(make_tasks: Any) -> None:
    tasks = make_tasks(2)
    chief, server, worker = tasks.member("worker", 0), tasks.member("ps", 1), tasks.member("worker", 1)
    for each in (chief, server):
        each._beat(0)
    worker._beat(0)
    assert worker.signs.knows(chief.task) and worker.signs.knows(server.task)


@pytest.mark.parametrize("first", ["the worker", "the parameter server"])
def test_a_worker_hears_that_a_parameter_server_has_other_addresses_in_any_order(make_tasks: Any, first: str) -> None:
    tasks = make_tasks(2)
    worker, server = tasks.member("worker", 1), tasks.member("ps", 1, in_reverse=True)
    for each in (worker, server) if first == "the worker" else (server, worker):
        each._beat(0)
    worker._beat(1)
    with pytest.raises(ClusterError, match="worker 1 and ps 1 .* describe the cluster differently"):
        worker.addresses.check()
    # It is started again, with the right ones.
    again = tasks.member("ps", 1)
    again._beat(0)
    for number in (2, 3):
        worker._beat(number)
    worker.addresses.check()


def test_a_parameter_server_tells_its_addresses_again_after_the_ledger_was_lost(make_tasks: Any) -> None:
    tasks = make_tasks(2)
    server, worker = tasks.member("ps", 1), tasks.member("worker", 1)
    for number in range(3):
        server._beat(number)
    worker.ledger.remove([f"layout/{server.task}", f"task/{server.task}"])
    for number in (3, 4):
        server._beat(number)
    assert worker.ledger.read([f"layout/{server.task}"])
