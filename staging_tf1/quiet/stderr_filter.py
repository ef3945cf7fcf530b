"""`StderrFilter`: sends what this process writes to its stderr through the filter process, for some time.

TF_CPP_MIN_LOG_LEVEL alone does not help: TensorFlow 2.18 and later log a few lines before they read it, and level 3,
which hides two harmless errors, hides all others, too.
"""

from __future__ import annotations

import functools
import os
import select
import sys
import threading
from collections.abc import Callable, Iterator, MutableMapping
from contextlib import contextmanager
from typing import Any

from staging_tf1.quiet import filter_process

LEVEL_NAME = "TF_CPP_MIN_LOG_LEVEL"
# Holds the level that this package has set. Child processes can tell it from a choice of the user's.
OWN_LEVEL_NAME = "STAGING_TF1_LOG_LEVEL"
# Errors and worse.
_LEVEL = "2"
# How long the filter process may take to forward what is left.
_ACK_SECS = 5.0


class StderrFilter:
    """Filters file descriptor 2 while `active`. The process that filters ends with this one, or after `end`.

    Raises:
      AttributeError, NotImplementedError: the system is not POSIX.
      OSError: stderr is closed, or the process cannot be started.
    """

    @classmethod
    def start(cls, environment: MutableMapping[str, str] = os.environ) -> StderrFilter | None:
        """Make TensorFlow log errors only, and return a filter for what it logs all the same.

        Returns None if the user has chosen a level, which then holds, or if there can be no filter.
        """
        level = environment.get(LEVEL_NAME)
        if level is not None and level != environment.get(OWN_LEVEL_NAME):
            return None
        environment[LEVEL_NAME] = environment[OWN_LEVEL_NAME] = _LEVEL
        try:
            return cls()
        except (AttributeError, OSError, NotImplementedError):
            # No stderr, no process to spare, or no POSIX: the program must run all the same, with the noise.
            return None

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._depth = 0
        self._owner = os.getpid()
        self._stderr = os.dup(2)
        self._text: int | None
        read, self._text = os.pipe()
        self._acks, ack = os.pipe()
        try:
            self._child: int | None = _spawn(read, ack)
        finally:
            os.close(read)
            os.close(ack)

    @contextmanager
    def active(self) -> Iterator[None]:
        """Filter what is written to stderr in this block, by Python or C++. May be nested, and used by threads."""
        self._change(+1)
        try:
            yield
        finally:
            self._change(-1)

    def around_first(self, owner: Any, method: str, *, last: bool = False) -> None:
        """Filter during the first call of a method of a class. With `last`, end the filter after that."""
        original = getattr(owner, method)

        @functools.wraps(original)
        def first(*args: Any, **kwargs: Any) -> Any:
            if getattr(owner, method) is first:
                setattr(owner, method, original)
            try:
                with self.active():
                    return original(*args, **kwargs)
            finally:
                if last:
                    self.end()

        setattr(owner, method, first)

    def end(self) -> None:
        """End the filter process. Later blocks filter nothing."""
        with self._lock:
            if self._text is not None and os.getpid() == self._owner and not self._depth:
                os.close(self._text)
                os.close(self._acks)
                os.close(self._stderr)
                self._text = None

    def _change(self, by: int) -> None:
        # A forked child writes to whatever it has inherited.
        if os.getpid() != self._owner:
            return
        with self._lock:
            if self._text is None:
                return
            self._depth += by
            if by > 0 and self._depth == 1:
                _flush()
                os.dup2(self._text, 2)
            elif by < 0 and self._depth == 0:
                _flush()
                os.dup2(self._stderr, 2)
                self._wait_until_forwarded()

    def _wait_until_forwarded(self) -> None:
        """Keep the order: what this process writes next goes to stderr directly."""
        if self._child is not None:
            os.waitpid(self._child, 0)
            self._child = None
        assert self._text is not None
        try:
            os.write(self._text, filter_process.END_OF_PERIOD)
        except OSError:
            # The filter process was killed.
            return
        if select.select([self._acks], [], [], _ACK_SECS)[0]:
            os.read(self._acks, 1)


def _spawn(read: int, ack: int) -> int:
    """Start the filter process, with `read` as stdin and `ack` as stdout."""
    # In a session of its own, because Ctrl-C goes to all processes of the terminal's foreground group.
    start: Callable[..., int] = functools.partial(
        os.posix_spawn,
        sys.executable,
        [sys.executable, "-I", "-S", filter_process.__file__],
        os.environ,
        file_actions=[(os.POSIX_SPAWN_DUP2, read, 0), (os.POSIX_SPAWN_DUP2, ack, 1)],
    )
    return start(setsid=True)


def _flush() -> None:
    # None without a console.
    if sys.stderr is not None:
        sys.stderr.flush()
