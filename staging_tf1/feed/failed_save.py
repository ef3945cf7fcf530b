"""Turns the errors of a full disk, or a limit of file sizes, into `CheckpointError`, with the folder and a cure.

TensorFlow raises `OutOfRangeError` for a file that becomes too large. Every training loop takes that for the end of the
data, and a MonitoredSession ends as if all were well.
"""

from __future__ import annotations

import contextlib
import numbers
import os
from typing import Any

from staging_tf1._tf import tf
from staging_tf1.errors import CheckpointError
from staging_tf1.replacing import free_text

NO_ROOM = (tf.errors.ResourceExhaustedError, tf.errors.OutOfRangeError)


def after_failed_save(session: Any, save_path: Any, global_step: Any, reason: str) -> CheckpointError:
    """Return the error for a save that raised one of `NO_ROOM`. Remove its folder of unfinished files.

    Args:
      session: its session.
      save_path: the argument of the saver's `save`.
      global_step: the argument of the saver's `save`; None if it was not given.
      reason: what TensorFlow says, on one line.
    """
    prefix = os.fspath(save_path)
    if global_step is not None:
        known = isinstance(global_step, numbers.Integral)
        prefix += f"-{global_step if known else tf.train.global_step(session, global_step)}"
    with contextlib.suppress(tf.errors.OpError):
        tf.io.gfile.rmtree(f"{prefix}_temp")
    folder = os.path.dirname(prefix) or os.curdir
    return CheckpointError(
        f"checkpoint '{prefix}' cannot be saved in the folder '{folder}'{free_text(folder)}: {reason}. Free space "
        f"there, keep fewer checkpoints (tf.train.Saver(max_to_keep=)), or raise the limit of file sizes (ulimit -f). "
        f"The checkpoints before it are complete."
    )
