"""Copies for a checkpoint: makes the savers of a graph copy all variables first, and then let the workers go on.

A saver writes one variable after another. A ref variable is written as it is at that moment, beside others that are a
few steps older. So each value is copied on the device of its variable while all workers stand still (`pause.py`); the
same run then lets them go on, and writes the copies. In the graph, because the copies would otherwise have to be kept
on the servers between two runs, and would stay there if the chief were killed.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from staging_tf1._tf import add_control_input, call_before_finalize, replace_input, tf
from staging_tf1.cluster.cluster import Cluster
from staging_tf1.cluster.ledger import find_op, key, table_op
from staging_tf1.cluster.pause import PAUSE, resume_op
from staging_tf1.graph.dependencies import copies_after
from staging_tf1.graph.state import state_of

_SAVES = frozenset({"Save", "SaveSlices", "SaveV2"})
_BROKEN = "the pause for this checkpoint was broken"


class Copies:
    """The savers of one graph that write copies.

    Attributes:
      pause: the placeholder of the present pause's text; "" is none, and then nothing is let go on.
      savers: the name scopes of these savers.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.savers: set[str] = set()
        with tf.control_dependencies(None), tf.device(None), tf.device(f"{cluster.own_device}/device:CPU:0"):
            self.pause = tf.placeholder_with_default(tf.constant(""), [], name="staging_pause")

    def add(self, scope: str, saves: list[Any]) -> None:
        """Make the ops of one saver write copies, if all its values can be copied."""
        values = [(op, index, tensor) for op in saves for index, tensor in enumerate(op.inputs) if _is_value(op, index)]
        if not all(_is_snapshot(tensor) or _can_copy(tensor) for _, _, tensor in values):
            return
        with tf.control_dependencies(None), tf.name_scope(f"{scope}/staging_copies/"):
            copies: dict[str, Any] = {}
            for op, index, tensor in values:
                copy = copies.setdefault(tensor.name, tensor if _is_snapshot(tensor) else _copy_of(tensor))
                if copy is not tensor:
                    replace_input(op, index, copy)
            go_on = self._go_on(tf.group(*(copy.op for copy in copies.values())))
        for op in saves:
            add_control_input(op, go_on)
        self.savers.add(scope)

    def _go_on(self, copied: Any) -> Any:
        """Return an op that lets the workers go on. It fails if one of them has not waited for the copies."""
        with tf.device(None), tf.device(self._cluster.shared_device), tf.control_dependencies([copied]):
            pause = copies_after([], [self.pause])[0]
            with tf.control_dependencies([pause]):
                present = find_op(PAUSE)
            none = tf.equal(pause, "")
            held = tf.raw_ops.Assert(condition=none | tf.equal(present, pause), data=[tf.constant(_BROKEN)])
            with tf.control_dependencies([held]):
                removed = tf.raw_ops.LookupTableRemoveV2(
                    table_handle=table_op(), keys=[tf.where(none, key(""), key(PAUSE))]
                )
            with tf.control_dependencies([removed]):
                return resume_op(self._cluster.num_workers)


def copy_before_saving(cluster: Cluster, graph: Any) -> None:
    """Make the savers of the chief's graph write copies, when the graph is finalized."""
    if not (cluster.is_distributed and cluster.is_chief and cluster.save_copies):
        return
    ops = state_of(graph).ops
    if not (ops.copies_are_due or graph.finalized):
        ops.copies_are_due = True
        call_before_finalize(graph, lambda: _copy_all(cluster, graph))


def _copy_all(cluster: Cluster, graph: Any) -> None:
    if graph.finalized:
        # A session that is created again finalizes its graph again.
        return
    by_saver = defaultdict(list)
    for op in graph.get_operations():
        if is_save(op):
            by_saver[saver_of(op)].append(op)
    with graph.as_default():
        copies = Copies(cluster)
        for scope, saves in by_saver.items():
            copies.add(scope, saves)
    state_of(graph).ops.copies = copies


def copies_of(graph: Any) -> Copies | None:
    """Return the savers of `graph` that write copies; None if there are none."""
    return state_of(graph).ops.copies


def is_save(op: Any) -> bool:
    """Whether `op` writes a checkpoint."""
    return op.type in _SAVES


def saver_of(op: Any) -> str:
    """Return the name scope of the saver that `op` belongs to."""
    return str(op.name.rpartition("/")[0])


def saved_from(graph: Any, variable: Any) -> list[Any]:
    """Return the tensors that the savers of `graph` write for a resource variable."""
    inputs = [tensor for op in graph.get_operations() if is_save(op) for tensor in op.inputs]
    return [tensor for tensor in inputs if any(read is variable.handle for read in _read_by(tensor).inputs)]


def is_broken(error: Exception) -> bool:
    """Whether a saver failed because a worker has not waited for the copies."""
    return isinstance(error, tf.errors.InvalidArgumentError) and _BROKEN in str(error)


def _is_value(op: Any, index: int) -> bool:
    """Whether that input of a saver's op is a value. The first ones are the file, the names and the slices."""
    return index >= (2 if op.type == "Save" else 3)


def _is_snapshot(tensor: Any) -> bool:
    """Whether later steps do not change the value: they copy a resource variable that has been read."""
    return _read_by(tensor).type in ("ReadVariableOp", "Const", "LookupTableExportV2")


def _read_by(tensor: Any) -> Any:
    """Return the op that computes the value."""
    while tensor.op.type == "Identity":
        tensor = tensor.op.inputs[0]
    return tensor.op


def _can_copy(tensor: Any) -> bool:
    dtype = tensor.dtype.base_dtype
    return bool(dtype in (tf.bool, tf.string) or dtype.is_floating or dtype.is_complex or dtype.is_integer)


def _copy_of(tensor: Any) -> Any:
    with tf.device(None), tf.device(tensor.device), tf.get_default_graph().colocate_with(tensor.op):
        return tf.raw_ops.DeepCopy(x=tensor)
