"""`Connection`: runs a few ops on one task, with a time limit, and connects again when that task has restarted."""

from __future__ import annotations

import re
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from staging_tf1._tf import tf

# A MonitoredSession begins again after these.
RECOVERED = (tf.errors.AbortedError, tf.errors.UnavailableError)
# How TensorFlow lists them if a step has several errors. It raises the first one, whichever that is.
_ONE_OF_SEVERAL = re.compile(r"^(ABORTED|UNAVAILABLE): ", re.MULTILINE)
# Seconds that one run may take. What such runs look up takes milliseconds.
_RUN_SECS = 5.0
_CONNECT_SECS = 2.0


# The hosts and ports to which each address of a task has led. A name may lead elsewhere later.
met: dict[str, set[tuple[Any, ...]]] = {}


def connect(address: str) -> None:
    """Connect to "host:port" and disconnect. Raises OSError if that fails."""
    host, _, port = address.rpartition(":")
    with socket.create_connection((host.strip("[]"), int(port)), _CONNECT_SECS) as connected:
        met.setdefault(address, set()).add(connected.getpeername()[:2])


def is_refused(target: str) -> bool:
    """Return whether nothing listens at "grpc://host:port"; False if in doubt."""
    try:
        connect(target.removeprefix("grpc://"))
    except ConnectionRefusedError:
        return True
    except OSError:
        return False
    return False


# Sessions that could not be closed, because their server was gone. They are kept, so that they are never collected.
_left_behind: list[Any] = []


class Connection:
    """A graph and a session on one task. Thread-safe.

    Args:
      target: the address of the server, "grpc://host:port".
      device: its task, "/job:ps/task:0".
    """

    def __init__(self, target: str, device: str) -> None:
        self.target, self.device = target, device
        self._graph = tf.Graph()
        self._session: Any = None
        self._answered = time.monotonic()
        # In the middle of a run, the garbage collector may close a session that writes to the ledger.
        self._lock = threading.RLock()

    @contextmanager
    def building(self) -> Iterator[None]:
        """Ops made in this context are on the task."""
        with self._graph.as_default(), tf.device(f"{self.device}/device:CPU:0"):
            yield

    def run(self, fetches: Any, feed: dict[Any, Any] | None = None) -> Any:
        """Run ops. The first run connects, and so does a run after an error.

        Raises:
          tf.errors.OpError: the server does not answer within seconds.
        """
        with self._lock:
            if time.monotonic() - self._answered > _RUN_SECS and is_refused(self.target):
                # After this process stood still, a run would wait for a server that has ended since.
                self._close()
            was_connected = self._session is not None
            try:
                result = self._connected().run(fetches, feed)
                self._answered = time.monotonic()
                return result
            except (tf.errors.AbortedError, tf.errors.UnavailableError, tf.errors.NotFoundError):
                self._close()
                if not was_connected:
                    raise
                # The server has restarted, and does not know the session any more.
                return self._connected().run(fetches, feed)
            except tf.errors.DeadlineExceededError as error:
                self._close()
                # A MonitoredSession begins again after this one.
                message = f"The server at {self.target.removeprefix('grpc://')} does not answer."
                raise tf.errors.UnavailableError(None, None, message) from error
            except BaseException:
                self._close()
                raise

    def wait(self, fetches: Any, secs: float) -> Any:
        """Run ops that may wait. Return None after `secs` seconds; otherwise as `run`."""
        with self._lock:
            try:
                return self._connected().run(fetches, options=tf.RunOptions(timeout_in_ms=int(1000 * secs)))
            except tf.errors.DeadlineExceededError:
                return None
            except BaseException:
                self._close()
                raise

    def close(self) -> None:
        """Close the session. A later run connects again."""
        with self._lock:
            self._close()

    def _connected(self) -> Any:
        if self._session is None:
            if is_refused(self.target):
                # TensorFlow itself would try for as long as a run may take.
                raise tf.errors.UnavailableError(None, None, f"Nothing listens at {self.target}.")
            self._session = tf.Session(self.target, graph=self._graph, config=bounded_config(self.device))
        return self._session

    def _close(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            if is_refused(self.target):
                # The close would wait for a server that is gone, and so would that of a session without references.
                _left_behind.append(session)
                return
            try:
                session.close()
            except tf.errors.OpError:
                # The server is gone, and with it the session.
                return


def recovered_from(error: Exception) -> Exception | None:
    """Turn `error` into one that makes MonitoredSession recreate its session; None if it is of another kind.

    A step that a lost server interrupts may have been cancelled first.

    >>> both = "=====\\nCANCELLED: RecvFromRemoteAsync is cancelled.\\nABORTED: Session handle is not found.\\n====="
    >>> type(recovered_from(tf.errors.CancelledError(None, None, both))).__name__
    'AbortedError'
    """
    if isinstance(error, RECOVERED):
        lost: Exception = error
        return lost
    if isinstance(error, tf.errors.CancelledError) and _ONE_OF_SEVERAL.search(error.message):
        aborted: Exception = tf.errors.AbortedError(error.node_def, error.op, error.message)
        return aborted
    return None


def bounded_config(device: str, secs: float = _RUN_SECS) -> Any:
    """Return the options of a session that uses one task only, and whose runs fail after `secs`."""
    config = tf.ConfigProto(device_filters=[device], operation_timeout_in_ms=int(1000 * secs))
    # A few ops that run once or now and then: optimizing them costs the server more than running them.
    config.graph_options.rewrite_options.disable_meta_optimizer = True
    config.graph_options.optimizer_options.opt_level = tf.OptimizerOptions.L0
    return config
