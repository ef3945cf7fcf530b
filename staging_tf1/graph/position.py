"""How many batches the steps have consumed: a variable that the consuming step updates, and every checkpoint holds.

What has been read ahead does not count, so a restored run goes on with the first batch that no step has had.
"""

from __future__ import annotations

import json
from typing import Any

from staging_tf1._tf import tf


class Position:
    """The position of one tower, and the fingerprint of the source that it is a position in.

    Both are ordinary global variables, so `tf.train.Saver` saves them with no extra work.
    """

    def __init__(self, fingerprint: dict[str, int | str]) -> None:
        self.fingerprint = fingerprint
        with tf.device(None), tf.device("/device:CPU:0"):
            self._batches = _variable(0, tf.int64, "position")
            self._print = _variable(json.dumps(fingerprint, sort_keys=True), tf.string, "fingerprint")
            self.value = self._batches.read_value()
            self.saved_fingerprint = self._print.read_value()
            # Made here, because the graph is finalized when they are wanted.
            self.has_value = self._batches.is_initialized()
            self.initializer = tf.group(self._batches.initializer, self._print.initializer)
            self._to_set = tf.placeholder(tf.int64, [], name="set_position")
            self._print_to_set = tf.placeholder(tf.string, [], name="set_fingerprint")
            self._set = tf.group(
                self._batches.assign(self._to_set, read_value=False),
                self._print.assign(self._print_to_set, read_value=False),
            )
        self.variables = (self._batches, self._print)

    def advance(self) -> Any:
        """The op that counts one more batch."""
        return self._batches.assign_add(1, read_value=False)

    def load(self, session: Any) -> tuple[int, dict[str, int | str]]:
        """The position, and the fingerprint that was saved with it."""
        batches, saved = session.run([self.value, self.saved_fingerprint])
        return int(batches), json.loads(saved)

    def store(self, session: Any, batches: int) -> None:
        """Sets the position, and the fingerprint to that of the present source."""
        feeds = {self._to_set: batches, self._print_to_set: json.dumps(self.fingerprint, sort_keys=True)}
        session.run(self._set, feeds)


def _variable(initial: Any, dtype: Any, name: str) -> Any:
    return tf.Variable(initial, dtype=dtype, trainable=False, use_resource=True, name=name)
