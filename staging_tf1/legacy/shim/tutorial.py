"""`tf.staging.StagingArea([placeholders], dtypes=[...])`, which some tutorials show and TensorFlow never had.

It works on top of the real area, and logs the correct way to write it. Common mistakes of those tutorials raise
errors that name the mistake. For example, `unstage` of an area without elements raises; it would otherwise block
forever.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager
from types import ModuleType
from typing import Any, NoReturn

from staging_tf1._tf import scope_device, tf
from staging_tf1.errors import RemovedNameError, SpecError
from staging_tf1.graph.areas import StagingArea
from staging_tf1.graph.callsite import CallSite, call_site
from staging_tf1.graph.state import counted_state_of
from staging_tf1.legacy.shim import views

_log = logging.getLogger("staging_tf1")

# A feed thread stages its first element within this time. In a program with one thread none would ever arrive.
_GRACE_SECS = 5.0
_POLL_SECS = 0.005
# Counted, because with deterministic ops TensorFlow refuses to read the clock.
_MOST_POLLS = round(_GRACE_SECS / _POLL_SECS)


class TutorialStagingArea:
    """The area that tutorials show: declared by tensors, with `stage` and `unstage`.

    The dtypes and static shapes of `tensors` define the element. A capacity or memory limit (bytes) of 0 is no limit.

    Raises:
      staging_tf1.errors.SpecError: `dtypes` contradicts `tensors`.
      staging_tf1.errors.BuildError: the area is made inside the training loop.
    """

    def __init__(
        self, tensors: Any, dtypes: Any = None, capacity: int = 0, memory_limit: int = 0, **unknown: Any
    ) -> None:
        if unknown:
            raise TypeError(
                f"tf.staging.StagingArea got {', '.join(sorted(unknown))}, expected tensors, dtypes, capacity and "
                "memory_limit."
            )
        _check_dtypes(tensors, dtypes)
        with _device_scope():
            self._area = StagingArea.from_tensors(tensors, capacity=capacity, memory_limit=memory_limit)
        self._calls: dict[CallSite, int] = {}
        self._warned = False
        _once(
            "api",
            "%s: tf.staging.StagingArea with stage() and unstage() is not a TensorFlow API; it is emulated with "
            "the real one. Write: area = tf.contrib.staging.StagingArea([tf.float32, ...], shapes=[...]), "
            "put = area.put([...]), got = area.get(), all before the training loop.",
            self._area,
        )

    @property
    def area(self) -> StagingArea:
        """The real area behind this one."""
        return self._area

    def stage(self, values: Any, name: str | None = None) -> Any:
        """Return the op that puts one element: a tensor or numpy array for each component.

        Raises SpecError if the values do not fit the declared components.
        """
        self._count_call("stage()")
        listed = values if isinstance(values, (list, tuple, dict)) else [values]
        try:
            return self._area.put(listed, name)
        except SpecError as error:
            raise SpecError(
                f"{error} Or declare the area with the dtype that you stage: "
                "tf.staging.StagingArea([placeholders of that dtype], dtypes=[that dtype])."
            ) from error

    def unstage(self, name: str | None = None) -> Any:
        """Return tensors that take the oldest element, as `tf.contrib.staging.StagingArea.get` does.

        If the area stays empty for a few seconds, running them raises `tf.errors.InvalidArgumentError`.
        """
        self._count_call("unstage()")
        with tf.control_dependencies([self._assert_not_empty()]):
            return self._area.get(name)

    def size(self, name: str | None = None) -> Any:
        """Return the number of elements, an int32 scalar."""
        return self._area.size(name)

    def clear(self, name: str | None = None) -> Any:
        """Return the op that removes all elements."""
        return self._area.clear(name)

    def _assert_not_empty(self) -> Any:
        def waits(size: Any, polls: Any) -> Any:
            return tf.logical_and(tf.equal(size, 0), polls < _MOST_POLLS)

        def looks_again(size: Any, polls: Any) -> Any:
            with tf.control_dependencies([tf.numpy_function(_sleep, [], [], name="wait")]):
                return self._area.size(), polls + 1

        with tf.device("/device:CPU:0"), tf.name_scope("unstage_guard"):
            size, _ = tf.while_loop(waits, looks_again, [self._area.size(), 0], parallel_iterations=1)
            return tf.Assert(
                size > 0,
                [
                    f"{self._area} is empty, and no element arrived within {_GRACE_SECS:.0f} s: the op that stage() "
                    "returned was never run, or was run less often than unstage(). Build the area, stage() and "
                    "unstage() once, before the training loop, and run the op of stage() before each unstage()."
                ],
            )

    def _count_call(self, method: str) -> None:
        site = call_site()
        runs = counted_state_of(self._area.graph).runs
        if self._calls.setdefault(site, runs) != runs and not self._warned:
            self._warned = True
            _log.warning(
                "%s: %s is called again at %s after the graph has run: each call adds ops to the graph, and "
                "the program slows down with every step. Call stage() and unstage() once, before the loop, "
                "with placeholders for the values that change.",
                self._area,
                method,
                site,
            )


def _check_dtypes(tensors: Any, dtypes: Any) -> None:
    listed = list(tensors) if isinstance(tensors, (list, tuple)) else [tensors]
    if not all(tf.is_tensor(tensor) for tensor in listed):
        raise SpecError(
            f"tf.staging.StagingArea got {tensors!r}, expected a list of placeholders as the first argument. To "
            "declare only dtypes, write tf.contrib.staging.StagingArea([tf.float32, ...])."
        )
    if dtypes is None:
        return
    given: Sequence[Any] = [tf.as_dtype(dtype) for dtype in dtypes]
    if len(given) != len(listed):
        raise SpecError(
            f"tf.staging.StagingArea got {len(listed)} tensors and {len(given)} dtypes. Pass one dtype for each tensor."
        )
    for index, (tensor, dtype) in enumerate(zip(listed, given, strict=True)):
        if tensor.dtype.base_dtype != dtype:
            raise SpecError(
                f"tf.staging.StagingArea: component {index} ({tensor.name}) is {tensor.dtype.base_dtype.name}, but "
                f"dtypes declares {dtype.name}. Use the same dtype in the placeholder and in dtypes."
            )


def _device_scope() -> AbstractContextManager[Any]:
    """Return a CPU scope if the current scope names a GPU on a machine without one, else a null context."""
    requested = scope_device()
    if "GPU" not in requested.upper() or tf.config.list_physical_devices("GPU"):
        return contextlib.nullcontext()
    _once("device", "tf.staging.StagingArea: device %s does not exist; placing the area on the CPU.", requested)
    return tf.device("/device:CPU:0")  # type: ignore[no-any-return]


_logged: set[str] = set()


def _once(key: str, message: str, *arguments: Any) -> None:
    if key not in _logged:
        _logged.add(key)
        _log.warning(message, *arguments)


def _sleep() -> None:
    time.sleep(_POLL_SECS)


@functools.cache
def module() -> ModuleType:
    """Return the `tf.staging` module, the same one on every call."""
    staging = views.lazy(ModuleType("tensorflow.staging", __doc__), _refuse)
    staging.__dict__["StagingArea"] = TutorialStagingArea
    return staging


def _refuse(name: str) -> NoReturn:
    raise RemovedNameError(
        f"tf.staging.{name}: TensorFlow never had a module tf.staging; the areas are in tf.contrib.staging."
    )
