"""`staging-tf1 run --auto-stage`: stages the graphs of a program that knows nothing of it."""

from __future__ import annotations

import atexit
import sys
import weakref
from typing import Any

from staging_tf1._tf import before_any_finalize, before_first_runs, is_closed, tf
from staging_tf1.auto.meaning import meaning_of
from staging_tf1.auto.stage import AutoOptions
from staging_tf1.errors import AutoStageError, BuildError
from staging_tf1.graph.callsite import call_site
from staging_tf1.lifecycle.auto import on_adopted, stage_default_graph, train_ops_of, watch_sessions
from staging_tf1.lifecycle.runtime import SessionRuntime

_PREFIX = "staging-tf1 run --auto-stage:"
_tried: weakref.WeakSet[Any] = weakref.WeakSet()
# Graphs that a session has run before they had a train op.
_early: weakref.WeakSet[Any] = weakref.WeakSet()
_said: list[str] = []


def stage_programs(*, changes: bool) -> None:
    """Stage each graph with a train op before it first runs. Called once, before the program.

    A refusal is one line, and the program runs as it was.

    Args:
      changes: whether to stage. If not, only the reports are printed.
    """
    options = AutoOptions(dry_run=not changes)
    # Before sessions are served.
    before_first_runs(lambda session: _try(session.graph, options, session.sess_str))
    # A MonitoredSession, a Supervisor and an Estimator finalize the graph before they create the session.
    before_any_finalize(lambda graph: _try(graph, options))
    watch_sessions()
    on_adopted(_print_gain_at_the_end)
    atexit.register(_name_early_graphs)


def _try(graph: Any, options: AutoOptions, server: Any = None) -> None:
    if graph in _tried or meaning_of(graph) is not None or graph.finalized or graph.building_function:
        return
    if not train_ops_of(graph):
        _early.add(graph)
        return
    _tried.add(graph)
    _early.discard(graph)
    if server:
        _say(f"not staged: the session runs on server {tf.compat.as_str(server)}, where areas outlive it.")
        return
    try:
        with graph.as_default():
            report = stage_default_graph(None, options, call_site())
    except (AutoStageError, BuildError) as error:
        _say(f"not staged: {error}")
        return
    if options.dry_run:
        _say(str(report))
    else:
        _say(f"{len(report.moved)} ops run ahead of the step, from {', '.join(report.sources)}")


def _name_early_graphs() -> None:
    early = [graph for graph in list(_early) if train_ops_of(graph)]
    for _ in early:
        _say("not staged: the program ran a session before it had built its train op.")
    if _early and not (early or _said):
        _say("not staged: no graph has a train op, as optimizers make.")


def _print_gain_at_the_end(runtime: SessionRuntime) -> None:
    """Print what was gained, when the session is closed or the program ends."""
    said: list[bool] = []

    def print_gain() -> None:
        if said:
            return
        said.append(True)
        try:
            gains = [] if runtime.gain is None else runtime.gain.gains()
        except (tf.errors.OpError, RuntimeError):
            return
        for gain in gains:
            _say(f"{gain.name}: {gain}, in the last {gain.batches} steps.")

    runtime.before_close = print_gain
    session = weakref.ref(runtime.session)

    def at_exit() -> None:
        open_session = session()
        if open_session is not None and not is_closed(open_session):
            print_gain()

    atexit.register(at_exit)


def _say(text: str) -> None:
    _said.append(text)
    print(_PREFIX, text, file=sys.stderr, flush=True)
