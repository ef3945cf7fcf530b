"""`Part`: the components of each element of an area that another device holds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from staging_tf1._tf import tf
from staging_tf1.graph.token_area import host_of


class Part:
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


def home_of(tensor: Any, device: str) -> str:
    """Return where a tensor of a device can be stored: on the device's host if the device cannot hold strings."""
    return host_of(device) if tensor.dtype == tf.string else device


def device_of(op: Any) -> str:
    """Return the device that the program has chosen for an op of this process, as "/device:GPU:1"; empty if none."""
    spec = tf.DeviceSpec.from_string(op.device or "")
    if spec.device_type is None or spec.job not in (None, "localhost"):
        return ""
    return f"/device:{spec.device_type}:{spec.device_index or 0}"
