"""How many batches the steps have consumed: a variable that the consuming step updates, and every checkpoint holds.

What has been read ahead does not count, so a restored run goes on with the first batch that no step has had. A bad
batch that was skipped counts with the next one that is consumed: the position is a number in the source's order.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NoReturn

from staging_tf1._tf import tf
from staging_tf1.errors import CheckpointError


class Position:
    """The positions of all towers of a pipeline, and the fingerprint of the source that they are positions in.

    Both are ordinary global variables, so `tf.train.Saver` saves them with no extra work. They are one pair whatever
    the number of towers, and their shape is open: a checkpoint of another number of towers can be restored, and then
    be carried over.

    Args:
      fingerprint: of the source, before it is dealt out to the towers.
      towers: how many there are.
      keeps_state: whether the batches bring the state of their stream with them, as labels. The checkpoint then holds
        the state behind the last batch that was consumed.
    """

    def __init__(self, fingerprint: dict[str, int | str], towers: int, *, keeps_state: bool = False) -> None:
        self.fingerprint = fingerprint
        self.towers = towers
        with _on_the_host():
            self._batches = _variable([0] * towers, tf.int64, "position")
            self._print = _variable(json.dumps(fingerprint, sort_keys=True), tf.string, "fingerprint")
            self._state = _variable("", tf.string, "state") if keeps_state else None
            self._saved_state = None if self._state is None else self._state.read_value()
            self._value = self._batches.read_value()
            self._saved_print = self._print.read_value()
            # Made here, because the graph is finalized when they are wanted.
            self.has_value = self._batches.is_initialized()
            self.variables = tuple(each for each in (self._batches, self._print, self._state) if each is not None)
            self.initializer = tf.group(*[each.initializer for each in self.variables])
            self._to_set = tf.placeholder(tf.int64, [towers], name="set_position")
            self._print_to_set = tf.placeholder(tf.string, [], name="set_fingerprint")
            self._set = tf.group(
                self._batches.assign(self._to_set, read_value=False),
                self._print.assign(self._print_to_set, read_value=False),
            )

    def first_of_all(self) -> Any:
        """The tensor of the first batch that no step has had, of an input that the towers share in rotation: []."""
        with _on_the_host():
            return tf.reduce_min(self._value * self.towers + tf.range(self.towers, dtype=tf.int64))

    def advance(self, tower: int, count: Any, label: Any) -> Any:
        """The op that counts a batch of `tower`, and keeps the state that it is labelled with.

        With those that were skipped just before it these are `count` batches; None is the one.
        """
        # Not a scatter_add to one place: it is no faster, and takes no exclusive lock, so that two threads which run
        # steps of one tower could lose a count.
        one = [int(other == tower) for other in range(self.towers)]
        with _on_the_host():
            passed = tf.constant(one, tf.int64) if count is None else tf.constant(one, tf.int64) * count
            counted = self._batches.assign_add(passed, read_value=False)
            return counted if self._state is None else tf.group(counted, self._state.assign(label, read_value=False))

    def load(self, session: Any) -> tuple[tuple[int, ...], dict[str, int | str]]:
        """The position of each tower there was, and the fingerprint that was saved with them.

        Raises:
          CheckpointError: they cannot have been saved like that.
        """
        batches, saved = session.run([self._value, self._saved_print])
        if batches.ndim != 1 or not batches.size or (batches < 0).any():
            self.refuse("position", batches.tolist(), "a list of numbers of batches, one a tower")
        try:
            fingerprint = json.loads(saved)
        except (ValueError, RecursionError):
            fingerprint = None
        if not isinstance(fingerprint, dict) or not all(isinstance(each, (int, str)) for each in fingerprint.values()):
            self.refuse("fingerprint", saved, "a JSON object of whole numbers and strings")
        return tuple(batches.tolist()), fingerprint

    def refuse(self, what: str, got: Any, wanted: str) -> NoReturn:
        """Raises CheckpointError for a value that no run of this package has saved."""
        shown = repr(got)
        scope = self._batches.op.name.rpartition("/")[0]
        raise CheckpointError(
            f"'{scope}/{what}' in the checkpoint is damaged: got {shown[:200]}, wanted {wanted}. Restore an older "
            f"checkpoint, or give staged(resume='restart') to begin with the first batch."
        )

    def load_state(self, session: Any, position: int) -> bytes | None:
        """The state of the stream behind `position` batches, if that is the one that was saved."""
        if self._saved_state is None:
            return None
        # The state and the position of steps that run at once may be those of two of them.
        of, _, state = session.run(self._saved_state).partition(b":")
        return state if of == b"%d" % position else None

    def store(self, session: Any, positions: Sequence[int], fingerprint: dict[str, int | str]) -> None:
        """Sets the position of each tower, and the fingerprint to that of the present source."""
        feeds = {self._to_set: positions, self._print_to_set: json.dumps(fingerprint, sort_keys=True)}
        session.run(self._set, feeds)


def labelled(position: int, state: bytes) -> bytes:
    """The label of the batch behind which a stream has `state`: it says of which position that is."""
    return b"%d:%s" % (position, state)


@contextmanager
def _on_the_host() -> Iterator[None]:
    # Both: a scope within another one only adds to it.
    with tf.device(None), tf.device("/device:CPU:0"):
        yield


def _variable(initial: Any, dtype: Any, name: str) -> Any:
    open_shape = tf.TensorShape([None] if isinstance(initial, list) else [])
    return tf.Variable(initial, dtype=dtype, shape=open_shape, trainable=False, use_resource=True, name=name)
