"""Finds areas that are on a different device than the ops they feed.

An area on the CPU can feed a model on a GPU, but every step then waits for the copy that the area should hide.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from staging_tf1._tf import tf
from staging_tf1.errors import PlacementWarning
from staging_tf1.graph.callsite import site_of_op

__all__ = ["absent_devices_named", "is_on_cpu", "placement_warning", "resolved_device", "warn_misplaced"]

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
    """Warn of each misplaced area with a `PlacementWarning` at the area's line, once per area.

    Args:
      areas: areas of one graph, such as `areas_of(graph)`.
      session_devices: the names in `Session.list_devices()`.
    """
    for area in areas:
        if area.placement_warned:
            continue
        message = placement_warning(area.device, str(area), area.outputs, session_devices)
        if message:
            area.placement_warned = True
            warnings.warn_explicit(message, PlacementWarning, area.made_at.filename, area.made_at.lineno)


def placement_warning(
    area_device: str, area_name: str, tensors: Iterable[Any], session_devices: Sequence[str]
) -> str | None:
    """Return the warning for an area on the CPU whose consumers are on another device, or None.

    Args:
      area_device: the device string of the area; "" without one.
      area_name: the area's name for the message.
      tensors: what `get` and `peek` returned.
      session_devices: the names in `Session.list_devices()`.

    >>> with tf.Graph().as_default():
    ...     batch = tf.placeholder(tf.float32, name="batch")
    ...     with tf.device("/device:GPU:0"):
    ...         loss = tf.square(batch, name="loss")
    >>> devices = ["/device:CPU:0", "/device:GPU:0"]
    >>> print(placement_warning("/device:CPU:0", "area 'train'", [batch], devices))  # doctest: +ELLIPSIS
    area 'train' is on CPU:0, but 'loss' (Square), which consumes it, is on GPU:0: ...

    Without a device string the area is placed on the GPU as well:

    >>> placement_warning("", "area 'train'", [batch], devices)
    """
    home = resolved_device(area_device, session_devices)
    if not home.startswith("CPU:"):
        return None
    elsewhere = [
        (op, device)
        for op in _consumers(tensors)
        if (device := _explicit_device(op, session_devices)) not in (None, home)
    ]
    if not elsewhere:
        return None
    op, device = elsewhere[0]
    others = f" and {len(elsewhere) - 1} more" if len(elsewhere) > 1 else ""
    which = "which consumes it, is" if not others else "which consume it, are"
    return (
        f"{area_name} is on {home}, but {op.name!r} ({op.type}){others}, {which} on {device}: every step waits for the "
        f"copy. Build the area there: within `with tf.device('/device:{device}'):`, or "
        f"staged(..., device='/device:{device}')."
    )


def resolved_device(device: str, session_devices: Sequence[str]) -> str:
    """Return the device, such as "GPU:0", on which a session places an op with that device string.

    >>> resolved_device("", ["/device:CPU:0", "/device:GPU:0"]), resolved_device("/gpu:1", ["/device:CPU:0"])
    ('GPU:0', 'CPU:0')
    """
    present = {spec.device_type for spec in map(tf.DeviceSpec.from_string, session_devices)}
    spec = tf.DeviceSpec.from_string(device or "")
    # Soft placement moves an op to the CPU if the session lacks its device. Without soft placement the session raises.
    kind = spec.device_type or ("GPU" if "GPU" in present else "CPU")
    if kind not in present:
        return "CPU:0"
    return f"{kind}:{spec.device_index or 0}"


def is_on_cpu(device: str) -> bool:
    """Whether an op with that device string is certainly on a CPU: this process has no other devices."""
    kind = tf.DeviceSpec.from_string(device).device_type
    return kind in (None, "CPU") and all(each.device_type == "CPU" for each in tf.config.list_physical_devices())


def _explicit_device(op: Any, session_devices: Sequence[str]) -> str | None:
    if not op.device or tf.DeviceSpec.from_string(op.device).device_type is None:
        return None
    return resolved_device(op.device, session_devices)


def _consumers(tensors: Iterable[Any]) -> Iterator[Any]:
    """Yield the ops that use the tensors, looking through ops that only pass them on."""
    waiting = list(tensors)
    seen = set()
    while waiting:
        for op in waiting.pop(0).consumers():
            if op.name in seen:
                continue
            seen.add(op.name)
            if op.type in _PASSED_THROUGH:
                waiting.extend(op.outputs)
            else:
                yield op
