"""`Ledger`: a few short texts on the first parameter server that all tasks can read and write.

A hash table in TensorFlow's own runtime, so no further server or port is needed. It is in no checkpoint: when the
parameter server restarts, the ledger is empty, as the variables are uninitialized.
"""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from staging_tf1._tf import tf
from staging_tf1.cluster.connection import Connection

# The name of the table in TensorFlow's resource manager.
TABLE = "staging_tf1_ledger"


class Ledger:
    """Reads and writes the texts. Thread-safe.

    Every access raises `tf.errors.OpError` if the server does not answer within seconds. The next access connects
    again.
    """

    def __init__(self, target: str, device: str) -> None:
        self._connection = Connection(target, device)
        with self._connection.building():
            table = table_op()
            self._keys = tf.placeholder(tf.int64, [None])
            self._texts = tf.placeholder(tf.string, [None])
            self._insert = tf.raw_ops.LookupTableInsertV2(table_handle=table, keys=self._keys, values=self._texts)
            self._remove = tf.raw_ops.LookupTableRemoveV2(table_handle=table, keys=self._keys)
            self._find = tf.raw_ops.LookupTableFindV2(
                table_handle=table, keys=self._keys, default_value=tf.constant("")
            )
            with tf.control_dependencies([self._insert]):
                self._others = tf.placeholder(tf.int64, [None])
                self._insert_and_find = tf.raw_ops.LookupTableFindV2(
                    table_handle=table, keys=self._others, default_value=tf.constant("")
                )
            with tf.control_dependencies([tf.no_op()]):
                self._export = tf.raw_ops.LookupTableExportV2(table_handle=table, Tkeys=tf.int64, Tvalues=tf.string)

    def read(self, names: Sequence[str] | None = None) -> dict[str, Any]:
        """Return all entries, or those with `names` that exist, which costs the server much less."""
        if names is None:
            texts = self._run(self._export).values
        else:
            texts = self._run(self._find, {self._keys: list(map(key, names))})
        return _parsed(texts)

    def write(self, entries: Mapping[str, Any]) -> None:
        """Set entries, each a value that JSON can hold."""
        self._run(self._insert, self._fed(entries))

    def write_and_read(self, entries: Mapping[str, Any], names: Sequence[str]) -> dict[str, Any]:
        """Set entries, and then return those with `names` that exist. Costs the server one run."""
        return _parsed(self._run(self._insert_and_find, {**self._fed(entries), self._others: list(map(key, names))}))

    def _fed(self, entries: Mapping[str, Any]) -> dict[Any, Any]:
        texts = [text_of(name, value) for name, value in entries.items()]
        return {self._keys: list(map(key, entries)), self._texts: texts}

    def remove(self, names: Sequence[str]) -> None:
        """Remove entries. Names without an entry are ignored."""
        if names:
            self._run(self._remove, {self._keys: list(map(key, names))})

    def close(self) -> None:
        """Close the connection. A later access opens it again."""
        self._connection.close()

    def _run(self, fetches: Any, feed: dict[Any, Any] | None = None) -> Any:
        return self._connection.run(fetches, feed)


def table_op() -> Any:
    """Make the handle of the ledger's table, on the current device."""
    return tf.raw_ops.MutableHashTableV2(key_dtype=tf.int64, value_dtype=tf.string, shared_name=TABLE)


def find_op(name: str) -> Any:
    """Make an op that returns the text of an entry, or "" if there is none, on the current device."""
    keys, none = tf.constant([key(name)], tf.int64), tf.constant("")
    return tf.raw_ops.LookupTableFindV2(table_handle=table_op(), keys=keys, default_value=none)[0]


def _parsed(texts: Iterable[bytes]) -> dict[str, Any]:
    return dict(json.loads(text) for text in texts if text)


@functools.cache
def key(name: str) -> int:
    """Return the key of an entry. TensorFlow has no table from strings to strings."""
    return int(np.frombuffer(hashlib.blake2b(name.encode(), digest_size=8).digest(), "<i8")[0])


def text_of(name: str, value: Any) -> str:
    """Return the text that the table holds for an entry."""
    return json.dumps([name, value])
