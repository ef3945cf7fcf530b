"""A barrier: elements whose tensors arrive one by one, and leave together."""

from __future__ import annotations

from typing import Any

from staging_tf1._tf import tf


class Barrier:
    """Collects the components of elements by key, and gives out the elements that have all of them.

    `specs` is a nested structure of `tf.TensorSpec`, one for each component. Elements leave in the order of their
    insertion index. The keys that first appear in one insert have the same insertion index.
    """

    def __init__(self, specs: Any) -> None:
        self._specs = specs
        self._types = [spec.dtype for spec in tf.nest.flatten(specs)]
        self._shapes = [spec.shape for spec in tf.nest.flatten(specs)]
        self.barrier_ref = tf.raw_ops.Barrier(component_types=self._types, shapes=self._shapes, name="barrier")
        # The structure of `specs`, with the number of each component.
        self.components: Any = tf.nest.pack_sequence_as(specs, range(len(self._types)))

    @property
    def name(self) -> str:
        return str(self.barrier_ref.op.name.rpartition("/")[2])

    def insert(self, components: Any, keys: Any, values: Any) -> Any:
        """Return an op that gives the elements `keys` some of their components.

        `components` is a part of `self.components`. `values` has its structure, and the first dimension of `keys`.
        """
        inserts = tf.nest.map_structure(
            lambda index, value: tf.raw_ops.BarrierInsertMany(
                handle=self.barrier_ref, keys=keys, values=value, component_index=index
            ),
            components,
            values,
        )
        return tf.group(*tf.nest.flatten(inserts))

    def take_many(self, num_elements: Any, allow_small_batch: bool) -> tuple[Any, Any, Any]:
        """Return (insertion indices, keys, components) of a batch of elements."""
        indices, keys, values = tf.raw_ops.BarrierTakeMany(
            handle=self.barrier_ref,
            num_elements=num_elements,
            component_types=self._types,
            allow_small_batch=allow_small_batch,
        )
        batch = tf.TensorShape([None if allow_small_batch else tf.get_static_value(num_elements)])
        indices.set_shape(batch)
        keys.set_shape(batch)
        for value, shape in zip(values, self._shapes):
            value.set_shape(batch.concatenate(shape))
        return indices, keys, tf.nest.pack_sequence_as(self._specs, values)

    def ready_size(self, name: str | None = None) -> Any:
        """Return the number of elements that have all their components."""
        return tf.raw_ops.BarrierReadySize(handle=self.barrier_ref, name=name)

    def incomplete_size(self, name: str | None = None) -> Any:
        """Return the number of elements that lack a component."""
        return tf.raw_ops.BarrierIncompleteSize(handle=self.barrier_ref, name=name)

    def close(self, cancel_pending_enqueues: bool = False, name: str | None = None) -> Any:
        """Return an op after which new keys raise. Elements that lack a component can still get it."""
        return tf.raw_ops.BarrierClose(
            handle=self.barrier_ref, cancel_pending_enqueues=cancel_pending_enqueues, name=name
        )
