"""Turns the errors of restoring a checkpoint into `CheckpointError`, with the file and a cure.

TensorFlow raises `OutOfRangeError` for a truncated file. Every training loop takes that for the end of the data, and a
MonitoredSession ends before the first step without an error.
"""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Iterator
from typing import Any, NoReturn

from staging_tf1._tf import call_before_finalize, tf
from staging_tf1.errors import CheckpointError
from staging_tf1.graph.dependencies import ancestors
from staging_tf1.graph.state import state_of

# Not about the file, but about a server or memory. A MonitoredSession recovers from some of them.
_NOT_THE_FILE = (
    tf.errors.AbortedError,
    tf.errors.UnavailableError,
    tf.errors.CancelledError,
    tf.errors.DeadlineExceededError,
    tf.errors.ResourceExhaustedError,
)
_MISSING_KEY = re.compile(r"Key (\S+) not found in checkpoint")
_BUILT_AT = re.compile(r"Graph execution error:.*?^Node: [^\n]*", re.DOTALL | re.MULTILINE)
# An attribute of a saver.
_GUARDED = "_staging_tf1_guarded"
# Enough to recognize TensorFlow's message.
_MOST_CHARACTERS = 300


def guard_savers(graph: Any) -> None:
    """Make the savers in the graph's collection raise CheckpointError, when the graph is finalized.

    By then a MonitoredSession has chosen its saver, but has not restored.
    """
    state = state_of(graph)
    if not state.guards_savers:
        state.guards_savers = True
        call_before_finalize(graph, lambda: _guard_all(graph))


def check_state_file(folder: str) -> None:
    """Check the file that names the latest checkpoint. If it is damaged, TensorFlow silently begins at step 0.

    Raises:
      CheckpointError: the file exists, but names no checkpoint.
    """
    path = os.path.join(folder, "checkpoint")
    if not tf.io.gfile.exists(path):
        return
    try:
        if tf.train.get_checkpoint_state(folder) is not None:
            return
        reason = "it is not a text of the expected format"
    except (ValueError, tf.errors.OpError) as error:
        reason = shortened(error)
    prefixes = sorted(name.removesuffix(".index") for name in glob.glob(os.path.join(glob.escape(folder), "*.index")))
    others = f" The folder has {', '.join(map(repr, map(os.path.basename, prefixes)))}." if prefixes else ""
    raise CheckpointError(
        f"'{path}', which names the latest checkpoint of its folder, is damaged: {reason}.{others} Rewrite it with "
        f"tf.train.update_checkpoint_state('{folder}', PATH_OF_A_CHECKPOINT), or delete it to train from the start."
    )


def _guard_all(graph: Any) -> None:
    for saver in graph.get_collection(tf.GraphKeys.SAVERS):
        guard_saver(saver)


def guard_saver(saver: Any) -> None:
    """Make `restore` of this saver raise CheckpointError."""
    if hasattr(saver, _GUARDED):
        return
    setattr(saver, _GUARDED, True)
    restore = saver.restore

    def guarded(sess: Any, save_path: Any) -> None:
        _check_shapes(saver, sess.graph, os.fspath(save_path))
        try:
            restore(sess, save_path)
        except _NOT_THE_FILE:
            raise
        except (tf.errors.OpError, ValueError) as error:
            _explain(os.fspath(save_path), error)

    saver.restore = guarded


def _check_shapes(saver: Any, graph: Any, path: str) -> None:
    """Check that each variable has the same shape in the checkpoint. TensorFlow would silently change its shape.

    Raises:
      CheckpointError: a variable has a different shape; the message names the first one.
    """
    try:
        saved = tf.train.load_checkpoint(path).get_variable_to_shape_map()
    except Exception:
        # Exceptions of many types say that the file is damaged. Restoring it raises, too.
        return
    for name, shape in _restored(saver, graph):
        if name in saved and not shape.is_compatible_with(saved[name]):
            raise CheckpointError(
                f"checkpoint '{path}' does not fit this graph: variable '{name}' is {saved[name]} in the checkpoint, "
                f"{shape.as_list()} in the graph. {_OWN_FOLDER}"
            )


def _restored(saver: Any, graph: Any) -> Iterator[tuple[str, Any]]:
    """Yield the name in the checkpoint and the declared shape of each unpartitioned variable of `saver`."""
    restore = saver.saver_def.restore_op_name if saver.saver_def is not None else ""
    if not restore:
        return
    for op in ancestors([graph.get_operation_by_name(restore)]):
        if op.type != "RestoreV2":
            continue
        names, slices = (tf.get_static_value(tensor) for tensor in op.inputs[1:3])
        for name, part, output in zip(names, slices, op.outputs, strict=True):
            for assign in _assigns(output):
                if not part and "shape" in assign.inputs[0].op.node_def.attr:
                    yield name.decode(), tf.TensorShape(assign.inputs[0].op.get_attr("shape"))


def _assigns(tensor: Any) -> Iterator[Any]:
    for op in tensor.consumers():
        if op.type in ("AssignVariableOp", "Assign"):
            yield op
        elif op.type == "Identity":
            yield from _assigns(op.outputs[0])


def _explain(path: str, error: Exception) -> NoReturn:
    key = _MISSING_KEY.search(str(error))
    if key is not None:
        raise CheckpointError(
            f"checkpoint '{path}' has no variable '{key[1]}', which this graph has. It belongs to another program, or "
            f"the graph has changed. {_OWN_FOLDER}"
        ) from error
    if isinstance(error, tf.errors.InvalidArgumentError):
        raise CheckpointError(
            f"checkpoint '{path}' does not fit this graph: {shortened(error)}. {_OWN_FOLDER}"
        ) from error
    older = _checkpoint_before(path)
    names = f"'{os.path.dirname(path)}', {older!r}" if older else "FOLDER, PATH_OF_AN_OLDER_CHECKPOINT"
    raise CheckpointError(
        f"checkpoint '{path}' is damaged or incomplete: {shortened(error)}. Return to an older checkpoint with "
        f"tf.train.update_checkpoint_state({names}), or train from the start in an empty folder."
    ) from error


_OWN_FOLDER = (
    "Set checkpoint_dir to an empty folder or one with checkpoints of this program, or build the graph as it was when "
    "the checkpoint was saved."
)


def _checkpoint_before(path: str) -> str | None:
    """Return the checkpoint that was saved before `path` in the same folder, if its files still exist."""
    try:
        state = tf.train.get_checkpoint_state(os.path.dirname(path))
    except (ValueError, tf.errors.OpError):
        return None
    listed = list(state.all_model_checkpoint_paths) if state is not None else []
    before = listed[: listed.index(path)] if path in listed else []
    kept = [prefix for prefix in before if tf.train.checkpoint_exists(prefix)]
    return kept[-1] if kept else None


def shortened(error: Exception) -> str:
    """Return what TensorFlow says of a checkpoint, on one line."""
    # The saver and TensorFlow prepend an explanation and the line that built the op to the kernel's message.
    text = str(getattr(error, "message", error)).rpartition("Original error:")[2]
    first = next((line for line in _BUILT_AT.sub("", text).splitlines() if line.strip()), "").strip()
    return f"{type(error).__name__}: {first[:_MOST_CHARACTERS]}".rstrip(".")
