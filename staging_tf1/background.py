"""`Background`: a thread that ends with its session; and `Stop`, which tells it to end and wakes it where it waits."""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Callable, Iterable

from staging_tf1.garbage import join_thread

# Up to Python 3.12, `get` waits forever if a short time is over before it looks into the queue; in 3.10 also with 0.
_LEAST_SECS = 0.001


class Stop:
    """Tells threads to end, and wakes those that wait for it.

    Any thread may set it at any moment, also the one that waits: the garbage collector closes sessions in any thread. A
    `threading.Event` would wait there for its own lock, and so would one that a Ctrl-C in its `wait`, or a fork, has
    left locked.
    """

    def __init__(self) -> None:
        self._wake_ups: queue.SimpleQueue[None] = queue.SimpleQueue()
        self.is_set = False

    def set(self) -> None:
        """Tell them to end. May be called again."""
        self.is_set = True
        self._wake_ups.put(None)

    def wait(self, secs: float | None = None) -> bool:
        """Wait until it is set, or for `secs` seconds, in one sleep. Return whether it is set.

        A time of less than a millisecond is none.
        """
        with contextlib.suppress(queue.Empty):
            self._wake_ups.get(block=secs is None or secs >= _LEAST_SECS, timeout=secs)
            # For the others that wait.
            self._wake_ups.put(None)
        return self.is_set


class Background(threading.Thread):
    """A daemon thread that works until its work is done, or until it is stopped.

    Args:
      name: its name.
      work: called in the thread. A generator yields the seconds to wait before it continues, unless it is told to end.
      stopping: tells it to end; several threads may have the same one.
      failed: called in the thread with what `work` raises. Without it, Python prints that.
    """

    def __init__(
        self,
        name: str,
        work: Callable[[], Iterable[float | None] | None],
        stopping: Stop | None = None,
        failed: Callable[[BaseException], object] | None = None,
    ) -> None:
        super().__init__(name=name, daemon=True)
        self._work, self._failed = work, failed
        self.stopping = stopping or Stop()

    def run(self) -> None:
        """Work. Called by the thread itself."""
        try:
            waits = self._work()
            # A generator has not begun yet.
            if waits is not None and not self.stopping.is_set:
                for secs in waits:
                    if self.stopping.wait(secs):
                        return
        except BaseException as error:
            if self._failed is None:
                raise
            self._failed(error)
        finally:
            # As `threading.Thread` does: they may refer to this thread.
            del self._work, self._failed

    def stop(self, secs: float | None = None) -> None:
        """Tell it to end, and wait until it has, for at most `secs` seconds. May be called again, and before `start`.

        Does not wait in the thread itself, where the garbage collector may close its session: it ends afterwards.
        """
        self.stopping.set()
        join_thread(self, secs)
