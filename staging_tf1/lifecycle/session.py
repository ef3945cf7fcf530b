"""`StagingSession`: a monitored session that runs staged pipelines."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any

from staging_tf1._tf import tf
from staging_tf1.arguments import flag, folder, function, output_file, seconds
from staging_tf1.errors import UnclosedWarning
from staging_tf1.fork import has_lost_tensorflow, refuse_if_forked
from staging_tf1.graph.callsite import call_site
from staging_tf1.lifecycle.checkpoint import guarded_scaffold
from staging_tf1.lifecycle.hook import StagingHook
from staging_tf1.lifecycle.interrupt import is_ctrl_c
from staging_tf1.lifecycle.monitored import check_config, check_monitored, check_run, checked_feeds, checked_hooks
from staging_tf1.lifecycle.stall import stall_secs_or_default
from staging_tf1.lifecycle.stats import PipelineStats
from staging_tf1.lifecycle.stepper import make_stepper


class StagingSession:
    """A `tf.train.MonitoredTrainingSession` that starts, steps and stops staged pipelines in the only right order.

    The graph is finalized, variables are initialised or restored, local init, areas cleared, feed threads started,
    lockstep pipelines warmed up; then come your steps. At the end of the data `run` raises
    `tf.errors.OutOfRangeError`, which the `with` block takes for a normal end, as MonitoredSession does. What a
    feed thread raises is raised from your `run`, as it was. On the way out, for whatever reason, feeding stops, the
    threads are joined by name, and the session is closed.

    Args:
      checkpoint_dir: the folder that checkpoints are restored from and saved to; None and "" save none.
      hooks: further `tf.train.SessionRunHook`s.
      config: a `tf.ConfigProto`.
      stop_grace_period_secs: seconds that threads are given to return, at the end.
      stall_secs: seconds after which a step that waits for input is reported in the log, with the most likely cause;
        0 reports none. 30 if None, or what the environment variable STAGING_TF1_STALL_SECS says.
      stall_raises: whether such a step raises `staging.errors.StallError`, which carries the report, as well. The
        source of a lockstep pipeline is then read in a thread, for which the step waits.
      trace_file: where a timeline of sources, puts, gets and steps is written when the session closes, for
        chrome://tracing or https://ui.perfetto.dev. It costs each run a second, small run.
      **monitored: everything else that `tf.train.MonitoredTrainingSession` takes: master, is_chief, scaffold,
        chief_only_hooks, save_checkpoint_secs, save_checkpoint_steps, save_summaries_steps, save_summaries_secs,
        log_step_count_steps, max_wait_secs, summary_dir, save_graph_def.

    In a process that is forked while the session is open it can only be left: each method raises
    `staging.errors.ForkedError`, and leaving the `with` block writes and stops nothing, for it is the parent's.

    Raises:
      CheckpointError: a checkpoint is damaged or another program's. It is raised from `run` when it turns up there,
        after a failure (`tf.errors.AbortedError`) that a MonitoredSession recovers from.
      ForkedError: the process was forked after TensorFlow sessions had run in it.
      TypeError, ValueError: an argument of the wrong kind, or one that MonitoredTrainingSession does not take.
      OSError: `trace_file` cannot be written.

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

    # On the class, because __del__ runs even where the __init__ of a subclass has failed before this one.
    _session: Any = None

    def __init__(
        self,
        *,
        checkpoint_dir: str | os.PathLike[str] | None = None,
        hooks: Sequence[Any] | None = None,
        config: Any | None = None,
        stop_grace_period_secs: float = 10.0,
        stall_secs: float | None = None,
        stall_raises: bool = False,
        trace_file: str | os.PathLike[str] | None = None,
        **monitored: Any,
    ) -> None:
        what = "StagingSession"
        self._made_at = call_site()
        join_secs = seconds(what, "stop_grace_period_secs", stop_grace_period_secs)
        stall_secs = stall_secs_or_default(what, stall_secs)
        stall_raises = flag(what, "stall_raises", stall_raises)
        # TensorFlow 1 programs give "" where a flag of theirs was not set.
        if isinstance(checkpoint_dir, str) and not checkpoint_dir:
            checkpoint_dir = None
        if checkpoint_dir is not None:
            checkpoint_dir = folder(what, "checkpoint_dir", checkpoint_dir)
        hooks = checked_hooks("hooks", hooks)
        check_config(config)
        check_monitored(monitored)
        if trace_file is not None:
            trace_file = output_file(what, "trace_file", trace_file)
        refuse_if_forked(self)
        self._hook = StagingHook(
            join_secs=join_secs, stall_secs=stall_secs, stall_raises=stall_raises, trace_file=trace_file
        )
        # Only the chief restores.
        restores_from = checkpoint_dir if monitored.get("is_chief", True) else None
        scaffold = guarded_scaffold(monitored.pop("scaffold", None), restores_from)
        self._session = tf.train.MonitoredTrainingSession(
            checkpoint_dir=checkpoint_dir,
            hooks=[self._hook, *hooks],
            config=config,
            stop_grace_period_secs=join_secs,
            scaffold=scaffold,
            **monitored,
        )

    def __enter__(self) -> StagingSession:
        return self

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
        # As MonitoredSession: the end of the data ends the block, everything else is raised.
        return kind is None

    @property
    def graph(self) -> Any:
        """The graph that the session runs."""
        return self._open().graph

    def run(
        self,
        fetches: Any,
        feed_dict: Any | None = None,
        options: Any | None = None,
        run_metadata: Any | None = None,
    ) -> Any:
        """Runs one step, with hooks, as `tf.Session.run`.

        A run whose fetches do not depend on a staged tensor takes no batch, and neither does one that feeds it.

        Raises:
          TypeError, ValueError: the arguments are not those of `tf.Session.run`.
          tf.errors.OutOfRangeError: there are no more batches.
          Exception: what the source raised, with its own type and traceback.
        """
        check_run(feed_dict, options, run_metadata)
        session = self._open()
        try:
            steps = self._hook.steps
            with steps.alone(steps.demand(fetches, feed_dict)):
                return session.run(fetches, feed_dict=feed_dict, options=options, run_metadata=run_metadata)
        except Exception as error:
            self._raise_cause(error)
            raise

    def run_step_fn(self, step_fn: Callable[..., Any]) -> Any:
        """`tf.train.MonitoredSession.run_step_fn`."""
        function("StagingSession.run_step_fn()", "step_fn", step_fn, "a function of one argument, step_context")
        session = self._open()
        try:
            return session.run_step_fn(step_fn)
        except Exception as error:
            self._raise_cause(error)
            raise

    def make_callable(self, fetches: Any, feed_list: Sequence[Any] | None = None) -> Callable[..., Any]:
        """The fast path: a function that runs `fetches`, as `tf.Session.make_callable`, without hooks.

        It costs a few microseconds more than TensorFlow's own, where `run` costs a hundred. It belongs to the
        present `tf.Session`: after a recovery (`tf.errors.AbortedError`) make a new one.

        Args:
          fetches: as in `run`.
          feed_list: tensors whose values the function takes as its arguments, in this order.

        Returns:
          A function of the values of `feed_list`, which raises what `run` raises.
        """
        self._open()
        if feed_list is not None:
            feed_list = checked_feeds(feed_list)
        step = make_stepper(self._hook.session, self._hook.steps, self._hook.clock, fetches, feed_list)

        def call(*values: Any) -> Any:
            refuse_if_forked(self)
            try:
                return step(*values)
            except Exception as error:
                self._raise_cause(error)
                raise

        return call

    def should_stop(self) -> bool:
        """Whether the loop should end, as `tf.train.MonitoredSession.should_stop`; True once closed."""
        refuse_if_forked(self)
        return self._session is None or bool(self._session.should_stop())

    def drain(self) -> None:
        """Stops reading from the sources: steps take what has been read, then get `tf.errors.OutOfRangeError`.

        With several towers each of them can be run to its end on its own.
        """
        self._open()
        self._hook.drain()

    def stats(self) -> list[PipelineStats]:
        """Figures of every pipeline so far; after the end, those of the end."""
        return self._hook.stats()

    def close(self) -> None:
        """Stops feeding, joins the threads, closes the session. Closing twice is fine.

        Raises:
          Exception: what a feed thread raised and no `run` has raised yet.
        """
        refuse_if_forked(self)
        self._close(None)

    def __del__(self) -> None:
        if self._session is not None and not has_lost_tensorflow():
            warnings.warn(
                f"StagingSession (made at {self._made_at}) was never closed. Use it in a `with` block, or close() it.",
                UnclosedWarning,
                stacklevel=2,
            )

    def __str__(self) -> str:
        return f"StagingSession (made at {self._made_at})"

    def _open(self) -> Any:
        refuse_if_forked(self)
        if self._session is None:
            raise RuntimeError(
                f"StagingSession (made at {self._made_at}) is closed. Make a new one; the same graph can be run again."
            )
        return self._session

    def _close(self, kind: type[BaseException] | None) -> None:
        if self._session is None:
            return
        session, self._session = self._session, None
        # Looked at only afterwards: a source may still fail while its threads are being stopped.
        runs = self._hook.runs
        try:
            if kind is not None:
                # MonitoredSession does not call the hooks' end() after an error.
                self._hook.stop()
            session.__exit__(kind, None, None)
        except Exception as raised:
            if kind is None or all(raised is not run.error for run in runs):
                raise

    def _raise_cause(self, error: Exception) -> None:
        """Raises a feed thread's own exception in place of what it did to the step."""
        if is_ctrl_c(error):
            raise KeyboardInterrupt from None
        cause = self._hook.error()
        if cause is not None and cause is not error:
            raise cause from cause.__cause__  # not from what it did to the step
