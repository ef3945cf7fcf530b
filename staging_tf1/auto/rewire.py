"""Puts areas between what runs ahead and the step, and connects the step to them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from staging_tf1._tf import replace_input, set_control_inputs, tf
from staging_tf1.auto.graph_index import GraphIndex
from staging_tf1.auto.parts import Part, device_of, home_of
from staging_tf1.auto.put_meter import PutMeter
from staging_tf1.graph.dependencies import ancestors
from staging_tf1.graph.sink import Sink, Staging, staged_sink

HOST = "/device:CPU:0"


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
                devices[name].add(home_of(self.tensors[name], device_of(user) or HOST))
        return {name: places or {home_of(self.tensors[name], chosen or HOST)} for name, places in devices.items()}


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
        home = home_of(boundary.tensors[tensor], device_of(user) or HOST)
        replace_input(user, index, connection.output(tensor, home))
    first = connection.sink.outputs[0].op
    for user, _ in boundary.controls:
        kept = [control_input for control_input in user.control_inputs if control_input.name not in region]
        set_control_inputs(user, [*kept, first])
    return connection


def _area(boundary: Boundary, name: str, capacity: int, device: str | None) -> Connection:
    homes = boundary.devices(device)
    every = sorted(set().union(*homes.values()), key=lambda each: (each != HOST, each))
    main = every[0]
    first = {op.name: op for _, before in boundary.controls for op in before}
    values, meter = _metered({key: boundary.tensors[key] for key in homes}, list(first.values()))
    on = {each: {key: values[key] for key in homes if each in homes[key]} for each in every}
    parts = [Part(each, name, on[each]) for each in every[1:]]
    how = Staging(capacity, main, lockstep=False, release=True, advance=None, stamps=False, reopens=True)
    if not parts:
        sink = staged_sink(name, list(on[main].values()), [], how)
        outputs = {key: {main: output} for key, output in zip(on[main], sink.outputs, strict=True)}
    else:
        sink, outputs = _spread(name, main, on[main], parts, every[1:], how)
    reset = [] if meter is None else [meter.reset]
    return Connection(replace(sink, reset=tf.group(sink.reset, *reset)), outputs, meter)


def _metered(values: dict[str, Any], first: Sequence[Any]) -> tuple[dict[str, Any], PutMeter | None]:
    """Return values that wait for the ops `first`, and what measures how long they take."""
    meter = PutMeter.made()
    before = [*first, *([] if meter is None else [meter.count([*values.values(), *first])])]
    if not before:
        return values, meter
    with tf.control_dependencies(before):
        return {name: tf.identity(value) for name, value in values.items()}, meter


def _spread(
    name: str, main: str, held: dict[str, Any], parts: Sequence[Part], devices: Sequence[str], how: Staging
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
