"""Finds areas that are on a different device than the ops they feed.

An area on the CPU can feed a model on a GPU, but every step then waits for the copy that the area should hide.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from staging_tf1._tf import tf
from staging_tf1.errors import PlacementWarning
from staging_tf1.graph.callsite import site_of_op

# Ops that only pass a tensor on. The ops that use their output are the consumers.
_PASSED_THROUGH = frozenset({"EnsureShape", "Identity", "IdentityN", "Snapshot", "StopGradient"})

_ABSENT = re.compile(
    r"Cannot assign a device for operation (\S+): .*explicitly assigned to (\S+) but available devices are \[ (.*?) \]",
    re.DOTALL,
)


@contextmanager
def absent_devices_named(graph: Any) -> Iterator[None]:
    """Name the user's line and the cure, where TensorFlow names an op that it cannot place.

    Raises:
      tf.errors.InvalidArgumentError: the device of an op is not there.
    """
    try:
        yield
    except tf.errors.InvalidArgumentError as error:
        match = _ABSENT.search(error.message)
        if match is None:
            raise
        name, device, there = match.groups()
        site = site_of_op(graph.get_operation_by_name(name))
        # TensorFlow's own text would follow twice.
        raise tf.errors.InvalidArgumentError(
            error.node_def,
            error.op,
            f"'{name}'{f' (made at {site})' if site else ''} is on {device}, and this process has "
            f"{', '.join(re.findall(r'device:(.PU:[0-9]+)', there)) or there}. {_cure(graph, device)}",
        ) from None


def _cure(graph: Any, absent: str) -> str:
    device = tf.DeviceSpec.from_string(absent)
    if device.device_type != "CPU" or not device.device_index:
        choose = "config=tf.ConfigProto(allow_soft_placement=True)"
        return f"Use device=None or a device that is there, or let TensorFlow choose: {choose}."
    specs = [tf.DeviceSpec.from_string(op.device) for op in graph.get_operations() if op.device]
    count = 1 + max(spec.device_index or 0 for spec in specs if spec.device_type == "CPU")
    return (
        f"A process has one CPU device unless it asks for more: config=tf.ConfigProto(device_count={{'CPU': {count}}})."
    )


def warn_misplaced(areas: Iterable[Any], session_devices: Sequence[str]) -> None:
    """Warn once, at its line, of each area on the CPU whose consumers are on another device.

    Args:
      areas: areas of one graph, such as `areas_of(graph)`.
      session_devices: the names in `Session.list_devices()`.
    """
    kinds = {tf.DeviceSpec.from_string(device).device_type for device in session_devices}
    for area in areas:
        home = _placed(area.device, kinds)
        if area.placement_warned or not home.startswith("CPU:"):
            continue
        # Others may be placed beside the area.
        explicit = [op for op in _consumers(area.outputs) if tf.DeviceSpec.from_string(op.device).device_type]
        elsewhere = [(op, device) for op in explicit if (device := _placed(op.device, kinds)) != home]
        if not elsewhere:
            continue
        area.placement_warned = True
        op, device = elsewhere[0]
        others = (
            f" and {len(elsewhere) - 1} more, which consume it, are" if elsewhere[1:] else ", which consumes it, is"
        )
        message = (
            f"{area} is on {home}, but {op.name!r} ({op.type}){others} on {device}: every step waits for the copy. "
            f"Build the area there: within `with tf.device('/device:{device}'):`, or staged(..., "
            f"device='/device:{device}')."
        )
        warnings.warn_explicit(message, PlacementWarning, area.made_at.filename, area.made_at.lineno)


def _placed(device: str, kinds: Collection[str]) -> str:
    """Return the device, such as "GPU:0", on which a session with these kinds places an op with that device string."""
    spec = tf.DeviceSpec.from_string(device)
    kind = spec.device_type or ("GPU" if "GPU" in kinds else "CPU")
    # Soft placement moves an op to the CPU if the session lacks its device. Without soft placement the session raises.
    return f"{kind}:{spec.device_index or 0}" if kind in kinds else "CPU:0"


def _consumers(tensors: Iterable[Any]) -> Iterator[Any]:
    """Yield the ops that use the tensors, looking through ops that only pass them on."""
    found = dict.fromkeys(op for tensor in tensors for op in tensor.consumers())
    waiting = list(found)
    for op in waiting:
        if op.type not in _PASSED_THROUGH:
            yield op
            continue
        new = dict.fromkeys(user for tensor in op.outputs for user in tensor.consumers() if user not in found)
        found.update(new)
        waiting.extend(new)


def is_on_cpu(device: str) -> bool:
    """Whether an op with that device string is certainly on a CPU: this process has no other devices."""
    kind = tf.DeviceSpec.from_string(device).device_type
    return kind in (None, "CPU") and all(each.device_type == "CPU" for each in tf.config.list_physical_devices())
