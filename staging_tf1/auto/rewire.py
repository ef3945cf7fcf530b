"""Puts areas between what runs ahead and the step, and connects the step to them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from staging_tf1._tf import deterministic_ops, replace_input, set_control_inputs, tf
from staging_tf1.auto.graph_index import GraphIndex
from staging_tf1.graph.dependencies import ancestors
from staging_tf1.graph.sink import Sink, Staging, staged_sink
from staging_tf1.graph.token_area import host_of

_HOST = "/device:CPU:0"


@dataclass
class Boundary:
    """What leaves one group of ops that run ahead. Found before anything is changed."""

    # By name, because a tensor may be compared by its value.
    tensors: dict[str, Any] = field(default_factory=dict)
    # Ops of the step, the number of the input, and the name of the tensor.
    uses: list[tuple[Any, int, str]] = field(default_factory=list)
    # Ops of the step, each with the ops ahead that must run before it.
    controls: list[tuple[Any, list[Any]]] = field(default_factory=list)

    def devices(self, chosen: str | None) -> dict[str, set[str]]:
        """Return the devices that must hold each tensor, by its name.

        Args:
          chosen: the device for all; None keeps each where it is used, if the program says where.
        """
        devices: dict[str, set[str]] = {name: set() for name in self.tensors}
        if chosen is None:
            for user, _, name in self.uses:
                devices[name].add(_home_of(self.tensors[name], _device_of(user) or _HOST))
        return {name: places or {_home_of(self.tensors[name], chosen or _HOST)} for name, places in devices.items()}


@dataclass(frozen=True)
class Connection:
    """The area of one group, and what the step reads from it."""

    sink: Sink
    # For each carried tensor, by name: what the step reads, by device.
    outputs: dict[str, dict[str, Any]]
    meter: PutMeter | None

    def output(self, name: str, device: str = "") -> Any:
        """Return what the step reads for a tensor: from that device, or else from the first that holds it."""
        outputs = self.outputs[name]
        return outputs[device] if device in outputs else next(iter(outputs.values()))


def boundary_of(index: GraphIndex, ahead: Sequence[Any], region: set[str], extra: Iterable[Any]) -> Boundary:
    """Find what leaves the ops `ahead`, which are in `region`, a set of names; with `extra` tensors to carry."""
    boundary = Boundary({tensor.name: tensor for tensor in extra})
    controls: dict[int, list[Any]] = {}
    for op in ahead:
        for user in dict.fromkeys(index.after[index.number_of[op.name]]):
            if index.ops[user].name in region:
                continue
            for number, tensor in enumerate(index.inputs[user]):
                if tensor.op.name == op.name:
                    boundary.tensors.setdefault(tensor.name, tensor)
                    boundary.uses.append((index.ops[user], number, tensor.name))
            if any(control_input.name == op.name for control_input in index.ops[user].control_inputs):
                controls.setdefault(user, []).append(op)
    boundary.controls += [(index.ops[user], before) for user, before in sorted(controls.items())]
    return boundary


def connect(boundary: Boundary, name: str, region: set[str], capacity: int, device: str | None) -> Connection:
    """Make the area of one group, and let the step read from it."""
    connection = _area(boundary, name, capacity, device)
    for user, index, tensor in boundary.uses:
        home = _home_of(boundary.tensors[tensor], _device_of(user) or _HOST)
        replace_input(user, index, connection.output(tensor, home))
    first = connection.sink.outputs[0].op
    for user, _ in boundary.controls:
        kept = [control_input for control_input in user.control_inputs if control_input.name not in region]
        set_control_inputs(user, [*kept, first])
    return connection


def _area(boundary: Boundary, name: str, capacity: int, device: str | None) -> Connection:
    homes = boundary.devices(device)
    every = sorted(set().union(*homes.values()), key=lambda device: (device != _HOST, device))
    main = every[0]
    first = {op.name: op for _, before in boundary.controls for op in before}
    values, meter = _metered({key: boundary.tensors[key] for key in homes}, list(first.values()))
    on = {device: {key: values[key] for key in homes if device in homes[key]} for device in every}
    parts = [_Part(device, name, on[device]) for device in every[1:]]
    how = Staging(capacity, main, lockstep=False, release=True, advance=None, stamps=False)
    if not parts:
        sink = staged_sink(name, list(on[main].values()), [], how)
        outputs = {key: {main: output} for key, output in zip(on[main], sink.outputs, strict=True)}
    else:
        sink, outputs = _spread(name, main, on[main], parts, every[1:], how)
    reset = [] if meter is None else [meter.reset]
    return Connection(replace(sink, reset=tf.group(sink.reset, *reset)), outputs, meter)


def _metered(values: dict[str, Any], first: Sequence[Any]) -> tuple[dict[str, Any], PutMeter | None]:
    """Return values that wait for the ops `first`, and what measures how long they take."""
    # With deterministic ops TensorFlow refuses to read the clock.
    meter = None if deterministic_ops() else PutMeter()
    before = [*first, *([] if meter is None else [meter.count([*values.values(), *first])])]
    if not before:
        return values, meter
    with tf.control_dependencies(before):
        return {name: tf.identity(value) for name, value in values.items()}, meter


def _spread(
    name: str, main: str, held: dict[str, Any], parts: Sequence[_Part], devices: Sequence[str], how: Staging
) -> tuple[Sink, dict[str, dict[str, Any]]]:
    """Make an area whose elements also lie on other devices: one put fills all, and each get empties all."""
    counter = tf.Variable(0, dtype=tf.int64, trainable=False, collections=[], use_resource=True, name="numbers")
    # Atomic, because feed threads count at the same time.
    number = tf.raw_ops.ResourceCountUpTo(resource=counter.handle, limit=2**62, T=tf.int64)
    with tf.control_dependencies([part.put(number) for part in parts]):
        ready = tf.identity(number)
    sink = staged_sink(name, [ready, *held.values()], [], how)
    taken = [part.get(sink.outputs[0]) for part in parts]
    outputs: dict[str, dict[str, Any]] = {}
    # A step that uses one part takes the others, too: they would stay behind.
    with tf.control_dependencies([tensor.op for part in taken for tensor in part.values()]):
        for key, output in zip(held, sink.outputs[1:], strict=True):
            outputs.setdefault(key, {})[main] = tf.identity(output)
        for device, part in zip(devices, taken, strict=True):
            for key, output in part.items():
                with tf.device(device):
                    outputs.setdefault(key, {})[device] = tf.identity(output)
    clears = [part.clear for part in parts]
    first = next(iter(next(iter(outputs.values())).values()))
    return replace(
        sink,
        outputs=(first, *sink.outputs),
        reset=tf.group(sink.reset, counter.initializer, *clears),
        renew=tf.group(sink.renew, *clears),
    ), outputs


def check_disjoint(train_ops: Sequence[Any], region: set[str]) -> None:
    """Raise AssertionError if a training step still computes something that runs ahead."""
    both = [op.name for op in ancestors(train_ops) if op.name in region]
    if both:
        raise AssertionError(f"auto_stage(): {both[:5]} run ahead, and the step still depends on them")


class _Part:
    """A store on one device, with the components that are used there, by the number of the element.

    By number, because a failed step may have taken its element from some of the stores only. In stores without numbers,
    all later steps would mix two elements. What a failed step leaves behind stays until the store is cleared.

    Args:
      device: the device.
      name: of the area, for the store.
      tensors: the components, by name.
    """

    def __init__(self, device: str, name: str, tensors: Mapping[str, Any]) -> None:
        self._device, self._tensors = device, dict(tensors)
        dtypes = [tensor.dtype for tensor in tensors.values()]
        self._store = {"dtypes": dtypes, "shared_name": f"{name}{device}"}
        with tf.device(device):
            self.clear = tf.raw_ops.MapClear(**self._store)

    def put(self, number: Any) -> Any:
        """Return the op that stores the components."""
        with tf.device(self._device):
            indices = tf.range(len(self._tensors))
            return tf.raw_ops.MapStage(key=number, indices=indices, values=list(self._tensors.values()), **self._store)

    def get(self, number: Any) -> dict[str, Any]:
        """Return the components that were stored under a number, by name."""
        with tf.device(self._device):
            values = tf.raw_ops.MapUnstage(key=number, indices=tf.range(len(self._tensors)), **self._store)
        for output, tensor in zip(values, self._tensors.values(), strict=True):
            output.set_shape(tensor.shape)
        return dict(zip(self._tensors, values, strict=True))


def _home_of(tensor: Any, device: str) -> str:
    """Return where a tensor of a device can be stored: on the device's host if the device cannot hold strings."""
    return host_of(device) if tensor.dtype == tf.string else device


def _device_of(op: Any) -> str:
    """Return the device that the program has chosen for an op of this process, as "/device:GPU:1"; empty if none."""
    spec = tf.DeviceSpec.from_string(op.device or "")
    if spec.device_type is None or spec.job not in (None, "localhost"):
        return ""
    return f"/device:{spec.device_type}:{spec.device_index or 0}"


class PutMeter:
    """Sums [batches, seconds from the start of a put until its values are computed].

    It measures in the graph, because to Python a put that waits for a free slot looks like a slow put.

    Attributes:
      value: the sums, as a tensor.
      reset: the op that sets them to zero.
    """

    def __init__(self) -> None:
        self._began = tf.timestamp()
        self._sums = tf.Variable(np.zeros(2), trainable=False, collections=[], use_resource=True, name="put_meter")
        self.reset = self._sums.initializer
        self.value = tf.get_default_graph().as_graph_element(self._sums)

    def count(self, values: Sequence[Any]) -> Any:
        """Return the op that counts a put when `values` are computed."""
        with tf.control_dependencies(values):
            spent = tf.timestamp() - self._began
        return self._sums.assign_add(tf.stack([tf.constant(1.0, tf.float64), spent]), read_value=False)
