"""`StagingSession`: a monitored session that runs staged pipelines."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any

from staging_tf1._tf import tf
from staging_tf1.arguments import flag, folder, function, instance, seconds, stall_secs_or_default
from staging_tf1.cluster.cluster import Cluster, await_workers
from staging_tf1.errors import UnclosedWarning, short_traceback, warn
from staging_tf1.fork import has_lost_tensorflow, refuse_if_forked
from staging_tf1.graph.callsite import call_site
from staging_tf1.graph.placement import absent_devices_named
from staging_tf1.lifecycle.cluster_session import (
    check_model,
    check_without_cluster,
    checkpoint_interval,
    cluster_session,
)
from staging_tf1.lifecycle.hook import SessionHook
from staging_tf1.lifecycle.monitored import (
    check_monitored,
    check_run,
    check_training_cluster,
    checked_feeds,
    checked_hooks,
    prepared_scaffold,
)
from staging_tf1.lifecycle.stepper import make_stepper
from staging_tf1.lifecycle.steps import NO_TURN
from staging_tf1.signals import interruption
from staging_tf1.watch.program import ending_runs
from staging_tf1.watch.stats import PipelineStats


class StagingSession:
    """A `tf.train.MonitoredTrainingSession` that starts, steps and stops staged pipelines in the right order.

    It finalizes the graph, initializes or restores the variables, runs the local init, clears the areas, starts the
    feed threads and warms up lockstep pipelines. Then it runs your steps. Leaving the `with` block for any reason stops
    and joins the threads and closes the session.

    At the end of the data `run` raises `tf.errors.OutOfRangeError`. As with MonitoredSession, the `with` block treats
    this as a normal end. An exception of a feed thread is raised unchanged from your `run`.

    In a process that was forked while the session is open, each method raises `staging.errors.ForkedError`. Leaving the
    `with` block there writes and stops nothing, because the session belongs to the parent.

    Args:
      checkpoint_dir: folder to restore checkpoints from and save them to; None or "" disables checkpoints.
      hooks: further `tf.train.SessionRunHook`s.
      config: a `tf.ConfigProto`.
      stop_grace_period_secs: seconds to wait at the end for threads to return.
      stall_secs: seconds after which a step that waits for input is logged, with the most likely cause; 0 disables the
        report. None uses the environment variable STAGING_TF1_STALL_SECS, or else 30.
      stall_raises: whether such a step also raises `staging.errors.StallError`, which carries the report. A step in
        lockstep that reads its source raises it after the read.
      save_on_stop: whether Ctrl-C and SIGTERM save a checkpoint in `checkpoint_dir` before they end the program, as in
        `StagingHook`. In a cluster, the chief saves.
      cluster: the `Cluster` to train in. The chief initializes, restores and saves. A chief that restarts while the
        others train continues with their model, and initializes nothing. At the end it waits for the other workers.
      **monitored: the other arguments of `tf.train.MonitoredTrainingSession`: master, is_chief, scaffold,
        chief_only_hooks, save_checkpoint_secs, save_checkpoint_steps, save_summaries_steps, save_summaries_secs,
        log_step_count_steps, max_wait_secs, summary_dir, save_graph_def.

    Raises:
      CheckpointError: the checkpoint is damaged or belongs to another program. `run` raises it if a MonitoredSession
        restores there, to recover from a failure (`tf.errors.AbortedError`).
      ClusterError: a task of the cluster does not answer; see `Cluster`.
      ForkedError: the process was forked after TensorFlow sessions had run in it.
      TypeError, ValueError: an argument is invalid or unknown.

    >>> import numpy as np
    >>> with tf.Graph().as_default():
    ...     x = staged(ArraySource(np.arange(6), batch_size=2, epochs=1))
    ...     double = 2 * x
    ...     with StagingSession() as sess:
    ...         while not sess.should_stop():
    ...             print(sess.run(double))
    [0 2]
    [4 6]
    [ 8 10]
    """

    # On the class, because __del__ also runs if the __init__ of a subclass fails before this one.
    _session: Any = None

    @short_traceback
    def __init__(
        self,
        *,
        checkpoint_dir: str | os.PathLike[str] | None = None,
        hooks: Sequence[Any] | None = None,
        config: Any | None = None,
        stop_grace_period_secs: float = 10.0,
        stall_secs: float | None = None,
        stall_raises: bool = False,
        save_on_stop: bool = True,
        cluster: Cluster | None = None,
        **monitored: Any,
    ) -> None:
        caller = "StagingSession"
        self._made_at = call_site()
        join_secs = seconds(caller, "stop_grace_period_secs", stop_grace_period_secs)
        stall_secs = stall_secs_or_default(caller, stall_secs)
        stall_raises = flag(caller, "stall_raises", stall_raises)
        # TensorFlow 1 programs pass "" if their flag is not set.
        if isinstance(checkpoint_dir, str) and not checkpoint_dir:
            checkpoint_dir = None
        if checkpoint_dir is not None:
            checkpoint_dir = folder(caller, "checkpoint_dir", checkpoint_dir, tf.io.gfile.get_registered_schemes())
        hooks = checked_hooks("hooks", hooks)
        instance(caller, "config", config, tf.ConfigProto | None, "a tf.ConfigProto")
        check_monitored(monitored, inspect.signature(StagingSession).parameters)
        cluster = check_training_cluster(caller, cluster, monitored)
        save_on_stop = flag(caller, "save_on_stop", save_on_stop)
        refuse_if_forked(self)
        # Only the chief saves and restores.
        is_chief = monitored.get("is_chief", True) if cluster is None else cluster.is_chief
        self._hook = SessionHook(
            by_hand=cluster is None,
            stop_grace_period_secs=join_secs,
            stall_secs=stall_secs,
            stall_raises=stall_raises,
            save_on_stop=save_on_stop and bool(checkpoint_dir) and is_chief and any(checkpoint_interval(monitored)),
        )
        self._cluster, self._scaffold = cluster, None
        restores_from = checkpoint_dir if is_chief else None
        scaffold = prepared_scaffold(monitored.pop("scaffold", None), restores_from)
        options = {
            "checkpoint_dir": checkpoint_dir,
            "hooks": [self._hook, *hooks],
            "config": config,
            "stop_grace_period_secs": join_secs,
            "scaffold": scaffold,
        }
        with ending_runs(), self._hook.creating(), absent_devices_named(tf.get_default_graph()):
            self._session = self._monitored_session(options, monitored)

    def _monitored_session(self, options: dict[str, Any], monitored: dict[str, Any]) -> Any:
        """Create the session, in the cluster if there is one."""
        if self._cluster is not None:
            self._scaffold = options["scaffold"]
            return cluster_session(self._cluster, **options, monitored=monitored)
        if not monitored.get("master"):
            check_without_cluster(tf.get_default_graph())
        return tf.train.MonitoredTrainingSession(**options, **monitored)

    def __enter__(self) -> StagingSession:
        return self

    @short_traceback
    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool:
        if has_lost_tensorflow():
            self._session = None
            return False
        if kind is not None and issubclass(kind, (tf.errors.OutOfRangeError, StopIteration)):
            kind = None
        self._close(kind)
        if error is not None:
            # The coordinator has raised it again, and added its own frames.
            error.__traceback__ = traceback
        # As in MonitoredSession, the end of the data is not an error.
        return kind is None

    @property
    def graph(self) -> Any:
        """The graph that the session runs."""
        return self._open().graph

    @short_traceback
    def run(
        self,
        fetches: Any,
        feed_dict: Any | None = None,
        options: Any | None = None,
        run_metadata: Any | None = None,
    ) -> Any:
        """Run one step with hooks, like `tf.Session.run`.

        A run takes a batch only if its fetches depend on a staged tensor that is not fed.

        Raises:
          TypeError, ValueError: an argument is invalid.
          tf.errors.OutOfRangeError: there are no more batches.
          Exception: what the source raised, with its own type and traceback.
        """
        if feed_dict is not None or options is not None or run_metadata is not None:
            check_run(feed_dict, options, run_metadata)
        session = self._open()
        try:
            in_turn = self._hook.in_turn
            with NO_TURN if in_turn is None else in_turn(fetches, feed_dict):
                return session.run(fetches, feed_dict=feed_dict, options=options, run_metadata=run_metadata)
        except Exception as error:
            self._raise_cause(error)
            raise

    @short_traceback
    def run_step_fn(self, step_fn: Callable[..., Any]) -> Any:
        """Like `tf.train.MonitoredSession.run_step_fn`."""
        function("StagingSession.run_step_fn()", "step_fn", step_fn, "a function of one argument, step_context")
        session = self._open()
        try:
            return session.run_step_fn(step_fn)
        except Exception as error:
            self._raise_cause(error)
            raise

    def make_callable(self, fetches: Any, feed_list: Sequence[Any] | None = None) -> Callable[..., Any]:
        """Return a fast function that runs `fetches` without hooks, like `tf.Session.make_callable`.

        A call takes a few microseconds more than with TensorFlow's function; `run` takes a hundred more. The function
        belongs to the current `tf.Session`: make a new one after a recovery (`tf.errors.AbortedError`).

        Args:
          fetches: as in `run`.
          feed_list: the tensors whose values the function takes as arguments, in this order.

        Returns:
          A function of the values of `feed_list`. It raises what `run` raises.
        """
        self._open()
        if feed_list is not None:
            feed_list = checked_feeds(feed_list)
        step = make_stepper(self._hook.runtime.steps, fetches, feed_list)

        @short_traceback
        def call(*values: Any) -> Any:
            self._open()
            try:
                return step(*values)
            except Exception as error:
                self._raise_cause(error)
                raise

        return call

    def should_stop(self) -> bool:
        """Whether the loop should end, as in `tf.train.MonitoredSession.should_stop`; True once closed."""
        refuse_if_forked(self)
        return self._session is None or bool(self._session.should_stop())

    def drain(self) -> None:
        """Stop reading from the sources. Steps take what has been read, then raise `tf.errors.OutOfRangeError`.

        Several towers can each be run to their end separately.
        """
        self._open()
        self._hook.drain()

    def stats(self) -> list[PipelineStats]:
        """Return the figures of every pipeline so far; after the end, the final ones."""
        return self._hook.stats()

    @short_traceback
    def close(self) -> None:
        """Stop and join the feed threads and close the session. May be called twice.

        Raises:
          Exception: an exception of a feed thread that no `run` has raised yet.
        """
        refuse_if_forked(self)
        self._close(None)

    def __del__(self) -> None:
        # At the end of the program the modules may be gone, and then their names are None.
        if self._session is not None and has_lost_tensorflow is not None and not has_lost_tensorflow():
            warn(
                f"StagingSession (made at {self._made_at}) was never closed. Use it in a `with` block, or close() it.",
                UnclosedWarning,
            )

    def __str__(self) -> str:
        return f"StagingSession (made at {self._made_at})"

    def _open(self) -> Any:
        refuse_if_forked(self)
        if self._session is None:
            raise RuntimeError(
                f"StagingSession (made at {self._made_at}) is closed. Create a new one; it can run the same graph."
            )
        return self._session

    def _close(self, kind: type[BaseException] | None) -> None:
        if self._session is None:
            return
        session, self._session = self._session, None
        # Before the close, but checked for errors after it: a source may still fail while its threads are stopped.
        runs = self._hook.runs
        try:
            if kind is not None:
                # MonitoredSession does not call the hooks' end() after an error.
                self._hook.stop()
            elif self._cluster is not None:
                # So that the checkpoint at the end holds their positions.
                self._wait_for_workers(session)
            session.__exit__(kind, None, None)
        except Exception as raised:
            if kind is None or all(raised is not run.error for run in runs):
                raise

    def _wait_for_workers(self, session: Any) -> None:
        cluster = self._cluster
        assert cluster is not None
        try:
            await_workers(cluster, lambda: check_model(cluster, self._hook.session, self._scaffold))
        except BaseException as error:
            self._hook.stop()
            session.__exit__(type(error), error, error.__traceback__)
            raise

    def _raise_cause(self, error: Exception) -> None:
        """Raise a feed thread's own exception in place of the step's."""
        if isinstance(error, tf.train.NanLossDuringTrainingError):
            self._hook.runtime.feeding.accounts.note_last_step(error)
        interrupted = interruption(error)
        if interrupted is not None:
            raise interrupted from None
        cause = self._hook.error()
        if cause is not None and cause is not error:
            raise cause from cause.__cause__  # not from the step's error
