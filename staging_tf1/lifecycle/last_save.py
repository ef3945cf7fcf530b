"""`LastSave`: one more checkpoint when Ctrl-C or SIGTERM ends the training."""

from __future__ import annotations

from typing import Any

from absl import logging

from staging_tf1._tf import tf
from staging_tf1.feed.checkpoint import guard_restores
from staging_tf1.graph.state import state_of


class LastSave:
    """Repeats the last call of the saver that saves the checkpoints, for the step that the training has reached.

    After an exception, a MonitoredSession calls no `end` of its hooks, so the one that saves does not save either. Our
    hook cannot see it, nor its folder. But it has called its saver, at the first step at the latest. So it is the first
    saver of the session. Others save parts of the model, or the best one so far.
    """

    def __init__(self) -> None:
        # The saver and its arguments: the path, the step, and the others.
        self._last: tuple[Any, Any, Any, tuple[Any, ...], dict[str, Any]] | None = None

    @classmethod
    def of(cls, graph: Any) -> LastSave:
        """Return that of a new session of `graph`. It knows of the saves from now on."""
        guard_restores()
        last_save = state_of(graph).savers.last_save = cls()
        return last_save

    def note(self, saver: Any, path: Any, step: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Note a call that has saved."""
        if self._last is not None:
            first, known, before, *_ = self._last
            # Without a step, the path may have it.
            if saver is not first or (path != known and (before is not None or step is not None)):
                return
        self._last = saver, path, step, args, kwargs

    def save(self, session: Any) -> None:
        """Save, unless the step has been saved. Call it between two steps."""
        if self._last is None:
            logging.warning("The training was stopped, and nothing was saved: no saver of its graph has saved before.")
            return
        saver, path, before, args, kwargs = self._last
        step = None if before is None else int(session.run(tf.train.get_global_step(session.graph)))
        if step is None or step != before:
            path = saver.save(session, path, step, *args, **kwargs)
        logging.warning("Saved %s; start again to continue.", path if step is None else f"at step {step}")
