"""`StagingArea`: a store on a device that holds elements between steps, as in `tf.contrib.staging`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from staging_tf1._tf import tf
from staging_tf1.arguments import INT32_MAX, as_int, shown
from staging_tf1.errors import SpecError, short_traceback
from staging_tf1.graph.area_base import MISFIT, BaseStagingArea
from staging_tf1.graph.elements import element_indices


class StagingArea(BaseStagingArea):
    """A FIFO store of elements on a device. `put` waits while it is full, `get` while it is empty.

    An element is a tuple of tensors of the declared dtypes. The store is on the device of the scope in which the area
    is built. It belongs to the session; on a `tf.train.Server` it belongs to the server, under `shared_name`. `get`
    returns tensors on the device of the scope in which it is called.

    A `put` or `get` that waits holds a thread of the session and has no timeout. Warm up with one `put`, then run `get`
    and `put` in every step. `staged()` does this itself and never waits in the area.

    The semantics are those of `tf.contrib.staging.StagingArea` in TensorFlow 1.15
    (tensorflow/python/ops/data_flow_ops.py).

    Args:
      dtypes: a list with one dtype per component.
      shapes: a list with one static shape per component. None, or None in the list, is an unknown shape.
      names: a list with one string per component; elements are then dicts.
      shared_name: areas with the same name share one store. Only their shapes and names may differ.
      capacity: the maximum number of elements; 0 is unbounded.
      memory_limit: the maximum number of bytes; 0 is unbounded.

    Raises:
      TypeError, ValueError: an argument is invalid.
      staging_tf1.errors.SpecError: an element is larger than `memory_limit`, or an area with that `shared_name` was
        declared differently.
      staging_tf1.errors.BuildError: built where it would hang or leak (`staging_tf1.graph.guards`).

    >>> with tf.Graph().as_default(), tf.Session() as sess:
    ...     area = StagingArea([tf.float32, tf.int64], [[2], []], names=["x", "y"])
    ...     put = area.put({"x": [1.0, 2.0], "y": 7})
    ...     element = area.get()
    ...     sess.run(put)
    ...     print(sess.run(element["y"]), element["x"].shape)
    7 (2,)
    """

    _kind = "Stage"

    @short_traceback
    def put(self, values: Any, name: str | None = None) -> Any:
        """Return the op that puts one element. The op waits while the area is full.

        Args:
          values: one value per component, in a list or tuple, or in a dict if the area has names. A single component
            needs no list. A value is a tensor, a variable (its value is put), a numpy value, or a Python value that
            the declared dtype holds without loss.
          name: the name of the op.

        Raises:
          staging_tf1.errors.SpecError: the number, names, dtypes, shapes or graph of the values do not fit.
          staging_tf1.errors.BuildError: called in another graph than the area's.

        >>> area = StagingArea([tf.int64], names=["label"], shared_name="train")
        >>> area.put({"label": np.zeros([32], np.int32)})  # doctest: +ELLIPSIS
        Traceback (most recent call last):
        ...
        staging_tf1.errors.SpecError: area 'train' (made at ...): component 'label' got ...
        """
        with self._in_graph("put", name) as graph:
            listed, indices = element_indices(str(self), self._declared, values)
            self._check_complete(indices)
            with self._put_scope(name) as scope:
                tensors = self._to_tensors(graph, listed, indices)
                return self._on_store("put", scope, tf.raw_ops.Stage, values=tensors)

    def get(self, name: str | None = None) -> Any:
        """Take the oldest element. The returned tensors wait while the area is empty.

        Returns:
          A list of tensors, or a dict if the area has names, with the declared dtypes and static shapes, on the device
          of the scope in which `get` is called.
        """
        return self._take("get", name, tf.raw_ops.Unstage)

    def peek(self, index: Any, name: str | None = None) -> Any:
        """Read element `index` (0 is the oldest) and leave it in the area. Wait until that element is there.

        Raises:
          ValueError: `index` is negative, or not below the capacity, and would wait forever.
          TypeError: `index` is not an integer.
        """
        return self._take("peek", name, tf.raw_ops.StagePeek, index=self._checked_index(index))

    def misfit_op(self) -> Any:
        """Return an op, made once per graph, that fails one waiting `get`: it puts an element of too many components.

        Any other way to wake an `Unstage` would let its step run on values that nothing has staged.
        """

        def make() -> Any:
            values = [tf.constant(False)] * (len(self.dtypes) + 1)
            return self._on_store(MISFIT, None, tf.raw_ops.Stage, values=values)

        return self._once(MISFIT, make)

    def _take(self, method: str, name: str | None, raw: Any, **arguments: Any) -> Any:
        with self._in_graph(method, name):
            tensors = self._on_store(method, name, raw, dtypes=self.dtypes, **arguments)
            return self._element(tensors, range(len(self.dtypes)))

    def _check_complete(self, indices: Sequence[int]) -> None:
        missing = [index for index in range(len(self.dtypes)) if index not in indices]
        if missing or len(indices) != len(self.dtypes):
            which = f" ({', '.join(map(self._declared.label, missing))} missing)" if missing else ""
            raise SpecError(
                f"{self}: put got {len(indices)} value{'s' * (len(indices) != 1)}, expected {len(self.dtypes)}, one "
                f"per component{which}. Put all components of an element at once."
            )

    def _checked_index(self, index: Any) -> Any:
        if tf.is_tensor(index):
            return tf.cast(index, tf.int32)
        number = as_int(index)
        if number is None:
            raise TypeError(f"{self}: peek got index={shown(index)}, expected an integer, the number of an element.")
        if not 0 <= number <= INT32_MAX or (self.capacity and number >= self.capacity):
            most = f"the capacity, {self.capacity}" if self.capacity else "2**31"
            raise ValueError(
                f"{self}: peek({shown(number)}) would wait forever; the index must be 0 or more and below {most}."
            )
        return number
