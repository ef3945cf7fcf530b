"""A staging area between two small queues, so that it can be closed, cancelled and timed out.

`Stage` and `Unstage` hold a thread of the inter-op pool while they wait, and know neither end nor cancellation
(https://github.com/tensorflow/tensorflow/issues/12980, 39006). Queue ops do. So the area never has to wait::

    put:  values computed -> slots.dequeue  -> Stage   -> tokens.enqueue
    get:  tokens.dequeue  -> Unstage -> slots.enqueue  -> the tensors

Only the tokens are ever closed. A get that has its element would fail of closed slots, and its batch be lost; so
whoever cancels gives each put that waits a place, which then fails of the closed tokens (`Sink.cancel`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from staging_tf1._tf import tf
from staging_tf1.graph.areas import StagingArea
from staging_tf1.graph.meter import Meter
from staging_tf1.graph.sink import Repair


class TokenArea:
    """An area with `slots` (free places) and `tokens` (elements present), both FIFO queues of scalars.

    With `labels`, an element's token holds a string that goes with it: it stays on the host, where an area on a GPU
    could not hold it. With `counts`, it holds for how many batches of the source the element stands: itself, and those
    that were skipped just before it.
    """

    def __init__(
        self,
        dtypes: Sequence[Any],
        shapes: Sequence[Any],
        *,
        capacity: int,
        device: str | None,
        counts: bool = False,
        labels: bool = False,
    ) -> None:
        self.capacity = capacity
        # To be fed with whatever enqueues the token; None where every element stands for itself only.
        self.count: Any = None
        # What every get waits for; a run that depends on it takes an element.
        self.token: Any = None
        self._labels = labels
        with tf.control_dependencies(None):
            with on(device):
                # No capacity of its own: a Stage that waited would hold a thread of the pool.
                self.area = StagingArea(dtypes, shapes)
            # A dequeue on another device than its Unstage could be followed by a failed step and no Unstage.
            with tf.device(None), tf.device(host_of(self.area.device)):
                # Neither has a bound, so that only who wants an element or a place ever waits: the places are counted,
                # but a repair may give one back once too often.
                self.slots = tf.FIFOQueue(-1, tf.int32, [], name="slots")
                if counts:
                    self.count = tf.placeholder_with_default(tf.constant(1, tf.int64), [], name="count")
                held = [tf.int64] * counts + [tf.string] * labels or [tf.int32]
                self.tokens = tf.FIFOQueue(-1, held, [[]] * len(held), name="tokens")
                self.meter = Meter("area")
                self.size = self.tokens.size(name="size")
                # One for all that is put into these queues: the more ops, the longer a session takes to start.
                self._zero = tf.constant(0, name="zero")
                refill = self.slots.enqueue_many(tf.zeros([capacity], tf.int32), name="refill")
                self.release = self.tokens.enqueue(self._token_with(b""), name="release")
                self.repair = Repair(
                    free=self.slots.size(name="free"),
                    held=self.area.size(),
                    give_back=self.slots.enqueue(self._zero, name="give_back"),
                    take_away=self.slots.dequeue(name="take_away").op,
                    release=self.release,
                )
                self.close = self.tokens.close(name="close")
                self.cancel = self.tokens.close(cancel_pending_enqueues=True, name="cancel")
            # A server keeps an area from one session to the next.
            self.reset = tf.group(refill, self.area.clear(), self.meter.reset, name="reset")

    def put(self, values: Sequence[Any], *, release: bool, label: Any = None) -> Any:
        """The op that stages `values` when there is room; `release` lets them be taken at once, with their label."""
        # Of copies, so that whoever feeds the values cuts every edge to the ops that compute them. Not tf.identity:
        # Grappler moves a control edge from an identity to its input, and feeding that cuts no control edge.
        values = [tf.ensure_shape(value, value.shape) for value in values]
        # The slot comes after the values: a source that fails must not keep one.
        with tf.control_dependencies(values):
            slot = self.slots.dequeue()
        with tf.control_dependencies([slot]):
            staged = self.area.put(values)
        if not release:
            return staged
        with tf.control_dependencies([staged]):
            return self.tokens.enqueue(self._token_with(label), name="put")

    def _token_with(self, label: Any) -> list[Any]:
        count = [] if self.count is None else [self.count]
        return count + [label] * self._labels or [self._zero]

    def get(self, advance: Callable[[Any, Any], Any] | None = None) -> list[Any]:
        """The tensors of the next element; they wait until there is one."""
        # `advance` makes the op that counts it, from its token's count and label. Placed by the device scope of the
        # caller, as `StagingArea.get` does.
        taken, counted = self.meter.around(self.tokens.size, self.tokens.dequeue)
        token = tf.nest.flatten(taken)
        self.token = token[0]
        with tf.control_dependencies([counted]):
            element = self.area.get()
            count, label = token[0] if self.count is not None else None, token[-1] if self._labels else None
            advanced = [advance(count, label)] if advance is not None else []
        with tf.control_dependencies(list(element)):
            given_back = self.slots.enqueue(self._zero)
        # Your ops start after the slot is back, so that one of them that fails cannot keep it.
        with tf.control_dependencies([given_back, *advanced]):
            return [tf.identity(tensor) for tensor in element]


def on(device: str | None) -> AbstractContextManager[Any]:
    """The scope of `device`; None keeps the scope around (`tf.device(None)` would leave it)."""
    return nullcontext() if device is None else tf.device(device)


def host_of(device: str) -> str:
    """The CPU beside `device`: the device itself if it is a CPU, else the first CPU of its task."""
    spec = tf.DeviceSpec.from_string(device or "")
    if spec.device_type == "CPU":
        return device
    job = "" if spec.job is None else f"/job:{spec.job}"
    replica = "" if spec.replica is None else f"/replica:{spec.replica}"
    task = "" if spec.task is None else f"/task:{spec.task}"
    return f"{job}{replica}{task}/device:CPU:0"
