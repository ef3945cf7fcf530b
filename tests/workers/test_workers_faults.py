"""Worker processes that fail, die or hang, without a session."""

from __future__ import annotations

import contextlib
import gc
import logging
import os
import random
import re
import resource
import signal
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import worker_sources
from load import slowdown
from pools import pools
from processes import state_of
from worker_sources import Reporting, digits

from staging_tf1.errors import SourceError
from staging_tf1.workers.pool import CannotStart, PoolStopped, WorkerPool
from staging_tf1.workers.process import frames_for
from staging_tf1.workers.shipping import check_picklable


def test_a_worker_that_dies_is_replaced_and_its_batch_is_made_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with pools(Reporting(None, worker_sources.die_at(1, 2, str(tmp_path)))) as (pool,):
        first = pool.make(0)["pid"]
        batch = pool.make(1)
        assert batch["x"] == 1 and batch["pid"] != first
    assert caplog.text.count("'test/0:0' was killed by SIGKILL while it made batch 1; another one takes its place") == 2


# A death by another signal.
@pytest.mark.slow_cases(r"Signals\.SIGSEGV|11")
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV])
def test_the_third_death_of_one_batch_raises(tmp_path: Path, number: int) -> None:
    with pools(Reporting(None, worker_sources.die_at(1, 9, str(tmp_path), number)), processes=2) as (pool,):
        expected = "'test/0': 3 worker processes ended while they made batch 1; the last one was killed by "
        with pytest.raises(SourceError, match=f"{expected}{signal.Signals(number).name}. SIGKILL mostly means"):
            pool.make(1)
        assert len(os.listdir(tmp_path)) == 3
        assert pool.make(2)["x"] == 2


def test_a_stop_is_quick_even_in_a_long_call_of_c() -> None:
    with pools(Reporting(None, worker_sources.hang_at(0)), processes=2) as (pool,):
        outcome: list[BaseException] = []
        thread = threading.Thread(target=lambda: outcome.append(outcome_of(pool, 0)))
        thread.start()
        wait_until(lambda: any(frame.function == "hold_the_lock" for frame in frames_for(thread.ident) or ()))
        pids = pool.pids
        began = time.perf_counter()
        pool.stop()
        thread.join()
        pool.end()
        took = time.perf_counter() - began
        assert took < 2 * slowdown()
        assert isinstance(outcome[0], PoolStopped)
        for pid in pids:
            with pytest.raises(ProcessLookupError):
                os.kill(pid, 0)


def outcome_of(pool: WorkerPool, number: int) -> BaseException:
    try:
        pool.make(number)
    except BaseException as error:
        return error
    raise AssertionError("it made a batch")


def wait_until(condition: Callable[[], bool]) -> None:
    """Ask again and again; the test's timeout ends it."""
    while not condition():
        time.sleep(0.001)


def test_a_source_that_workers_cannot_load_says_why() -> None:
    with pools(Reporting(None, worker_sources.Unloadable())) as (pool,):
        expected = "worker process 'test/0:0' cannot load the source: ImportError: no module named x. A worker imports "
        for _ in range(2):
            with pytest.raises(CannotStart, match=expected):
                pool.make(0)


def test_a_source_that_has_become_unpicklable_ends_the_pool() -> None:
    source = Reporting(3)
    with pools(source, processes=2) as (pool,):
        source._make = (n for n in ())  # type: ignore[assignment]
        expected = "'test/0': cannot start worker processes: TypeError: cannot pickle 'generator' object. A source must"
        with pytest.raises(CannotStart, match=expected):
            pool.make(0)
        with pytest.raises(PoolStopped):
            pool.make(1)


def test_limits_of_the_system_end_the_pool_and_leave_nothing_open() -> None:
    """Every call that opens a descriptor fails in turn."""
    before = set(os.listdir("/proc/self/fd"))
    for spare in range(12):
        with pools(digits()) as (pool,):
            with descriptors_left(spare), pytest.raises(CannotStart, match=r"Raise the limits of open files .ulimit"):
                pool.make(0)
            assert not pool.pids
        gc.collect()  # the tracebacks hold mappings, and Python's have a descriptor each
        assert set(os.listdir("/proc/self/fd")) <= before, "of earlier tests, some may have been collected"


def test_a_worker_that_cannot_be_replaced_wakes_the_threads_that_wait() -> None:
    with pools(Reporting(None, worker_sources.hang_at(0))) as (pool,):
        outcome: list[BaseException] = []
        threads = [threading.Thread(target=lambda: outcome.append(outcome_of(pool, 0))) for _ in range(3)]
        pool.make(1)
        for thread in threads:
            thread.start()
        wait_until(lambda: any(frame.function == "hold_the_lock" for each in threads for frame in frames_of(each)))
        with descriptors_left(0):
            os.kill(pool.pids[0], signal.SIGKILL)
            for thread in threads:
                thread.join()
        # Two of them may find the worker dead at the same time.
        assert {type(each) for each in outcome} in ({CannotStart}, {CannotStart, PoolStopped}) and len(outcome) == 3


def test_a_buffer_beyond_the_limits_is_no_bad_batch() -> None:
    with pools(digits(4000)) as (pool,):
        held = [pool.make(0)]
        with (
            descriptors_left(0),
            pytest.raises(CannotStart, match="cannot make shared memory for a batch: OSError: .*Raise"),
        ):
            held.append(pool.make(1))


def frames_of(thread: threading.Thread) -> list[Any]:
    return frames_for(thread.ident) or []


def is_open(descriptor: int) -> bool:
    with contextlib.suppress(OSError):
        os.fstat(descriptor)
        return True
    return False


@contextlib.contextmanager
def descriptors_left(count: int) -> Iterator[None]:
    """Let this process open so many more descriptors."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    # Listing them takes one, which is closed afterwards.
    used = [each for each in sorted(map(int, os.listdir("/proc/self/fd"))) if is_open(each)]
    free = set(range(used[-1])) - set(used)
    filling = [os.dup(used[0]) for _ in free]
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(used[-1], *filling, 0) + 1 + count, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        for each in filling:
            os.close(each)


def test_a_source_that_cannot_be_pickled_names_the_attribute(tmp_path: Path) -> None:
    with open(tmp_path / "open", "w") as file:
        cases: dict[str, tuple[Any, str]] = {
            "closure": (lambda index: file, "Reporting._make (its variable 'file') is a _io.TextIOWrapper"),
            "default": (_with_default(file), "Reporting._make (its default) is a _io.TextIOWrapper"),
            "generator": ((n for n in ()), "Reporting._make is a generator"),
        }
        for make, expected in cases.values():
            with pytest.raises(TypeError) as raised:
                check_picklable("staged(name='train')", Reporting(3, make))
            text = str(raised.value)
            assert text.startswith("staged(name='train') got num_processes= with a source that cannot be moved to ")
            assert expected in text and "Create it in the function that uses it, or use num_threads= instead." in text
        with pytest.raises(
            TypeError, match="ArraySource._batching.options.transform .its variable 'file'. is a _io.TextIOWrapper"
        ):
            check_picklable("staged()", digits(transform=lambda batch: file))


GENERATORS = [np.random.default_rng(0), np.random.RandomState(0), random.Random(0)]


@pytest.mark.parametrize("rng", GENERATORS, ids=lambda rng: type(rng).__name__)
def test_a_random_generator_that_each_worker_would_copy_is_warned_of(rng: Any) -> None:
    text = check_picklable("staged()", Reporting(3, lambda index: rng.random(2)))
    assert text is not None
    expected = r"staged\(\) got num_processes= with a source that has a random generator: Reporting._make "
    assert re.match(rf"{expected}\(its variable 'rng'\) is a [\w.]+{type(rng).__name__}. Each process has a copy", text)
    assert "Use a transform with two arguments, transform(batch, rng), or make the generator from the number" in text


def _with_default(file: Any) -> Callable[..., Any]:
    def make(index: int, file: Any = file) -> Any:
        return file

    return make


def test_logs_warnings_and_prints_reach_the_training_process(
    caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    logging.getLogger("quiet").setLevel(logging.CRITICAL)
    with pools(Reporting(None, worker_sources.chatty)) as (pool,):
        with pytest.warns(UserWarning, match="warned in batch 3"):
            pool.make(3)
    assert "[test/0:0] logged in batch 3" in caplog.text
    assert capfd.readouterr().out == "printed in batch 3\n"


def test_a_message_that_cannot_be_shown_costs_no_batch(capfd: pytest.CaptureFixture[str]) -> None:
    """The worker has copied the filters before they make its warnings errors."""
    with pools(Reporting(None, worker_sources.chatty)) as (pool,):
        with pytest.warns(UserWarning, match="warned in batch 1"):
            pool.make(1)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert [int(pool.make(number)["x"][0]) for number in (0, 10, 11, 12)] == [0, 10, 11, 12]
    printed = capfd.readouterr().err
    assert "cannot show a message of a worker process:\nTraceback" in printed
    assert "UserWarning: warned in batch 10\n" in printed


def test_a_reply_is_never_taken_for_that_of_another_request() -> None:
    """A request that was given up leaves its reply behind."""

    class Exiting(logging.Filter):
        def filter(self, record: logging.LogRecord) -> bool:
            raise SystemExit(record.getMessage())

    with pools(Reporting(None, worker_sources.chatty)) as (pool,):
        logger, exiting = logging.getLogger("absl"), Exiting()
        logger.addFilter(exiting)
        try:
            with pytest.raises(SystemExit, match="logged in batch 0"):
                pool.make(0)
        finally:
            logger.removeFilter(exiting)
        with pytest.warns(UserWarning):
            assert [int(pool.make(number)["x"][0]) for number in (10, 11, 12)] == [10, 11, 12]
        free = pool._take_lane()
        pool._asked(free, 5, 0, 0)
        pool._give_lane(free)
        with pytest.warns(UserWarning):
            assert [int(pool.make(number)["x"][0]) for number in (6, 7, 8)] == [6, 7, 8]


_TEST_FOLDERS = [str(Path(__file__).parent), str(Path(worker_sources.__file__).parent)]
WITH_TESTS = {"PYTHONPATH": os.pathsep.join([str(Path(__file__).parents[2]), *_TEST_FOLDERS])}


# It ends the program without its `finally` blocks, as SIGKILL does.
@pytest.mark.slow_cases(r"Signals\.SIG(TERM|INT)|15|2")
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_workers_die_with_the_training_process(run_python: Any, tmp_path: Path, number: int) -> None:
    """Also one that is in a call of C that holds the GIL."""
    result = run_python("-c", _DYING, int(number), env=WITH_TESTS)
    assert result.returncode in (-number, 130, 1)
    pids = [int(pid) for pid in result.stdout.split()]
    assert len(pids) == 2
    wait_until(lambda: not any(map(is_running, pids)))


def is_running(pid: int) -> bool:
    return state_of(Path(f"/proc/{pid}")) not in ("Z", None)


_DYING = """
import os, sys, threading
from pools import pools
from test_workers_faults import wait_until
from worker_sources import Reporting, hang_at
from staging_tf1.workers.process import frames_for

with pools(Reporting(None, hang_at(0)), processes=2) as (pool,):
    print(*pool.make(1) and pool.pids, flush=True)
    thread = threading.Thread(target=pool.make, args=[0], daemon=True)
    thread.start()
    wait_until(lambda: any(frame.function == "hold_the_lock" for frame in frames_for(thread.ident) or ()))
    os.kill(os.getpid(), int(sys.argv[1]))
    thread.join()
"""


def test_a_fork_of_the_training_process_lets_go_of_the_workers(run_python: Any) -> None:
    """Its copies of the sockets would keep the workers alive when the training process is gone."""
    result = run_python("-c", _FORKING, env=WITH_TESTS)
    assert (result.returncode, result.stdout) == (0, "0 [4, 5, 6, 7]\n"), result.stderr


_FORKING = """
import os
from pools import pools
from test_workers_faults import sockets
from worker_sources import digits

before = sockets()
with pools(digits(), processes=2) as (pool,):
    pool.make(0)
    assert sockets() > before
    child = os.fork()
    if not child:
        os._exit(0 if sockets() == before else 1)
    print(os.waitpid(child, 0)[1], pool.make(1)["label"].tolist())
"""


def sockets() -> set[str]:
    """The sockets that this process has open."""
    found = set()
    for descriptor in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):
            found.add(os.readlink(f"/proc/self/fd/{descriptor}"))
    return {name for name in found if name.startswith("socket:")}
