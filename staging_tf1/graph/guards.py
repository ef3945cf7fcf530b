"""Refuses to build areas and pipelines where that is a mistake, and names the line.

An area that is built in a loop body, a traced function, another thread's graph, or again in every step does not fail.
It hangs, or the graph grows. So building it raises.
"""

from __future__ import annotations

import contextlib
import re
import threading
from collections.abc import Iterator
from typing import Any

from staging_tf1._tf import FuncGraph, control_flow_context, has_default_graph, own_frames_hidden, tf
from staging_tf1.errors import BuildError, StagingWarning, warn
from staging_tf1.graph.callsite import CallSite, call_site
from staging_tf1.graph.state import counted_state_of

# What to build before a loop and use in it.
_USED_IN_LOOPS = {"staged()": "the tensors that it returns", "CustomRunner": "the tensors of its get_inputs()"}
_KIND_OF_FUNC_GRAPH = {
    "CondBranchFuncGraph": "a branch of tf.cond",
    "WhileCondFuncGraph": "the condition of tf.while_loop",
    "WhileBodyFuncGraph": "the body of tf.while_loop",
}
_DATASET_FUNCTION = re.compile(
    r"Dataset_(flat_map|map|interleave|filter|reduce|scan|batch|group_by_window|group_by_reducer|take_while)_"
)


class _Construction(threading.local):
    """The user's line that is building in this thread. What it builds internally is not a second call."""

    site: CallSite | None = None


_under_way = _Construction()


def check_buildable(caller: str, *, warns_of_repeats: bool = False) -> CallSite:
    """Raise unless `caller` may be built here and now. Add nothing to the graph.

    Args:
      caller: the name that the user wrote, such as "StagingArea", "staged()" or "CustomRunner".
      warns_of_repeats: whether building it again on the same line only warns.

    Returns:
      The user's line.

    Raises:
      BuildError: called in tf.while_loop, tf.cond, tf.function or a Dataset function; in eager mode; in a finalized
        graph; in a thread without a default graph; or again from the same line, if the graph has been run since or its
        session is active.
    """
    site = call_site()
    for check in (_check_thread, _check_context, _check_open):
        check(caller, site)
    repeated = _repeated(caller, site)
    if repeated and not warns_of_repeats:
        raise BuildError(repeated)
    if repeated:
        warn(repeated, StagingWarning)
    return site


@contextlib.contextmanager
def building(caller: str, *, warns_of_repeats: bool = False) -> Iterator[CallSite]:
    """Check a construction with `check_buildable`, and record it in the graph's state if it succeeds.

    Whatever the block builds in this thread is part of the construction: it gets the same line, and may follow a run.
    """
    if _under_way.site is not None:
        _check_context(caller, _under_way.site)
        yield _under_way.site
        return
    site = check_buildable(caller, warns_of_repeats=warns_of_repeats)
    _under_way.site = site
    try:
        with own_frames_hidden():
            yield site
    finally:
        _under_way.site = None
    state = counted_state_of(tf.get_default_graph())
    state.built[site] = state.runs


def _check_context(caller: str, site: CallSite) -> None:
    if tf.executing_eagerly():
        raise BuildError(
            f"{caller} at {site} is called in eager mode, but an area belongs to a graph. Call "
            "tf.disable_v2_behavior() first, or build it within `with tf.Graph().as_default():`."
        )
    inside = _function_kind(tf.get_default_graph()) or _control_flow_kind(tf.get_default_graph())
    if inside:
        raise BuildError(
            f"{caller} at {site} is built inside {inside}. {_cure(caller)} there. (put and get of an area that was "
            "built outside are allowed there.)"
        )


def _cure(caller: str) -> str:
    used = _USED_IN_LOOPS.get(caller, "its put() and get() ops")
    return f"Build it once, before the training loop, and use only {used}"


def _function_kind(graph: Any) -> str | None:
    if not isinstance(graph, FuncGraph):
        # Dataset.map_with_legacy_function makes function graphs that are older than FuncGraph.
        return "a function graph" if graph.building_function else None
    for cls in type(graph).__mro__:
        if cls.__name__ in _KIND_OF_FUNC_GRAPH:
            return _KIND_OF_FUNC_GRAPH[cls.__name__]
    dataset = _DATASET_FUNCTION.match(graph.name)
    if dataset:
        return f"a Dataset.{dataset[1]} function"
    return f"the tf.function {graph.name!r}"


def _control_flow_kind(graph: Any) -> str | None:
    context = control_flow_context(graph)
    while context is not None:
        if context.IsWhileContext():
            return "tf.while_loop"
        if context.IsCondContext():
            return "a branch of tf.cond"
        context = context.outer_context
    return None


def _check_thread(caller: str, site: CallSite) -> None:
    thread = threading.current_thread()
    if thread is not threading.main_thread() and not has_default_graph():
        raise BuildError(
            f"{caller} at {site} is built in thread {thread.name!r}, which does not share your program's default "
            "graph. Build it in the main thread, or within `with graph.as_default():` here."
        )


def _check_open(caller: str, site: CallSite) -> None:
    if tf.get_default_graph().finalized:
        raise BuildError(
            f"{caller} at {site} is built after the graph was finalized (by a MonitoredSession, a Supervisor or "
            f"graph.finalize()). {_cure(caller)}."
        )


def _repeated(caller: str, site: CallSite) -> str:
    """Describe that the same line has built one before, as in a training loop; empty if it has not."""
    graph = tf.get_default_graph()
    state = counted_state_of(graph)
    runs_then = state.built.get(site)
    if runs_then is None:
        return ""
    session = tf.get_default_session()
    if state.runs > runs_then:
        why = "the graph has been run since"
    elif session is not None and session.graph is graph:
        why = "a session of this graph is active, so this looks like a training loop"
    else:
        return ""
    return (
        f"{caller} is built again at {site}: that line built one in this graph before, and {why}. Each one adds ops to "
        f"the graph, and its store starts empty. {_cure(caller)} in the loop."
    )
