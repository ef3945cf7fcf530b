"""The one room that imports TensorFlow: the graph-mode API and the private names that we rely on.

Every private name is listed here and nowhere else, and each has a canary in ``tests/test_tf.py`` that fails
by name when a TensorFlow release moves it.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow.compat.v1 as tf
from tensorflow.compat.v2.data import Dataset
from tensorflow.core.protobuf.config_pb2 import CallableOptions
from tensorflow.python.client import session as _session
from tensorflow.python.eager import context as _context
from tensorflow.python.framework import ops as _ops
from tensorflow.python.framework.func_graph import FuncGraph
from tensorflow.python.util import tf_stack as _tf_stack

__all__ = [
    "Dataset",
    "FuncGraph",
    "abandon",
    "abandon_eager_context",
    "call_before_finalize",
    "close_summary_writers",
    "control_flow_context",
    "count_runs",
    "current_container",
    "fast_callable",
    "has_default_graph",
    "is_closed",
    "never_free_sessions",
    "original_stack",
    "scope_device",
    "sessions_created",
    "tf",
]


def control_flow_context(graph: Any) -> Any:
    """The v1 `tf.cond` or `tf.while_loop` that `graph` is being built in, or None."""
    return graph._get_control_flow_context()


def fast_callable(
    session: Any,
    *,
    feeds: Sequence[Any],
    targets: Sequence[Any],
    fetches: Sequence[Any] = (),
    in_caller_thread: bool = False,
) -> Callable[..., Any]:
    """A callable that feeds numpy arrays to `feeds`, in order, runs `targets` and returns a list for `fetches`.

    `Session.make_callable` with a feed list goes through `Session.run`: 200 us a call, where this takes 18.

    Args:
      in_caller_thread: for a few tiny ops: to wake the threads of the inter-op pool costs more than to run them. An op
        that waits holds no thread even so; what comes after it is run by the thread that ended the wait.
    """
    options = CallableOptions(
        feed=[feed.name for feed in feeds],
        fetch=[tensor.name for tensor in fetches],
        target=[op.name for op in targets],
    )
    if in_caller_thread:
        # See RunOptions in config.proto; where a graph spans devices, TensorFlow takes the pool all the same.
        options.run_options.inter_op_thread_pool = -1
    call: Callable[..., Any] = session._make_callable_from_options(options)
    return call


def is_closed(session: Any) -> bool:
    """Whether `Session.close` has been called."""
    return bool(session._closed)


def sessions_created() -> int:
    """How many sessions this process has made so far; those before a fork count."""
    return int(_session._python_session_create_counter.get_cell().value())


def abandon(session: Any) -> None:
    """Makes `session` forget what it stands for, without freeing it: closing and deleting it then do nothing.

    For a forked process: what is freed there joins threads that do not exist.
    """
    session._session = None


def never_free_sessions() -> None:
    """Makes the deletion of a session free nothing, whoever made the session; see `abandon`.

    For a forked process: a session whose start has failed is known to nobody, and is deleted at the next garbage
    collection.
    """
    _session.BaseSession.__del__ = lambda session: None


def close_summary_writers() -> None:
    """Closes the writers that TensorFlow's hooks share, without a word to the threads that do their work.

    For a forked process: to flush one waits for its thread.
    """
    for writer in tf.summary.FileWriterCache._cache.values():
        writer.event_writer._closed = True


def abandon_eager_context() -> None:
    """Lets nobody free TensorFlow's eager context, which graph mode makes, too; see `abandon`."""
    context = _context.context_safe()
    handle = None if context is None else context._context_handle
    if handle is not None:
        # One reference more than anybody will ever give back.
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(handle))


def current_container(graph: Any) -> str:
    """The `tf.container` that new stateful ops of `graph` get; empty for the default one."""
    return str(graph._container)


def scope_device() -> str:
    """The device that the scopes around the caller ask for; empty for none.

    Only an op tells what nested scopes and device functions come to. It stays in the graph, on no device,
    where any session can place it.
    """
    probe = tf.no_op(name="scope_device")
    device = str(probe.device)
    probe._set_device("")
    return device


def has_default_graph() -> bool:
    """Whether this thread stands in a `with graph.as_default():` block (or one that implies it)."""
    return bool(_ops._default_graph_stack.stack)


def count_runs(graph: Any, on_run: Callable[[], None]) -> None:
    """Calls `on_run` at every later `Session.run` of `graph`, and of no other graph.

    `Session.run` takes `graph._session_run_lock()` before it extends the session with new ops. The wrapper is
    an attribute of this one graph: a change of the class, or of `Session.run`, would reach other people's
    code.
    """
    take_lock = type(graph)._session_run_lock

    def counted() -> Any:
        on_run()
        return take_lock(graph)

    graph._session_run_lock = counted


def call_before_finalize(graph: Any, call: Callable[[], None]) -> None:
    """Makes `graph.finalize()` call `call` first; an attribute of this one graph, like that of `count_runs`."""
    finalize = graph.finalize

    def finalized() -> None:
        call()
        finalize()

    graph.finalize = finalized


def original_stack() -> list[tuple[str, int, str]]:
    """This thread's (file, line, function) frames, outermost first, with AutoGraph's copies mapped back."""
    return [(frame.filename, frame.lineno, frame.name) for frame in _tf_stack.extract_stack()]
