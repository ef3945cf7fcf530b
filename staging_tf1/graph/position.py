"""`Position`: how many batches the steps have consumed, in variables that every checkpoint holds.

The step that consumes a batch updates the position. Batches that were only read ahead do not count, so a restored run
resumes with the first batch that no step has consumed. A skipped batch counts together with the next consumed one,
because the position is a number in the source's order.

There are two kinds. `Position` has a number for each tower. `DynamicPosition` is for workers that share the batches of
one source dynamically: they consume them out of order, so it marks each batch by itself (`graph/acked.py`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, NoReturn

from staging_tf1._tf import own_variable, tf, without_elements
from staging_tf1.errors import CheckpointError
from staging_tf1.graph.acked import WINDOW, Acked

Fingerprint = dict[str, int | str]

# The entry of the fingerprint that marks a `DynamicPosition`. A `Position` has none, or another value.
SHARE, DYNAMIC, STATIC = "share", "dynamic", "static"


def without_share(fingerprint: Fingerprint) -> Fingerprint:
    """Return the fingerprint of the source alone."""
    dynamic = fingerprint.get(SHARE) == DYNAMIC
    return {key: value for key, value in fingerprint.items() if key != SHARE} if dynamic else fingerprint


class Saved(NamedTuple):
    """What the variables of a position hold."""

    # One per tower; of a `DynamicPosition` one per cell of its window.
    positions: tuple[int, ...]
    fingerprint: Fingerprint
    # The state of the stream, labelled with its position (see `labelled`); None if no state is kept.
    labelled_state: bytes | None

    def state(self) -> bytes | None:
        """Return the state of the stream at the first position; None if the saved one is of another position."""
        if self.labelled_state is None:
            return None
        # The state and the position may come from two concurrent steps.
        position, _, state = self.labelled_state.partition(b":")
        return state if position == b"%d" % self.positions[0] else None

    @property
    def acked(self) -> Acked | None:
        """Which batches had been consumed, where a `DynamicPosition` was saved; None where a `Position` was."""
        return Acked(self.positions) if self.fingerprint.get(SHARE) == DYNAMIC else None


class TowerRange(NamedTuple):
    """Which towers of a pipeline this process has. In a cluster, the other workers have the rest."""

    # The index of its first tower.
    first: int
    # How many it has.
    towers: int
    # How many all workers have. With share="dynamic" this is 1, however many workers there are.
    all_towers: int
    # How many workers have an input of their own; 0 if they share one, or there is no cluster.
    own_inputs: int = 0
    # Whether all towers must have the same number of batches.
    equal: bool = False
    # Whether the chief hands out the batches.
    dynamic: bool = False

    @property
    def own(self) -> slice:
        """The towers of this process, among those of all workers."""
        return slice(self.first, self.first + self.towers)

    @property
    def shards(self) -> int:
        """How many shards an input is split into: one for each tower that shares it."""
        return self.towers if self.own_inputs else self.all_towers

    @property
    def own_shards(self) -> range:
        """The numbers of the shards that the towers of this process read."""
        return range(self.shards) if self.own_inputs else range(self.all_towers)[self.own]


class Position:
    """The positions of a pipeline's towers, and the fingerprint of their source.

    Both are global variables, so `tf.train.Saver` saves them, and `tf.global_variables_initializer()` sets them back.
    Programs compute with all global variables, too: they count them, average them, sum up their norms. So ops that a
    program makes with them get empty floats (`_tf.without_elements`). `session.run` and `load` see what they hold.

    One variable holds the positions of all towers, and its shape is open, so a checkpoint of a different number of
    towers can be restored and mapped. In a cluster the variable holds the towers of all workers, stands on a parameter
    server, and is the same one in every worker's graph.

    Args:
      fingerprint: that of the whole source, before it is split into shards.
      tower_range: the towers of this process.
      device: where the variables are: on the host of this process, or on the first parameter server.
      fence: makes an op that fails if this process may not update the position; None if it always may.
      keeps_state: whether each batch carries the state of its stream as a label. The checkpoint then holds the state
        after the last consumed batch.

    Attributes:
      skip: an op that marks one bad batch as consumed, because no step takes it, and the placeholder for its number.
        None if the position counts such a batch together with the next consumed one.
      counting: the names of the ops that count a batch. Other ops that write to the variables set the position.
      variables: the variables as programs see them.
    """

    skip: tuple[Any, Any] | None = None

    def __init__(
        self,
        fingerprint: Fingerprint,
        tower_range: TowerRange,
        *,
        device: str = "/device:CPU:0",
        fence: Callable[[], Any] | None = None,
        keeps_state: bool = False,
    ) -> None:
        self.fingerprint = fingerprint
        self.tower_range = tower_range
        self.counting: frozenset[str] = frozenset()
        self._device, self._fence = device, fence
        with self._on_its_device():
            self._batches = _variable(self._initial(), tf.int64, "position")
            self._print = _variable(json.dumps(fingerprint, sort_keys=True), tf.string, "fingerprint")
            self._state = _variable("", tf.string, "state") if keeps_state else None
            # Made here, because the graph is finalized when it is run.
            self.has_value = self._batches.is_initialized()
        held = [variable for variable in (self._batches, self._print, self._state) if variable is not None]
        self.variables = tuple(map(without_elements, held))
        for variable in self.variables:
            tf.add_to_collection(tf.GraphKeys.GLOBAL_VARIABLES, variable)
        # Run for all positions of a session at once.
        self.initializers = [variable.initializer for variable in self.variables]
        self.saved = [tf.get_default_graph().as_graph_element(variable) for variable in self.variables]

    @property
    def name(self) -> str:
        """The name under which servers know the variable of the positions."""
        return str(self._batches.handle.op.get_attr("shared_name").decode())

    @property
    def length(self) -> int:
        return self.tower_range.all_towers

    def _initial(self) -> Any:
        return [0] * self.length

    def consumed(self, saved: Any) -> tuple[int, ...]:
        """Return how many batches each tower has consumed, from the value of the variable of the positions."""
        return tuple(map(int, saved))

    def beginning_at(self, batches: tuple[int, ...]) -> tuple[int, ...]:
        """Return what the variable holds after the first `batches` of each tower of all workers."""
        return batches

    def starts(self, positions: tuple[int, ...]) -> tuple[int, ...]:
        """Return the first batch of each tower of this process, from what the variable holds."""
        return positions[self.tower_range.own]

    def first_of_all(self) -> Any:
        """Return the first batch that no step has consumed (an int64 scalar), for an input that the towers share."""
        towers = self.tower_range.towers
        with self._on_its_device():
            own = self._batches.read_value()[self.tower_range.own]
            return tf.reduce_min(own * towers + tf.range(towers, dtype=tf.int64))

    def advance(self, tower: int, stamp: Any, label: Any) -> Any:
        """Return the op that counts a batch of `tower` and save its label.

        Args:
          tower: the number of the tower in this process.
          stamp: that of the batch (see `TokenArea`). None is 1.
          label: the state of the stream after this batch; None unless `keeps_state`.
        """
        with self._behind_fence():
            counted = self._mark(tower, stamp)
            ops = [counted] if self._state is None else [counted, self._state.assign(label, read_value=False)]
            self.counting |= {op.name for op in ops}
            return tf.group(*ops) if len(ops) > 1 else counted

    def _mark(self, tower: int, stamp: Any) -> Any:
        # A scatter_add to one element is no faster, and takes no exclusive lock: two threads that run steps of one
        # tower could lose a count.
        one_hot = [int(other == self.tower_range.first + tower) for other in range(self.tower_range.all_towers)]
        passed = tf.constant(one_hot, tf.int64) if stamp is None else tf.constant(one_hot, tf.int64) * stamp
        return self._batches.assign_add(passed, read_value=False)

    @contextmanager
    def _on_its_device(self) -> Iterator[None]:
        # Both, because a scope only adds to the scope around it.
        with tf.device(None), tf.device(self._device):
            yield

    @contextmanager
    def _behind_fence(self) -> Iterator[None]:
        """Return a scope for ops that update the position: on its device, and only if this process may."""
        if self._fence is None:
            with self._on_its_device():
                yield
            return
        passed = self._fence()
        # The fence waits for whatever the scope around waits for.
        with self._on_its_device(), tf.control_dependencies(None), tf.control_dependencies([passed]):
            yield

    def parsed(self, saved: Sequence[Any]) -> Saved:
        """Parse the values of `self.saved`.

        Raises:
          CheckpointError: they are damaged.
        """
        batches, text, *state = saved
        if batches.ndim != 1 or not batches.size or (batches < 0).any():
            self.refuse("position", batches.tolist(), "a list with a number of batches for each tower")
        try:
            fingerprint = json.loads(text)
        except (TypeError, ValueError, RecursionError):
            fingerprint = None
        if not (isinstance(fingerprint, dict) and all(isinstance(each, (int, str)) for each in fingerprint.values())):
            self.refuse("fingerprint", text, "a JSON object of integers and strings")
        parsed = Saved(tuple(batches.tolist()), fingerprint, state[0] if state else None)
        if parsed.acked is not None and not parsed.acked.is_valid:
            self.refuse("position", batches[:8].tolist(), "numbers that leave their own place as the remainder")
        return parsed

    @property
    def _scope(self) -> str:
        return str(self._batches.op.name.rpartition("/")[0])

    def refuse(self, name: str, got: Any, wanted: str) -> NoReturn:
        """Raise CheckpointError for a value that no run of this package can have saved."""
        raise CheckpointError(
            f"'{self._scope}/{name}' in the checkpoint is damaged: got {repr(got)[:200]}, expected {wanted}. Restore "
            f"an older checkpoint, or use staged(resume='restart') to begin with the first batch."
        )

    def to_store(self, positions: Sequence[int], fingerprint: Fingerprint) -> tuple[list[Any], dict[Any, Any]]:
        """Return the ops, with their feeds, that set the position of each tower and the fingerprint."""
        return self.to_write((positions, json.dumps(fingerprint, sort_keys=True)))

    def to_write(self, values: Sequence[Any]) -> tuple[list[Any], dict[Any, Any]]:
        """Return the ops, with their feeds, that set the first variables of `saved` to `values`."""
        ops = self.initializers[: len(values)]
        # The second input of an assignment is its value.
        return ops, {op.inputs[1]: value for op, value in zip(ops, values, strict=True)}


class DynamicPosition(Position):
    """Which batches of a source have been consumed, where the workers of a cluster share them dynamically.

    The variables have the names that `Position` gives them, so a checkpoint of either can be restored for the other.

    Args:
      fingerprint: that of the whole source.
      tower_range: one tower; the others of a cluster have the same position.
      where: `device` and `fence` of a `Position`.
    """

    def __init__(self, fingerprint: Fingerprint, tower_range: TowerRange, **where: Any) -> None:
        super().__init__({**fingerprint, SHARE: DYNAMIC}, tower_range, **where)
        with self._on_its_device():
            skipped = tf.placeholder(tf.int64, [], name="skipped")
        self.skip = self.advance(0, skipped, None), skipped

    @property
    def length(self) -> int:
        """How many numbers the variable holds."""
        return WINDOW

    def _initial(self) -> Any:
        # A constant would add 256 KiB to the graph.
        return lambda: tf.range(WINDOW, dtype=tf.int64)

    def consumed(self, saved: Any) -> tuple[int, ...]:
        """Return how many batches all workers together have consumed."""
        return (int(sum(cell // WINDOW for cell in saved.tolist())),)

    def beginning_at(self, batches: tuple[int, ...]) -> tuple[int, ...]:
        """Return what the variable holds after the first `batches[0]` batches."""
        return tuple(Acked.first(batches[0]).cells.tolist())

    def starts(self, positions: tuple[int, ...]) -> tuple[int, ...]:
        """Return 0: the supply skips what has been consumed (`feed/supply.py`)."""
        return (0,)

    def _mark(self, tower: int, stamp: Any) -> Any:
        cell, following = tf.reshape(stamp % WINDOW, [1, 1]), tf.reshape(stamp + WINDOW, [1])
        # An op that overwrites the cell could set it back, and assign_add would count a batch twice.
        return tf.raw_ops.ResourceScatterNdMax(
            ref=self._batches.handle, indices=cell, updates=following, use_locking=True, name="acknowledge"
        )


def labelled(position: int, state: bytes) -> bytes:
    """Return the label of a batch: the state of the stream after it, and the position that the state belongs to."""
    return b"%d:%s" % (position, state)


def _variable(initial: Any, dtype: Any, name: str) -> Any:
    open_shape = tf.TensorShape([] if isinstance(initial, str) else [None])
    return own_variable(initial, dtype=dtype, shape=open_shape, trainable=False, collections=[], name=name)
