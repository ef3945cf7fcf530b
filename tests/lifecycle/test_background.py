"""Threads that end with a session: what starts them, wakes them, ends them, and what becomes of their errors."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from staging_tf1.background import Background, Stop
from staging_tf1.cluster.signs import Pulse

# Only detects hangs.
LIMIT_SECS = 60.0


def ended(thread: threading.Thread) -> bool:
    thread.join(LIMIT_SECS)
    return not thread.is_alive()


class AtLine:
    """A trace function that calls `call` before the `which`-th line of other code than this file's."""

    def __init__(self, which: int, call: Callable[[], None]) -> None:
        self.left, self._call = which, call

    def __call__(self, frame: Any, event: str, _: Any) -> Any:
        if event == "line" and frame.f_code.co_filename != __file__ and self.left:
            self.left -= 1
            if not self.left:
                self._call()
        return self


def stopped_at(which: int) -> bool:
    """Stop a pulse in its own thread, before one line of what that executes. Return whether it has as many lines."""
    threads: list[threading.Thread] = []
    # An Event could not be set at any line.
    through: queue.SimpleQueue[None] = queue.SimpleQueue()

    def beat(number: int) -> None:
        threads.append(threading.current_thread())
        if number == 3:
            through.put(None)

    def stop() -> None:
        pulse.stop()
        through.put(None)

    pulse = Pulse("test:pulse", 1e-4, beat)
    at_line = AtLine(which, stop)
    threading.settrace(at_line)
    try:
        pulse.start()
        through.get(timeout=LIMIT_SECS)
    except queue.Empty:
        raise AssertionError(f"stopped at line {which}, it waits forever") from None
    finally:
        threading.settrace(None)  # type: ignore[arg-type]
    was_stopped = not at_line.left
    pulse.stop()
    assert all(map(ended, threads)), f"stopped at line {which}, it does not end"
    return was_stopped


def test_a_thread_can_be_stopped_at_any_line_of_its_own() -> None:
    # As the garbage collector does, which closes sessions in any thread.
    which = 1
    while stopped_at(which):
        which += 1
    assert which > 20


@pytest.mark.parametrize("secs", [0, 0.0, 1e-9, 1e-6, 1e-5, 1e-4, 0.0009, 0.001])
def test_a_short_wait_ends_even_if_it_begins_slowly(secs: float) -> None:
    woken = list[bool]()

    def wait() -> None:
        stop = Stop()
        threading.Event().wait(0.05)
        # Then nothing that the wait needs is in the caches of the processor, and it takes microseconds to begin.
        woken.append(any([0] * 300_000) or stop.wait(secs))

    for _ in range(5):
        thread = threading.Thread(target=wait, daemon=True)
        thread.start()
        assert ended(thread)
    assert woken == [False] * 5


@pytest.mark.parametrize("when", ["before the start", "while it waits", "while it works", "after its end"])
def test_it_can_be_stopped_at_any_time_and_again(when: str) -> None:
    waits, may_end, works = threading.Event(), threading.Event(), list[int]()

    def work() -> Iterator[float]:
        works.append(1)
        waits.set()
        if when == "while it works":
            assert may_end.wait(LIMIT_SECS)
        if when != "after its end":
            yield LIMIT_SECS
            raise AssertionError("it goes on")

    thread = Background("test:background", work)
    if when == "before the start":
        thread.stop()
    thread.start()
    if when == "while it works":
        assert waits.wait(LIMIT_SECS)
        thread.stop(0.01)
        assert thread.is_alive(), "a stop interrupts nothing"
        may_end.set()
    elif when != "before the start":
        assert waits.wait(LIMIT_SECS)
    for _ in range(2):
        thread.stop(LIMIT_SECS)
        assert not thread.is_alive()
    assert thread.daemon and works == [1] * (when != "before the start")


def test_threads_with_one_stop_end_together() -> None:
    stopping, waits = Stop(), threading.Semaphore(0)

    def work() -> Iterator[None]:
        waits.release()
        yield None

    threads = [Background(f"test:background:{i}", work, stopping) for i in range(3)]
    for thread in threads:
        thread.start()
    assert all(waits.acquire(timeout=LIMIT_SECS) for _ in threads)
    threads[0].stop(LIMIT_SECS)
    assert all(map(ended, threads))


@pytest.mark.parametrize("kind", [ValueError, SystemExit])
def test_what_it_raises_is_handed_over_in_its_thread(kind: type[BaseException]) -> None:
    error, seen = kind("bad"), list[tuple[BaseException, threading.Thread]]()

    def work() -> Iterator[float]:
        yield 0.0
        raise error

    thread = Background("test:background", work, failed=lambda error: seen.append((error, threading.current_thread())))
    thread.start()
    assert ended(thread) and seen == [(error, thread)]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_without_a_handler_what_it_raises_is_printed(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []
    monkeypatch.setattr(threading, "excepthook", seen.append)
    thread = Background("test:background", lambda: [][0])
    thread.start()
    assert ended(thread) and seen[0].exc_type is IndexError
