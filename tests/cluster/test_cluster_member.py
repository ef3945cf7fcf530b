"""`Member`: what a task concludes from the ledger, without a server."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

import pytest
import tensorflow.compat.v1 as tf

from staging_tf1.cluster import connection, member
from staging_tf1.cluster.clock import Clock
from staging_tf1.cluster.layout import Layout
from staging_tf1.cluster.server import await_end
from staging_tf1.cluster.signs import beat_secs
from staging_tf1.errors import ClusterError

JOBS = {"ps": ["h:1", "h:2"], "worker": ["h:3", "h:4"]}
RUN = {"run": {"id": "1", "state": "initialized"}}


class Ledger:
    """Returns or raises what it is given, one at each reading. Writing does nothing."""

    def __init__(self, answers: Iterable[Any]) -> None:
        self._answers = deque(answers)
        self.written: Any = None

    def read(self, names: Any = None) -> dict[str, Any]:
        answer = self._answers.popleft()
        if isinstance(answer, Exception):
            raise answer
        return dict(answer)

    def write(self, entries: Any) -> None:
        """Write nothing, and fail for each exception that is next among the answers."""
        if self._answers and isinstance(self._answers[0], Exception):
            raise self._answers.popleft()
        self.written = entries

    def remove(self, names: Any) -> None:
        """Remove nothing."""


@pytest.fixture
def member_of(monkeypatch: pytest.MonkeyPatch) -> Callable[..., member.Member]:
    """Make the part of a task that reads a list of answers. Its clock stands still but for its own pauses."""
    now = [0.0]
    monkeypatch.setattr(time, "sleep", lambda secs: now.__setitem__(0, now[0] + secs))

    def make(job: str, index: int, answers: list[Any]) -> member.Member:
        layout = Layout.checked("test", JOBS, job, index)
        ledger: Any = Ledger(answers)
        return member.Member(layout, ledger, silence_secs=60.0, start_secs=600.0, clock=Clock(lambda: now[0]))

    return make


def unavailable() -> Exception:
    error: Exception = tf.errors.UnavailableError(None, None, "connection refused")
    return error


def test_a_parameter_server_survives_a_restart_of_the_first_one(member_of: Callable[..., member.Member]) -> None:
    ended = {"run": {**RUN["run"], "state": "ended"}}
    minutes, seconds = [RUN] * 1200, [unavailable()] * 300
    await_end(member_of("ps", 1, [*minutes, *seconds, *minutes, *seconds, ended, ended]))


def test_a_parameter_server_ends_without_a_chief_that_is_gone(
    member_of: Callable[..., member.Member], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level("WARNING", logger="absl"):
        await_end(member_of("ps", 0, [{**RUN, "done/worker 1": "1"}] * 12000))
    assert [record.getMessage().partition(" (")[0] for record in caplog.records] == [
        "ps 0 ends without: worker 0 at h:3"
    ]


def test_a_parameter_server_ends_without_the_first_one(member_of: Callable[..., member.Member]) -> None:
    # It waits as long as the workers, which need it when the first one returns.
    with pytest.raises(ClusterError, match="ps 1: ps 0 at h:1 has not answered for 600 s: connection refused"):
        await_end(member_of("ps", 1, [RUN] * 1200 + [unavailable()] * 7000))


FAILED = {
    "run": {"id": "1", "state": "failed", "why": "CheckpointError: damaged"},
    "task/worker 0": {"process": "first"},
    "away/worker 0": "first",
}


def test_a_parameter_server_ends_soon_after_a_failed_start(
    member_of: Callable[..., member.Member], caplog: pytest.LogCaptureFixture
) -> None:
    # A look every half a second. The other worker was never started.
    server = member_of("ps", 0, [FAILED] * 60)
    with caplog.at_level("INFO", logger="absl"), pytest.raises(ClusterError) as caught:
        await_end(server)
    assert 10.0 < server.clock.now() < 15.0
    assert str(caught.value).startswith(
        "ps 0 ends, because no run has begun (CheckpointError: damaged) and all workers are gone: worker 0 at h:3 ("
    )
    assert caplog.messages == [
        "ps 0 waits for worker 0 to begin again (CheckpointError: damaged). ps 0 ends 10 s after all workers have "
        "ended, or when none has given a sign of life for 60 s"
    ]


def test_a_chief_may_return_after_a_failed_start(member_of: Callable[..., member.Member]) -> None:
    returned = {**FAILED, "task/worker 0": {"process": "second"}}
    ended = {**returned, "run": {"id": "2", "state": "ended"}}
    await_end(member_of("ps", 0, [*[FAILED] * 15, *[returned] * 50, *[ended] * 50]))


def test_a_chief_does_not_wait_forever_for_a_parameter_server(member_of: Callable[..., member.Member]) -> None:
    with pytest.raises(ClusterError, match="worker 0: ps 0 at h:1 has not answered for 600 s: connection refused"):
        member_of("worker", 0, [unavailable()] * 7000).await_workers()


def test_a_chief_without_data_notices_that_the_first_parameter_server_is_new(
    member_of: Callable[..., member.Member],
) -> None:
    chief = member_of("worker", 0, [{}, {"task/worker 1": "a sign of life"}])
    chief.begin_run("the variables")
    with pytest.raises(ClusterError) as caught:
        chief.await_workers()
    assert str(caught.value) == (
        "worker 0 has no batch left and waits for the other workers, but ps 0 has restarted and lost the model. Start "
        "worker 0 again: it restores the last checkpoint, for which the other workers wait."
    )


def test_a_worker_that_has_finished_tells_it_a_server_that_stood_still(
    member_of: Callable[..., member.Member], caplog: pytest.LogCaptureFixture
) -> None:
    chief = member_of("worker", 0, [unavailable()] * 20)
    with caplog.at_level("INFO", logger="absl"):
        chief.finish()
    assert "worker 0 waits for ps 0 at h:1, which does not answer" in caplog.messages
    ledger: Any = chief.ledger
    # In one write: the parameter servers return when they read either.
    assert ledger.written.keys() == {"done/worker 0", "run"}
    with pytest.raises(ClusterError, match="worker 1: ps 0 at h:1 has not answered for 600 s"):
        member_of("worker", 1, [unavailable()] * 2000).finish()


def test_a_worker_stood_still_for_too_long_if_its_last_sign_is_as_old(member_of: Callable[..., member.Member]) -> None:
    worker = member_of("worker", 1, [{}])
    assert worker.patience() == (600.0, "")
    time.sleep(59.0)
    secs, reason = worker.patience()
    assert secs == 60.0 and reason.startswith("This process stood still for 59 s before, and the others do not wait")
    worker.read()
    assert worker.patience() == (600.0, "")


def test_signs_of_life_cost_the_server_as_much_with_any_large_number_of_workers() -> None:
    assert beat_secs(2) == beat_secs(100) == 2.0
    assert beat_secs(2, sync=True) == 0.5
    # Reading all signs takes time in proportion to the workers, and so does the pause.
    assert beat_secs(1000) == 10 * beat_secs(100)


# Of a worker, while a parameter server restarted.
SEVERAL = """From /job:worker/replica:0/task:1:
=====================
CANCELLED: From /job:worker/replica:0/task:1:
RecvFromRemoteAsync is cancelled.
\t [[{{node ResourceScatterAdd_S26}}]]
ABORTED: From /job:ps/replica:0/task:1:
Session handle is not found: b8269f1382b680d3. Possibly this worker ("/job:ps/replica:0/task:1") just restarted.
====================="""


@pytest.mark.parametrize(
    ("kind", "message", "recovers"),
    [
        (tf.errors.CancelledError, SEVERAL, True),
        (tf.errors.CancelledError, SEVERAL.replace("ABORTED", "UNAVAILABLE"), True),
        (tf.errors.CancelledError, "Step was cancelled by an explicit call to `Session::Close()`.", False),
        (tf.errors.InvalidArgumentError, SEVERAL, False),
        (tf.errors.AbortedError, "Session handle is not found", True),
        (tf.errors.UnavailableError, "Socket closed", True),
    ],
)
def test_a_step_that_a_lost_server_has_cancelled_begins_again(kind: Any, message: str, recovers: bool) -> None:
    error = kind(None, None, message)
    found = connection.recovered_from(error)
    assert (found is not None) == recovers
    # What a MonitoredSession begins again after.
    assert found is None or isinstance(found, connection.RECOVERED)
    assert found is error or not isinstance(error, connection.RECOVERED)
