"""The only module that imports TensorFlow.

It provides the graph-mode API and the private names that the package uses. Private names of TensorFlow are used in this
module only. Each has a test in ``tests/graph/test_tf.py`` that fails by name when a TensorFlow release moves it.
"""

from __future__ import annotations

import contextlib
import copy
import ctypes
import functools
import logging
import os
import sys
import threading
import weakref
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from importlib import metadata
from typing import Any, NamedTuple

import numpy as np
import tensorflow.compat.v1 as tf
from tensorflow.compat.v2.data import Dataset
from tensorflow.core.framework.dataset_options_pb2 import Options as _DatasetOptions
from tensorflow.core.protobuf.config_pb2 import CallableOptions
from tensorflow.python import pywrap_tfe as _pywrap_tfe
from tensorflow.python.client import pywrap_tf_session as _c_api
from tensorflow.python.client import session as _session
from tensorflow.python.eager import context as _context
from tensorflow.python.framework import config as _config
from tensorflow.python.framework import op_def_registry as _op_def_registry
from tensorflow.python.framework import ops as _ops
from tensorflow.python.framework.func_graph import FuncGraph
from tensorflow.python.ops.ref_variable import RefVariable
from tensorflow.python.ops.resource_variable_ops import ResourceVariable
from tensorflow.python.ops.session_ops import TensorHandle
from tensorflow.python.profiler import trace as _trace
from tensorflow.python.training import checkpoint_utils as _checkpoint_utils
from tensorflow.python.util import deprecation as _deprecation
from tensorflow.python.util import tf_export as _tf_export
from tensorflow.python.util import tf_stack as _tf_stack
from tensorflow.python.util.module_wrapper import TFModuleWrapper as _TFModuleWrapper

from staging_tf1.errors import SpecError, StagingWarning, short_traceback, warn
from staging_tf1.fork import refuse_if_forked

# What other modules import from here that is not defined here.
__all__ = ["Dataset", "FuncGraph", "RefVariable", "ResourceVariable", "TensorHandle", "tf"]


class _OwnDeprecations(logging.Filter):
    """Drops TensorFlow's deprecation warnings about calls of this package, which its users cannot change.

    TensorFlow gives each warning once, so a dropped one is made due again for the program's own calls.
    `deprecation.silence()` of TensorFlow would silence other threads, and the hooks of a MonitoredSession, too.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        message = str(record.msg)
        if message.startswith("`tf.train.start_queue_runners()` was called when no queue runners"):
            return not _is_own_call()
        if message.startswith("Please fix your imports. Module %s has been moved"):
            return not _is_own_call()
        if not (message.startswith("From %s: ") and "deprecated" in message):
            return True
        if not (_is_own_call() or (_MONITORED_SESSION in record.getMessage() and _has_own_runners())):
            return True
        printed = _deprecation._PRINTED_WARNING
        # The newest entry; for a class, also the one before, which is its constructor's.
        if printed and isinstance(printed.popitem()[0], type):
            printed.popitem()
        return False


# Builds of TensorFlow that are installed into the same folder as `tensorflow`.
_OTHER_BUILDS = ("intel-tensorflow", "tensorflow-cpu", "tensorflow-rocm", "tf-nightly", "tf-nightly-cpu")


def _warn_of_two_builds() -> None:
    """Warn if pip has installed one TensorFlow over another, as it does for a package that requires `tensorflow`."""
    found = []
    for name in ("tensorflow", *_OTHER_BUILDS):
        with contextlib.suppress(metadata.PackageNotFoundError):
            found.append((name, metadata.version(name)))
    if len(found) > 1:
        builds = " and ".join(f"{name} {version}" for name, version in found)
        warn(
            f"{builds} are installed in one folder, where each has replaced files of the other. Uninstall them "
            f"(pip uninstall {' '.join(name for name, _ in found)}), and install one. With another build than "
            f"tensorflow, install this package with --no-deps, as in docs/get_started.md.",
            StagingWarning,
        )


_warn_of_two_builds()

# The folders of this package and of TensorFlow.
PACKAGE = os.path.dirname(os.path.abspath(__file__)) + os.sep
TENSORFLOW = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(_session.__file__)))) + os.sep
_MONITORED_SESSION = os.path.join("tensorflow", "python", "training", "monitored_session.py")
# The folders and files of the frames between a deprecated function and the log.
_BETWEEN = (TENSORFLOW, os.path.dirname(logging.__file__) + os.sep, contextlib.__file__, os.path.abspath(__file__))


def _is_own_call() -> bool:
    """Whether the innermost caller outside TensorFlow is this package, or a module of `tf.contrib` that it lends."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_BETWEEN):
        frame = frame.f_back
    lent = str(frame.f_globals.get("__name__")).startswith("tensorflow.contrib.")
    return lent or frame.f_code.co_filename.startswith(PACKAGE)


def _has_own_runners() -> bool:
    """Whether a MonitoredSession calls `start_queue_runners` because of this package's runners."""
    runners = tf.get_collection(tf.GraphKeys.QUEUE_RUNNERS)
    return any(type(runner).__module__.startswith("staging_tf1.") for runner in runners)


class _PrintedTwice(logging.Filter):
    """Drops a line of TensorFlow's own handler if a handler of the root logger writes the same one to the same stream.

    absl gives the root logger such a handler when it is the first to log.
    """

    def __init__(self, handler: Any) -> None:
        super().__init__()
        self._handler = handler

    def filter(self, record: logging.LogRecord) -> bool:
        return not any(
            other.stream is self._handler.stream
            and record.levelno >= other.level
            and other.format(record) == self._handler.format(record)
            for other in logging.root.handlers
            if isinstance(other, logging.StreamHandler)
        )


# Added before the package's first call.
tf.get_logger().addFilter(_OwnDeprecations())
for _handler in tf.get_logger().handlers:
    if isinstance(_handler, logging.StreamHandler):
        _handler.addFilter(_PrintedTwice(_handler))


def list_physical_devices() -> list[bytes]:
    """Return the names of the devices of this machine, without choosing or occupying one."""
    names: list[bytes] = _pywrap_tfe.TF_ListPhysicalDevices()
    return names


def control_flow_context(graph: Any) -> Any:
    """The v1 `tf.cond` or `tf.while_loop` under construction in `graph`, or None."""
    return graph._get_control_flow_context()


def eager_mode() -> Any:
    """A context in which ops run eagerly, whatever graph is the default."""
    return _context.eager_mode()


# The config's operation_timeout_in_ms limits the steps, not what the package itself waits for. 0 would mean that limit.
_NO_LIMIT_MS = 2**31 - 1
_NO_LIMIT = tf.RunOptions(timeout_in_ms=_NO_LIMIT_MS)


def fast_callable(
    session: Any,
    *,
    feeds: Sequence[Any],
    targets: Sequence[Any],
    fetches: Sequence[Any] = (),
    in_caller_thread: bool = False,
    as_configured: bool = False,
) -> Callable[..., Any]:
    """Make a callable that takes one array for each of `feeds`, runs `targets` and returns `fetches` as a list.

    A call takes 18 us. A callable of `Session.make_callable` with a feed list takes 200 us, because it goes through
    `Session.run`. `in_caller_thread` runs the ops in the calling thread. Use it for a few tiny ops: waking a thread of
    the inter-op pool costs more than running them. A blocked op still holds no thread; the thread that unblocks it runs
    the ops that follow. `as_configured`: within the operation timeout of the session's config.
    """
    options = CallableOptions(
        feed=[feed.name for feed in feeds],
        fetch=[tensor.name for tensor in fetches],
        target=[op.name for op in targets],
    )
    if not as_configured:
        options.run_options.timeout_in_ms = _NO_LIMIT_MS
    if in_caller_thread:
        # See RunOptions in config.proto. TensorFlow still uses the pool for graphs that span devices.
        options.run_options.inter_op_thread_pool = -1
    call: Callable[..., Any] = session._make_callable_from_options(_OwnOptions(options))
    return call


class _OwnOptions(NamedTuple):
    """The options of a callable of the package's own, whose calls its session's entry does not see."""

    options: Any


def is_closed(session: Any) -> bool:
    """Whether `Session.close` was called."""
    return bool(session._closed)


def has_one_op_thread(session: Any) -> bool:
    """Whether the config of `session` gives it a single thread for ops."""
    config = session._config
    return config is not None and config.inter_op_parallelism_threads == 1


class _OwnFetches(list[Any]):
    """The fetches of a run that its session's entry does not see, in a list."""


def run_unwrapped(session: Any, fetches: Any, feed_dict: Any | None = None, options: Any | None = None) -> Any:
    """`Session.run` past the entry of the session, and past `wrap_runs`: for the package's own runs.

    The mark is on the fetches: a thread-local one would also apply to what a signal handler runs meanwhile.
    """
    return type(session).run(session, _OwnFetches([fetches]), feed_dict, options or _NO_LIMIT)[0]


def free_run_lock(graph: Any, secs: float = 1.0) -> None:
    """Release the lock of all runs of `graph` if an interrupted run has left it locked. Nobody holds it for so long.

    TensorFlow's `GroupLock` leaves it locked if Ctrl-C comes between two of its lines. The next run would wait forever.
    """
    ready = graph._group_lock._ready
    ready.acquire(timeout=secs)
    with contextlib.suppress(RuntimeError):  # its holder has released it just now
        ready.release()


def sessions_created() -> int:
    """The number of sessions this process has created, including before a fork."""
    return int(_session._python_session_create_counter.get_cell().value())


def abandon(session: Any) -> None:
    """Detach `session` from its C++ session without freeing it. Closing or deleting it then does nothing.

    For forked processes, where freeing a session would join threads that do not exist.
    """
    session._session = None


def never_free_sessions() -> None:
    """Make the deletion of any session free nothing; see `abandon`.

    For a forked process, where the next garbage collection deletes sessions that nothing refers to.
    """
    _session.BaseSession.__del__ = lambda session: None


def close_summary_writers() -> None:
    """Mark the summary writers of TensorFlow's hooks as closed, without flushing.

    For forked processes, where flushing would wait for a writer thread that does not exist.
    """
    for writer in tf.summary.FileWriterCache._cache.values():
        writer.event_writer._closed = True


def abandon_eager_context() -> None:
    """Leak TensorFlow's eager context, which graph mode creates too, so that nothing frees it. See `abandon`."""
    context = _context.context_safe()
    handle = None if context is None else context._context_handle
    if handle is not None:
        # A reference that is never released.
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(handle))


def own_variable(initial: Any, **options: Any) -> Any:
    """Make a resource variable as `tf.Variable` does, past each `tf.variable_creator_scope` and `tf.distribute` scope.

    Such a scope is for the variables of the model. It may return another kind of variable, or several.
    """
    return ResourceVariable(initial, **options)


def without_elements(variable: Any) -> Any:
    """Return another object for a resource variable: ops that a program makes with it get an empty float32 tensor.

    Its op, its initializer, savers, `Session.run`, `eval`, `load` and `assign` are those of `variable`.
    """
    empty = _WithoutElements(variable_def=variable.to_proto())
    empty.holder = variable
    return empty


class _WithoutElements(ResourceVariable):  # type: ignore[misc]
    # The variable.
    holder: Any

    @property
    def dtype(self) -> Any:
        return tf.float32

    @property
    def shape(self) -> Any:
        return tf.TensorShape([0])

    @property
    def initializer(self) -> Any:
        return self.holder.initializer

    @property
    def initial_value(self) -> Any:
        return self.value()

    def value(self) -> Any:
        return tf.zeros([0])

    def read_value(self) -> Any:
        return self.value()

    def assign(self, value: Any, *args: Any, **options: Any) -> Any:
        wanted = self.holder.dtype
        if tf.is_tensor(value) and value.dtype != wanted:
            raise SpecError(
                f"'{self.op.name}'.assign() got a tensor of {value.dtype.name}, expected {wanted.name}. Ops read this "
                f"variable as an empty float32 tensor, but it holds {wanted.name}. Assign the array that "
                f"sess.run(variable) has returned, or call variable.load(array, sess)."
            )
        return self.holder.assign(value, *args, **options)


def _initialize_holders() -> None:
    """Make `tf.train.init_from_checkpoint`, and warm starts with it, initialize what `without_elements` stands for."""
    initialize = _checkpoint_utils._init_from_checkpoint

    @functools.wraps(initialize)
    def initialized(path: Any, assignment_map: Any) -> None:
        pairs = assignment_map.items() if isinstance(assignment_map, Mapping) else assignment_map
        held = [(name, each.holder if isinstance(each, _WithoutElements) else each) for name, each in pairs]
        initialize(path, held if isinstance(assignment_map, list) else dict(held))

    _checkpoint_utils._init_from_checkpoint = initialized


_initialize_holders()


def current_container(graph: Any) -> str:
    """The `tf.container` assigned to new stateful ops of `graph`. Empty for the default container."""
    return str(graph._container)


def is_uninitialized_iterator(error: BaseException) -> bool:
    """Whether a run failed because an iterator has not been initialized in its session. Only the text tells."""
    return isinstance(error, tf.errors.FailedPreconditionError) and "iterator has not been initialized" in str(error)


def deterministic_ops() -> bool:
    """Whether `tf.config.experimental.enable_op_determinism()` was called, or `TF_DETERMINISTIC_OPS` is set.

    TensorFlow reads the variable once, at the latest in this call.
    """
    return bool(_config.is_op_determinism_enabled())


def scope_device() -> str:
    """The device that the current device scopes assign. Empty if they assign none.

    Only creating an op resolves nested scopes and device functions. The op stays in the graph without a device, so any
    session can place it.
    """
    probe = tf.no_op(name="scope_device")
    device = str(probe.device)
    probe._set_device("")
    return device


def is_inside(graph: Any, outer: Any) -> bool:
    """Whether `graph` is `outer`, or the graph of a function (of a cond, a map...) inside it."""
    while graph is not outer:
        if not isinstance(graph, FuncGraph):
            return False
        graph = graph.outer_graph
    return True


def function_def(graph: Any, name: str) -> Any | None:
    """The FunctionDef of `name` in the function library of `graph`; None if the library has no such function.

    `graph.as_graph_def().library` has it too, but serializes the whole graph with its constants, and fails above 2 GiB.
    """
    function = graph._get_function(name)
    return None if function is None else function.definition


def is_stateful(kind: str) -> bool:
    """Whether TensorFlow calls ops of this type stateful: they keep, read or draw something, or have an effect."""
    definition = _op_def_registry.get(kind)
    return definition is not None and bool(definition.is_stateful)


def allows_any_order(node: Any) -> bool:
    """Whether a NodeDef makes a dataset whose elements come in the order in which threads complete them."""
    nothing = tf.AttrValue()
    if node.op == "OptionsDataset":
        options = _DatasetOptions.FromString(node.attr.get("serialized_options", nothing).s)
        return options.WhichOneof("optional_deterministic") is not None and not options.deterministic
    return bool(node.attr.get("deterministic", nothing).s == b"false" or node.attr.get("sloppy", nothing).b)


def has_default_graph() -> bool:
    """Whether this thread is inside a `graph.as_default()` or `with tf.Session():` block."""
    return bool(_ops._default_graph_stack.stack)


def count_runs(graph: Any, state: Any) -> None:
    """Count every later `Session.run` of `graph` in `state.runs`, and refuse it if no session can run in this process.

    `Session.run` takes `graph._session_run_lock()` before it extends the session with new ops. The wrapper is an
    attribute of this graph. Patching the class or `Session.run` would affect other graphs in the process.
    """
    take_lock = type(graph)._session_run_lock

    def counted() -> Any:
        refuse_if_forked("A session")
        state.runs += 1
        return take_lock(graph)

    graph._session_run_lock = counted


def leave_to_close(coord: Any, queue: str) -> list[threading.Thread]:
    """Make `coord` neither wait for the threads that fill a queue, nor report that closing the session cancels them.

    Returns the threads. The one that closes the queue when `coord` stops is not among them.
    """
    fills, closes = f"QueueRunnerThread-{queue}-", f"QueueRunnerThread-{queue}-close_on_stop"
    threads = [
        thread for thread in coord._registered_threads if thread.name.startswith(fills) and thread.name != closes
    ]
    forget_threads(coord, threads)
    if threads:
        coord._clean_stop_exception_types += (tf.errors.CancelledError,)
    return threads


def forget_threads(coord: Any, threads: Iterable[threading.Thread]) -> None:
    """Make `coord` not wait for `threads`."""
    coord._registered_threads = coord._registered_threads.difference(threads)


def call_before_finalize(graph: Any, call: Callable[[], None]) -> None:
    """Make `graph.finalize()` call `call` first. Wraps an attribute of this graph, as `count_runs` does."""
    finalize = graph.finalize

    def finalized() -> None:
        call()
        finalize()

    graph.finalize = finalized


def hide_from_numeric_checks(graph: Any, hidden: Callable[[], Collection[Any]]) -> None:
    """Make `tf.add_check_numerics_ops()` skip the ops of `graph` that `hidden` returns.

    Wraps an attribute of this graph, as `count_runs` does: the function asks the graph for its ops.
    """
    get_operations = type(graph).get_operations

    def shown() -> Any:
        ops = get_operations(graph)
        if sys._getframe(1).f_code.co_name != tf.add_check_numerics_ops.__name__:
            return ops
        skipped = hidden()
        return [op for op in ops if op not in skipped]

    graph.get_operations = shown


def add_control_input(op: Any, control: Any) -> None:
    """Make `op`, which no session has run, wait for the op `control`."""
    op._add_control_input(control)


def replace_input(op: Any, index: int, tensor: Any) -> None:
    """Give `op`, which no session has run, another input in place of the one at `index`. It may be a ref, too.

    A session that has run `op` ignores it. TensorFlow does not check dtypes, cycles or whether the graph is finalized.
    """
    op._update_input(index, tensor)


def original_stack() -> list[tuple[str, int, str]]:
    """The (file, line, function) frames of this thread, outermost first, before AutoGraph's conversion."""
    return [(frame.filename, frame.lineno, frame.name) for frame in _tf_stack.extract_stack()]


class _OwnFrames(_tf_stack.StackTraceFilter):  # type: ignore[misc]
    """Leaves the frames of this package out of the tracebacks of the ops that are made in it."""

    def get_filtered_filenames(self) -> frozenset[str]:
        filenames: frozenset[str] = _own_files() | self.parent.get_filtered_filenames()
        return filenames


@functools.cache
def _own_files() -> frozenset[str]:
    return frozenset(os.path.join(folder, name) for folder, _, names in os.walk(PACKAGE) for name in names)


def own_frames_hidden() -> contextlib.AbstractContextManager[Any]:
    """Return a context for making ops. TensorFlow prints the traceback of an op in each error of it.

    After `tf.debugging.disable_traceback_filtering()` it hides nothing.
    """
    return _OwnFrames() if tf.debugging.is_traceback_filtering_enabled() else contextlib.nullcontext()


@contextlib.contextmanager
def estimator_exports() -> Iterator[None]:
    """Let the package `tensorflow-estimator` export its names with `tf_export`, as up to TensorFlow 2.15."""
    name = "estimator"
    tables = (_tf_export.API_ATTRS, _tf_export.API_ATTRS_V1)
    for table, suffix in zip(tables, ("", "_v1"), strict=True):
        attributes = type(table[_tf_export.TENSORFLOW_API_NAME])
        table[name] = attributes(f"_estimator_api_names{suffix}", f"_estimator_api_constants{suffix}")
    _tf_export.ESTIMATOR_API_NAME = name
    try:
        yield
    finally:
        del _tf_export.ESTIMATOR_API_NAME
        for table in tables:
            del table[name]


def log_no_renamed_names(module: Any) -> None:
    """Stop an API module from logging, at the first use of a name, that the name is now in `tf.compat.v1`."""
    if isinstance(module, _TFModuleWrapper):
        module._tfmw_print_deprecation_warnings = False


_NO_EVENT = contextlib.nullcontext()


def profiled(name: str, **numbers: int) -> Any:
    """Return a context that is an event with these numbers in TensorFlow's profile; it yields None if none is made.

    `tf.profiler.experimental.Trace` costs 0.4 us without a profile, and this 0.25.
    """
    return _trace.Trace(name, **numbers) if is_profiled() else _NO_EVENT


def is_profiled() -> bool:
    """Whether TensorFlow makes a profile now."""
    # A function in TensorFlow 2.21; in 2.18 and before a value that the profiler sets.
    enabled = _trace.enabled
    return bool(enabled() if callable(enabled) else enabled)


# The attribute of a session that holds its entry.
_ENTRY = "_staging_tf1_entry"
# What acts around the runs of all sessions: see `wrap_runs`.
_wrapper: Callable[[Any, Any, Any, Callable[[], Any]], Any] | None = None
# The same, see `wrap_inner_runs`.
_inner_wrapper: Callable[..., Any] | None = None


def enter_runs(session: Any, entry: Any | None) -> None:
    """Let each later run of `session` enter `entry` (a `Chain`), whatever it is called by; None undoes that.

    The class's methods find the entry when they are called. An attribute of the session in place of its `run` would
    miss a `sess.run` that the program has bound before, and each callable that was made before.
    """
    if entry is None:
        vars(session).pop(_ENTRY, None)
    else:
        setattr(session, _ENTRY, entry)


def wrap_runs(wrapper: Callable[[Any, Any, Any, Callable[[], Any]], Any] | None) -> None:
    """Let `wrapper(session, fetches, feed_dict, call)` do every later run of every session; `call()` is the run itself.
    None undoes that.

    Callables of `make_callable` count as runs, except those of TensorFlow's queue runners.
    """
    global _wrapper
    _wrapper = wrapper


def wrap_inner_runs(wrapper: Callable[..., Any]) -> None:
    """Let `wrapper(run, session, fetches, feed_dict, options, run_metadata)` make every later run of every session.

    It is the innermost: an entry and the wrapper of `wrap_runs` come before it. `run(fetches, feed_dict, options,
    run_metadata)` is TensorFlow's own.
    """
    global _inner_wrapper
    _inner_wrapper = wrapper


def unwrapped_session(session: Any) -> Any:
    """Return the session that makes the runs of `session`, which may be a wrapper of `tfdbg` around it."""
    while not isinstance(session, _session.BaseSession) and hasattr(session, "session"):
        session = session.session
    return session


def plain_callable(session: Any, *arguments: Any) -> Callable[..., Any]:
    """`Session.make_callable`, whose callables are not seen as runs unless they have a feed list."""
    made: Callable[..., Any] = _make_callable(session, *arguments)
    return made


def _enters(session: Any) -> bool:
    return _ENTRY in session.__dict__ or _wrapper is not None


@short_traceback
def _enter(session: Any, handle: str | None, fetches: Any, feed_dict: Any, call: Callable[[Any, Any], Any]) -> Any:
    """Do a run: all ways to run a session lead here."""
    entry = session.__dict__.get(_ENTRY)
    if entry is None:
        run = functools.partial(call, fetches, feed_dict)
    elif handle is None:
        run = functools.partial(entry.run, fetches, feed_dict, call)
    else:
        run = functools.partial(entry.run_part, handle, fetches, feed_dict, call)
    return run() if _wrapper is None else _wrapper(session, fetches, feed_dict, run)


class _CallableOfOptions:
    """A callable of `CallableOptions`, as Keras makes them: its calls enter the chain."""

    def __init__(self, session: Any, options: Any, make: Callable[[Any, Any], Any]) -> None:
        self._session, self._make, self._options = session, make, CallableOptions()
        self._options.CopyFrom(options)
        connected = options.tensor_connection
        self._fetches = [*options.fetch, *options.target, *(each.from_tensor for each in connected)]
        # A connection feeds a tensor of the graph.
        self._connected = {each.to_tensor: None for each in connected}
        self.plain = make(session, options)
        # By the names of the puts and feeds that a run has besides.
        self._more: dict[tuple[str, ...], Any] = {}

    def __call__(self, *values: Any, **named: Any) -> Any:
        if not _enters(self._session):
            return self.plain(*values, **named)
        feeds = {**dict(zip(self._options.feed, values)), **self._connected}

        def call(wanted: Any, fed: Any) -> Any:
            added = {tensor: value for tensor, value in fed.items() if tensor not in feeds}
            if wanted is self._fetches and not added:
                return self.plain(*values, **named)
            puts = [] if wanted is self._fetches else wanted[1]
            result = self._with(puts, list(added))(*values, *added.values(), **named)
            return result if wanted is self._fetches else [result]

        return _enter(self._session, None, self._fetches, feeds, call)

    def _with(self, puts: Sequence[Any], feeds: Sequence[Any]) -> Any:
        names = tuple([each.name for each in (*puts, *feeds)])
        if names not in self._more:
            options = CallableOptions()
            options.CopyFrom(self._options)
            options.target.extend(put.name for put in puts)
            options.feed.extend(feed.name for feed in feeds)
            self._more[names] = self._make(self._session, options)
        return self._more[names]


def _patch_sessions() -> Callable[..., Any]:
    """Let the runs of all sessions go through `_enter`. Return the class's own `make_callable`."""
    sessions = _session.BaseSession
    # `run` and `partial_run` call it. The program's own patches of `run`, such as TensorFlow's ProfileContext, come
    # before it, and may be removed at any time.
    run = getattr(sessions._run, _ORIGINAL, sessions._run)
    set_up = getattr(sessions.partial_run_setup, _ORIGINAL, sessions.partial_run_setup)
    make_callable: Callable[..., Any] = getattr(sessions.make_callable, _ORIGINAL, sessions.make_callable)
    of_options = sessions._make_callable_from_options
    make_of_options = getattr(of_options, _ORIGINAL, of_options)

    def inner_run(self: Any, handle: Any, fetches: Any, feed_dict: Any, options: Any, run_metadata: Any) -> Any:
        if _inner_wrapper is None or handle is not None or self._closed:
            return run(self, handle, fetches, feed_dict, options, run_metadata)
        return _inner_wrapper(functools.partial(run, self, None), self, fetches, feed_dict, options, run_metadata)

    @functools.wraps(run)
    def entered_run(self: Any, handle: Any, fetches: Any, feed_dict: Any, options: Any, run_metadata: Any) -> Any:
        if type(fetches) is _OwnFetches:
            return run(self, handle, fetches, feed_dict, options, run_metadata)
        if not _enters(self):
            return inner_run(self, handle, fetches, feed_dict, options, run_metadata)
        call = functools.partial(inner_run, self, handle, options=options, run_metadata=run_metadata)
        return _enter(self, handle, fetches, feed_dict, call)

    @functools.wraps(set_up)
    def entered_set_up(self: Any, fetches: Any, feeds: Any = None) -> Any:
        entry = self.__dict__.get(_ENTRY)
        call = functools.partial(set_up, self, fetches, feeds)
        return call() if entry is None else entry.set_up_parts(fetches, feeds, call)

    @functools.wraps(make_callable)
    def entered_make_callable(self: Any, fetches: Any, feed_list: Any = None, accept_options: bool = False) -> Any:
        plain = make_callable(self, fetches, feed_list, accept_options)
        # With a feed list, it goes through `run`. A queue runner is no step: it may wait for room.
        if feed_list is not None or in_queue_runner():
            return plain

        def step(*options: Any, **named: Any) -> Any:
            if not _enters(self):
                return plain(*options, **named)

            def call(wanted: Any, feeds: Any) -> Any:
                if wanted is fetches and not feeds:
                    return plain(*options, **named)
                return type(self).run(self, _OwnFetches([wanted]), feeds, *options, **named)[0]

            return _enter(self, None, fetches, None, call)

        return step

    @functools.wraps(make_of_options)
    def entered_make_of_options(self: Any, callable_options: Any) -> Any:
        if isinstance(callable_options, _OwnOptions):
            return make_of_options(self, callable_options.options)
        made = _CallableOfOptions(self, callable_options, make_of_options)
        return made.plain if in_queue_runner() else made

    for name, entered, original in (
        ("_run", entered_run, run),
        ("partial_run_setup", entered_set_up, set_up),
        ("make_callable", entered_make_callable, make_callable),
        ("_make_callable_from_options", entered_make_of_options, make_of_options),
    ):
        setattr(entered, _ORIGINAL, original)
        setattr(sessions, name, entered)
    return make_callable


# An attribute of an entered method: TensorFlow's. A second import of this module must not enter twice.
_ORIGINAL = "_staging_tf1_original"
_make_callable = _patch_sessions()


# TensorFlow 2.18 and later convert to a number in two steps, so a number out of range wraps as with numpy 1.
as_feed_array = _session.numpy_compat.np_asarray if hasattr(_session, "numpy_compat") else np.asarray
# Compares a Python number with what it becomes in the dtype of the tensor that it is fed to.
converted_number = _session._convert_to_numpy_obj


class ParsedFetches(NamedTuple):
    """What `Session.run` makes of fetches."""

    # TensorFlow's own; its `build_results` makes the result.
    handler: Any
    # In the form that the C API takes.
    outputs: list[Any]
    targets: list[Any]


def parsed_fetches(session: Any, fetches: Any) -> ParsedFetches:
    """Parse `fetches` as `Session.run` does for a run that feeds none of them."""
    handler = _session._FetchHandler(session.graph, fetches, {})
    outputs = [tensor._as_tf_output() for tensor in handler.fetches()]
    return ParsedFetches(handler, outputs, [op._c_op for op in handler.targets()])


def output_of(tensor: Any) -> Any:
    """The key of `tensor` among the feeds of `run_parsed`."""
    return tensor._as_tf_output()


def has_handle_feeds(graph: Any) -> bool:
    """Whether `graph` has placeholders for `tf.get_session_tensor`, whose values may have to change devices."""
    return bool(graph._handle_feeders)


def is_default(options: Any) -> bool:
    """Whether a buffer of the C API holds RunOptions as a run without options has them."""
    return options is None or not _c_api.TF_GetBuffer(options)


def run_parsed(session: Any, parsed: ParsedFetches, feeds: dict[Any, Any], options: Any, run_metadata: Any) -> Any:
    """Run what has been parsed, and raise the errors that `Session.run` raises.

    Args:
      session: the session.
      parsed: its fetches.
      feeds: arrays, by `output_of` their tensors.
      options: a buffer of the C API, or None.
      run_metadata: a buffer of the C API, or None.
    """

    def call() -> Any:
        session._extend_graph()
        return session._call_tf_sessionrun(options, feeds, parsed.outputs, parsed.targets, run_metadata)

    return parsed.handler.build_results(session, session._do_call(call))


class CompiledRun:
    """Parsed fetches and the tensors to feed, as a callable of the C API. It does not keep its session alive."""

    def __init__(self, session: Any, parsed: ParsedFetches, fed: Sequence[Any]) -> None:
        handler = parsed.handler
        self._session, self._handler = weakref.ref(session), handler
        made: Any = fast_callable(
            session, feeds=fed, targets=handler.targets(), fetches=handler.fetches(), as_configured=True
        )
        # TensorFlow's object refers to the session.
        self._number, made._handle = made._handle, None

    def __call__(self, session: Any, arrays: Sequence[Any], run_metadata: Any) -> Any:
        """Do what `run_parsed` does, without options. `arrays` are in the order of the fed tensors."""
        if not session.graph.finalized:
            # Raises an error if an op has changed since it has run.
            session._extend_graph()
        run = _c_api.TF_SessionRunCallable
        return self._handler.build_results(
            session, session._do_call(run, session._session, self._number, arrays, run_metadata)
        )

    def __del__(self) -> None:
        session = self._session()
        if session is not None and session._session is not None and not session._closed:
            _c_api.TF_SessionReleaseCallable(session._session, self._number)


def replaces_inner_run(session: Any) -> bool:
    """Whether the class of `session` replaces the inner steps of `Session.run`."""
    kind = type(session)
    return any(getattr(kind, name) is not getattr(_session.BaseSession, name) for name in ("_do_run", "_do_call"))


_RUNNER_THREAD = "QueueRunnerThread-"


def in_queue_runner() -> bool:
    """Whether the current thread is one of TensorFlow's queue runners."""
    return threading.current_thread().name.startswith(_RUNNER_THREAD)


def runner_threads(runner: Any, session: Any) -> int | None:
    """The number of threads of TensorFlow's queue runner that enqueue in `session`; None if it was never started."""
    number: int | None = runner._runs_per_session.get(session)
    return number


@contextlib.contextmanager
def reopened(graph: Any) -> Iterator[None]:
    """Allow ops to be added to a finalized graph that sessions use. A session adds new ops in its next run."""
    finalized = graph.finalized
    graph._unsafe_unfinalize()
    try:
        yield
    finally:
        if finalized:
            # The class's method, because the graph's own may have been wrapped.
            type(graph).finalize(graph)


# An attribute of a saver: those that `saver_without` has made of it.
_REST = "_staging_tf1_rest"


def saver_without(saver: Any, variables: Sequence[Any]) -> Any:
    """Return a saver that restores what `saver` does, except `variables`. Adds ops to a finalized graph, too.

    A saver made from a `SaverDef` is returned as it is, because it knows ops only, no variables.
    """
    if saver._var_list is None:
        return saver
    kept: dict[tuple[str, ...], Any] = vars(saver).setdefault(_REST, {})
    key = tuple(variable.op.name for variable in variables)
    if key not in kept:
        listed = saver._var_list
        rest = kept[key] = copy.copy(saver)
        if isinstance(listed, dict):
            rest._var_list = {name: value for name, value in listed.items() if not _is_one_of(value, variables)}
        else:
            rest._var_list = [value for value in listed if not _is_one_of(value, variables)]
        rest.saver_def, rest._is_built, rest._allow_empty = None, False, True
        graph = variables[0].graph
        with graph.as_default(), reopened(graph), tf.control_dependencies(None), tf.device(None):
            rest.build()
    return kept[key]


def _is_one_of(value: Any, variables: Sequence[Any]) -> bool:
    # Variables compare by value.
    return any(value is variable for variable in variables)


def with_inner_graphs(graph: Any) -> list[Any]:
    """Return the graph of a `tf.function`, and those of the loops and branches in it. A `Defun` has none."""
    return [graph, *(function.graph for function in graph._functions.values() if hasattr(function, "graph"))]


def op_stack(op: Any) -> list[tuple[str, int, str]]:
    """The (file, line, function) frames in which `op` was made, outermost first; empty for an imported op."""
    return [(frame.filename, frame.lineno, frame.name) for frame in op.traceback or ()]
