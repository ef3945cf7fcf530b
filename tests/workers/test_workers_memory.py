"""The shared memory of worker processes under a limit: who may have it, and that nothing waits forever."""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import worker_sources
from pools import pools
from slow import examples
from test_workers import assert_same, memory_of
from worker_sources import Reporting

from staging_tf1.errors import SourceError
from staging_tf1.sources import ArraySource
from staging_tf1.workers.arena import Arena
from staging_tf1.workers.buffers import Buffer, Buffers
from staging_tf1.workers.lanes import PeerGone
from staging_tf1.workers.pool import WorkerPool

MB = 1 << 20
# Far more than any of these tests takes, even on a busy machine.
PATIENCE_SECS = 60.0


class InOrder:
    """Threads that take numbers, make something of each, and deliver it in order, as feed threads do.

    Args:
      draw: called with a number, under the lock that numbers are taken under.
      make: called with a number; its result is held until it was delivered.
      stop: ends all waits.
    """

    def __init__(self, draw: Callable[[int], Any], make: Callable[[int], Any], stop: Callable[[], Any]) -> None:
        self._draw, self._make, self._stop = draw, make, stop
        self._lock, self._turn = threading.Lock(), threading.Condition()
        self._numbers: Iterator[int] = iter(())
        self._errors: list[BaseException] = []
        self.got: list[Any] = []

    def run(self, count: int, threads: int) -> list[Any]:
        """Deliver `count` batches. Fails after `PATIENCE_SECS`."""
        self._numbers = iter(range(count))
        started = [threading.Thread(target=self._guarded, daemon=True) for _ in range(threads)]
        for thread in started:
            thread.start()
        for thread in started:
            thread.join(PATIENCE_SECS)
            if thread.is_alive():
                delivered = len(self.got)
                self._stop()
                pytest.fail(f"it hangs after {delivered} of {count} batches")
        assert not self._errors, self._errors
        return self.got

    def _guarded(self) -> None:
        try:
            while self._one():
                pass
        except BaseException as error:
            self._errors.append(error)
            self._stop()

    def _one(self) -> bool:
        with self._lock:
            number = next(self._numbers, None)
            if number is None:
                return False
            self._draw(number)
        made = self._make(number)
        with self._turn:
            assert self._turn.wait_for(lambda: len(self.got) == number or self._errors, PATIENCE_SECS)
            self.got.append(made if isinstance(made, int) else int(made["x"][0]))
            self._turn.notify_all()
        return True


def delivered(pool: WorkerPool, count: int, threads: int) -> list[Any]:
    """What a pool delivers in order: the first number in each batch."""
    return InOrder(pool.draw, pool.make, pool.stop).run(count, threads)


# Limits between the tightest and the widest.
@pytest.mark.slow_cases(r"2\.2|3\.3|4\.6")
@pytest.mark.parametrize("limit", [1.2, 2.2, 2.7, 3.3, 4.6, 12])
def test_batches_of_one_size_are_delivered_under_any_limit(limit: float) -> None:
    options: dict[str, Any] = dict(memory_limit=int(limit * MB), batch_bytes=MB)
    with pools(Reporting(None, worker_sources.a_megabyte), processes=2, **options) as (pool,):
        assert delivered(pool, 30, 4) == list(range(30))
        # From two buffers on, which are an eighth larger than the batches, the limit holds exactly.
        assert pool.memory_bytes <= limit * MB + (0 if limit > 2 * 1.125 else 1.125 * MB)


def test_a_larger_batch_may_exceed_the_limit_while_later_ones_hold_the_memory() -> None:
    with pools(Reporting(None, worker_sources.one_of_eight), processes=2, memory_limit=10 * MB) as (pool,):
        assert delivered(pool, 12, 4) == list(range(12))
        assert pool.memory_bytes < (10 + 8.6) * MB


# A limit between the tightest and the widest.
@pytest.mark.slow_cases(r"4\.5")
@pytest.mark.parametrize("limit", [0, 4.5, 6])
def test_a_transform_that_makes_batches_larger_is_delivered_under_any_limit(limit: float) -> None:
    bytes_in = np.arange(8 * MB, dtype=np.uint32).astype(np.uint8).reshape(8, MB)
    source = ArraySource({"x": bytes_in}, batch_size=1, epochs=1, transform=worker_sources.as_floats)
    options: dict[str, Any] = dict(memory_limit=int(limit * MB), batch_bytes=source.bytes_per_batch)
    with pools(source, processes=2, **options) as (pool,):
        run = InOrder(pool.draw, lambda number: int(pool.make(number)["x"][0, number]), pool.stop)
        assert run.run(8, 4) == list(range(8))


# More descriptors than fit in one message, as with 1000.
@pytest.mark.slow_cases("300")
@pytest.mark.parametrize("count", [250, 300, 1000])
def test_batches_of_many_arrays(count: int) -> None:
    source = ArraySource({f"f{i}": np.arange(64.0) + i for i in range(count)}, batch_size=8)
    with pools(source) as (pool,):
        timer = threading.Timer(PATIENCE_SECS, pool.end)
        timer.start()
        for number in range(3):
            assert_same(pool.make(number), source.batch(number))
        timer.cancel()


def test_the_limit_is_compared_with_the_size_before_it_is_rounded_up() -> None:
    with pools(Reporting(None, worker_sources.nine_and_a_half), memory_limit=10_000_000) as (pool,):
        assert pool.make(3)["x"][0] == 3
        assert pool.memory_bytes <= 10_000_000


def test_refused_batches_leave_nothing_in_the_worker() -> None:
    with pools(Reporting(None, worker_sources.nine_and_a_half), memory_limit=MB) as (pool,):
        sizes = []
        for number in range(14):
            with pytest.raises(SourceError, match=f"batch {number} needs 9,9"):
                pool.make(number)
            sizes.append(sum(map(memory_of, pool.pids)))
        assert sizes[-1] < sizes[3] + 30 * MB


SIZES: dict[str, Callable[[np.random.Generator, int, int], int]] = {
    "constant": lambda rng, limit, number: limit // 3,
    "growing": lambda rng, limit, number: 1 + limit * min(number, 29) // 30,
    "one huge": lambda rng, limit, number: limit - 9000 if number == 7 else limit // 5,
    "any": lambda rng, limit, number: int(rng.integers(1, limit)),
}


class Simulation:
    """Workers without processes: buffers are taken as a pool takes them, and some workers die."""

    def __init__(self, rng: np.random.Generator, sizes: list[int], limit: int, dies: bool) -> None:
        workers = [object() for _ in range(rng.integers(1, 4))]
        self.rng, self.sizes, self.workers = rng, sizes, workers
        self.threads = 2 * len(workers)
        self.buffers = Buffers(limit, None if rng.random() < 0.5 else sizes[0], "test")
        self._deaths = set(rng.integers(0, len(sizes), 3).tolist()) if dies else set()
        for worker in workers:
            self.buffers.add_owner(worker)

    def make(self, number: int) -> Any:
        try:
            while True:
                try:
                    return Held(
                        number, self.buffers.lend(self._buffer(self.workers[number % len(self.workers)], number))
                    )
                except PeerGone:
                    continue
        finally:
            self.buffers.done(number)

    def _buffer(self, worker: object, number: int) -> Buffer:
        buffer, _ = self.buffers.take(worker, number)
        while buffer.size < self.sizes[number]:
            self._linger(number)
            self.buffers.drop(buffer)
            buffer, _ = self.buffers.take(worker, number, self.sizes[number], self.sizes[number])
        self._linger(number)
        if number in self._deaths:
            self._deaths.remove(number)
            self.buffers.forget(worker)
            self.buffers.give_back(buffer)
            self.buffers.add_owner(worker)
            raise PeerGone
        return buffer

    def _linger(self, number: int) -> None:
        for _ in range(self.sizes[number] % 40 * (1 + number % 3)):
            os.sched_yield()


class Held(dict[str, Any]):
    """A batch in the memory of its buffer."""

    def __init__(self, number: int, memory: Any) -> None:
        super().__init__(x=[number])
        self._memory = memory


@pytest.mark.parametrize("kind", SIZES)
@pytest.mark.parametrize("dies", [False, True])
def test_every_batch_is_delivered_once_and_at_most_one_exceeds_the_limit(kind: str, dies: bool) -> None:
    for seed in range(int(os.environ.get("STAGING_TF1_WORKER_LIMITS", examples(25)))):
        rng = np.random.default_rng(seed)
        limit = int(rng.integers(100_000, 1_000_000))
        sizes = [SIZES[kind](rng, limit, number) for number in range(40)]
        run = Simulation(rng, sizes, limit, dies)
        got = InOrder(run.buffers.draw, run.make, run.buffers.close).run(len(sizes), run.threads)
        assert got == list(range(len(sizes))), seed
        # Sizes are rounded up by at most an eighth, and to whole pages.
        assert run.buffers.most_bytes <= limit + max(sizes) * 1.125 + 8192, seed


def test_the_program_may_hold_the_last_batch_that_it_took() -> None:
    buffers = Buffers(20_000, 10_000, "test")
    buffers.add_owner("worker")
    for batch in range(4):
        buffers.draw(batch)
    held = [buffers.lend(buffers.take("worker", 0)[0])]
    buffers.done(0)
    # Two of 16,384 bytes exceed the limit, which one that waits for its turn may not.
    held.append(buffers.lend(buffers.take("worker", 1)[0]))
    assert not buffers._may_take(2)
    buffers.done(1)
    assert not buffers._may_take(2), "the program holds one, and another one is on its way"
    held.pop(0)
    buffers._sweep()
    assert buffers._may_take(2) and not buffers._may_take(3)


def test_a_window_of_kept_arrays_makes_the_buffer_no_larger_than_it(tmp_path: Path) -> None:
    with (tmp_path / "buffer").open("w+b") as file:
        file.truncate(MB)
        arena = Arena(file.fileno(), MB)
        kept: deque[Any] = deque(maxlen=10)
        for _ in range(200):
            arena.begin()
            kept.append(arena.allocate(4096))
        assert all(each is not None for each in kept) and arena.peak <= 11 * 4096
