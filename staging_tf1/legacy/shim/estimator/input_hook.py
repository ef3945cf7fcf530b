"""`tf.data.experimental.CheckpointInputPipelineHook`, which TensorFlow 2.16 removed."""

from __future__ import annotations

import os
from types import SimpleNamespace
from typing import Any

from staging_tf1._tf import tf

# The collection of the iterators of a graph.
_ITERATORS = "iterators"
# What a step has fetched may be the global step before it.
_MORE_STEPS = 1_000_000


class CheckpointInputPipelineHook(tf.train.SessionRunHook):  # type: ignore[misc]
    """Saves the iterators of an Estimator's training as often as its variables, in their own files; restores them.

    Raises the error of TensorFlow, in the first step, for a dataset whose state it cannot save.
    """

    # It is no CheckpointSaverHook: with one of those, an Estimator does not save its variables itself.
    def __init__(self, estimator: Any, external_state_policy: str | None = None) -> None:
        config = estimator.config
        prefix = f"input_{config.task_type}_{config.task_id}" if config.num_worker_replicas > 1 else "input"
        self._policy = external_state_policy
        self._folder, self._path = estimator.model_dir, os.path.join(estimator.model_dir, f"{prefix}.ckpt")
        self._latest = f"checkpoint_{prefix}"
        self._timer = tf.train.SecondOrStepTimer(config.save_checkpoints_secs, config.save_checkpoints_steps)
        self._has_begun = False

    def begin(self) -> None:
        make = tf.data.experimental.make_saveable_from_iterator
        handles = [SimpleNamespace(_iterator_resource=handle) for handle in tf.get_collection(_ITERATORS)]
        self._saver = tf.train.Saver([make(handle, self._policy) for handle in handles])
        self._global_step = tf.train.get_or_create_global_step()

    def before_run(self, run_context: Any) -> Any:
        if not self._has_begun:
            # Not in after_create_session: another hook initializes the iterators there, before or after this one.
            self._has_begun = True
            self._restore_or_save(run_context.session)
        return tf.train.SessionRunArgs(self._global_step)

    def after_run(self, run_context: Any, run_values: Any) -> None:
        if self._timer.should_trigger_for_step(run_values.results + _MORE_STEPS):
            step = run_context.session.run(self._global_step)
            if self._timer.should_trigger_for_step(step):
                self._save(run_context.session, step)

    def end(self, session: Any) -> None:
        step = session.run(self._global_step)
        if step != self._timer.last_triggered_step():
            self._save(session, step)

    def _restore_or_save(self, session: Any) -> None:
        if (path := tf.train.latest_checkpoint(self._folder, self._latest)) is not None:
            self._saver.restore(session, path)
        else:
            self._save(session, session.run(self._global_step))

    def _save(self, session: Any, step: int) -> None:
        self._timer.update_last_triggered_step(step)
        self._saver.save(session, self._path, step, self._latest, write_meta_graph=False)
