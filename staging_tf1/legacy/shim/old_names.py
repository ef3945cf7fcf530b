"""Names that Python, TensorFlow's private modules and other libraries removed, restored for user code only.

The first use of each name is logged.
"""

from __future__ import annotations

import collections.abc
import ctypes
import functools
import importlib
import logging
import sys
from collections.abc import Callable, Iterator, Mapping
from types import ModuleType
from typing import Any, NoReturn

from staging_tf1.errors import RemovedNameError
from staging_tf1.legacy.shim import views
from staging_tf1.legacy.shim.origin import Origin
from staging_tf1.legacy.shim.tables import LIBRARIES, NUMPY, PYTHON, SCIPY, TENSORFLOW, Homes

_log = logging.getLogger("staging_tf1")

_TABLES = (PYTHON, NUMPY, SCIPY, LIBRARIES, TENSORFLOW)
_COLLECTIONS = {name: f"collections.abc:{name}" for name in collections.abc.__all__ if not hasattr(collections, name)}
# Module -> removed name -> home; see tables.py.
MODULES: Homes = {
    "collections": _COLLECTIONS,
    **{owner: names for table in _TABLES for owner, names in table.names.items()},
}
# Modules that Python and other libraries removed.
GONE_MODULES = PYTHON.modules | SCIPY.modules | LIBRARIES.modules
# "module:Class" -> attributes that are gone, and those that have changed.
METHODS: Homes = {owner: names for table in _TABLES for owner, names in table.attributes.items()}
CHANGED = PYTHON.changed | LIBRARIES.changed
OFFERED = {*MODULES, *(owner.partition(":")[0] for owner in (*METHODS, *CHANGED))}


def offer(module: ModuleType, origin: Origin) -> None:
    """Add the removed names of a loaded module of `OFFERED`, those of its classes, and its changed functions."""
    if module.__name__ in MODULES:
        _offer_names(module, origin)
    for owners in (METHODS, CHANGED):
        for owner, names in owners.items():
            if owner.partition(":")[0] == module.__name__:
                _offer_attributes(owner, names, origin, is_changed=owners is CHANGED)


def _offer_names(module: ModuleType, origin: Origin) -> None:
    """Offer names through the ``__getattr__`` of a module, which Python calls only for missing names."""
    removed = MODULES[module.__name__]
    public = module.__name__.replace("tensorflow._api.v2.compat.v1", "tf")
    before = module.__dict__.get("__getattr__")
    seen: set[str] = set()

    def __getattr__(name: str) -> Any:
        home = removed.get(name)
        if home is None or not origin.sees_old_names(sys._getframe(1)):
            if before is not None:
                return before(name)
            raise AttributeError(f"module {module.__name__!r} has no attribute {name!r}")
        return _instead(f"{public}.{name}", home, seen, not origin.is_lent(sys._getframe(1)))

    module.__dict__["__getattr__"] = __getattr__


def _offer_attributes(owner: str, names: Mapping[str, str], origin: Origin, is_changed: bool) -> None:
    kind = value_at(owner)
    for name, home in names.items():
        full = f"{owner.replace(':', '.')}.{name}"
        if isinstance(kind, ModuleType):
            if not isinstance(there := getattr(kind, name), _Function):
                setattr(kind, name, _Function(origin, f"{owner}:{name}", home, there))
            continue
        there = next((vars(base)[name] for base in kind.__mro__ if name in vars(base)), None)
        if isinstance(there, _Attribute) or (there is not None) != is_changed:
            continue
        if home.startswith("="):
            setattr(kind, name, value_at(home[1:])(full))
        elif not _set_attribute(kind, name, _Attribute(origin, full, home, there)):
            _log.warning("%s cannot be restored in this version of Python. Use %s.", full, _shown(home))


# Where a type of CPython keeps its flags, and the one that setattr() respects.
_FLAGS_OFFSET = 21 * ctypes.sizeof(ctypes.c_void_p)
_IMMUTABLE = 1 << 8


def _set_attribute(kind: type, name: str, value: Any) -> bool:
    """Set an attribute of a type, also of one in C, which Python marks as immutable. Return whether that was possible.

    Rewriting the source of user modules instead would miss the program itself, which Python and not the import system
    loads. In a Python whose types look different nothing is written.
    """
    if not kind.__flags__ & _IMMUTABLE:
        setattr(kind, name, value)
        return True
    # With types of other flags, so that they agree by chance at no other place.
    fields = {each: ctypes.c_ulong.from_address(id(each) + _FLAGS_OFFSET) for each in (kind, int, list, type, Origin)}
    if any(field.value != each.__flags__ for each, field in fields.items()):
        return False
    fields[kind].value &= ~_IMMUTABLE
    try:
        setattr(kind, name, value)
    finally:
        fields[kind].value |= _IMMUTABLE
    return True


class _Function:
    """A function of a module that has changed, and that user code sees as in an old release."""

    def __init__(self, origin: Origin, place: str, home: str, genuine: Callable[..., Any]) -> None:
        functools.update_wrapper(self, genuine)
        self._origin = origin
        self._place = place
        self._home = home
        self._genuine = genuine

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        # The interpreter calls io.open without a frame when it prints a traceback.
        if self._origin.sees_old_names(sys._getframe().f_back):
            return value_at(self._home)(self._genuine, *args, **kwargs)
        return self._genuine(*args, **kwargs)

    def __reduce__(self) -> Any:
        return value_at, (self._place,)


class _Attribute:
    """An attribute of a class that user code sees as in an old release. Other code sees the class as it is.

    Args:
      full: its full name, for messages.
      home: where its value is, or "!" and what to do instead.
      genuine: the method in the class, which the value at `home` calls; None if there is none.
    """

    def __init__(self, origin: Origin, full: str, home: str, genuine: Any) -> None:
        self._origin = origin
        self._full = full
        self._home = home
        self._genuine = genuine
        self._seen: set[str] = set()

    def __get__(self, instance: Any, owner: type) -> Any:
        if not self._origin.sees_old_names(sys._getframe(1)):
            if self._genuine is not None:
                return self._genuine.__get__(instance, owner)
            raise AttributeError(f"{owner.__name__!r} object has no attribute {self._full.rpartition('.')[2]!r}")
        if self._genuine is not None:
            value = functools.partial(value_at(self._home), self._genuine)
            return value if instance is None else functools.partial(value, instance)
        value = _instead(self._full, self._home, self._seen, True)
        return value.__get__(instance, owner) if hasattr(value, "__get__") else value


def _instead(full: str, home: str, seen: set[str], logs: bool) -> Any:
    """Return the value at the home of a removed name. The first use is logged."""
    if home.startswith("!"):
        return removed_name(full, home[1:])
    if logs and full not in seen:
        seen.add(full)
        _log.warning("%s was removed; using %s instead.", full, _shown(home))
    return value_at(home)


@functools.cache
def removed_name(full: str, instead: str) -> Any:
    """Return a stand-in for a name that is gone, whose use raises what to do instead."""
    since = " in TensorFlow 2" if full.startswith(("tensorflow", "tf.")) else ""
    return absent(f"{full} was removed{since}. {instead}")


class _Absent(type):
    """A class of which any use raises `RemovedNameError`, except to subclass it and to ask for its instances."""

    _message: str

    def __call__(cls, *args: Any, **kwargs: Any) -> NoReturn:
        raise RemovedNameError(cls._message)

    def __getitem__(cls, key: Any) -> NoReturn:
        raise RemovedNameError(cls._message)

    def __setitem__(cls, key: Any, value: Any) -> NoReturn:
        raise RemovedNameError(cls._message)

    def __getattr__(cls, name: str) -> NoReturn:
        if name.startswith("__"):
            raise AttributeError(name)  # copy, pickle and inspect look these names up on any object
        raise RemovedNameError(cls._message)

    def __repr__(cls) -> str:
        return f"<{cls._message}>"


def absent(message: str) -> type:
    """Return a stand-in for a name that old code may import without using it."""
    return _Absent("Absent", (), {"_message": message})


def value_at(home: str) -> Any:
    """Return the value of "module:attribute", where the attribute may be a path; a module without an attribute."""
    module, _, path = home.partition(":")
    value: Any = importlib.import_module(module)
    return functools.reduce(getattr, path.split("."), value) if path else value


def _shown(home: str) -> str:
    module, _, attribute = home.partition(":")
    if module == "builtins":
        return f"Python's {attribute}"
    if module.startswith("staging_tf1."):
        return f"staging_tf1's {attribute}"
    return f"{module}.{attribute}" if attribute else f"the module {module}"


# ---- functions that need more than another name


class Ignored:
    """A setting that TensorFlow has removed. It is false, takes any attribute and value, and does nothing."""

    def __init__(self, full: str = "") -> None:
        self.__dict__["full"] = full

    def __get__(self, instance: Any, owner: type) -> Any:
        return self

    def __set__(self, instance: Any, value: Any) -> None:
        self.__setattr__("", value)

    def __getattr__(self, name: str) -> None:
        if name.startswith("__"):
            raise AttributeError(name)

    def __setattr__(self, name: str, value: Any) -> None:
        if self.__dict__["full"]:
            _log.warning("%s was removed. Setting it has no effect; the results stay the same.", self.full)
            self.__dict__["full"] = ""

    def __bool__(self) -> bool:
        return False


def auto_shard(full: str) -> Any:
    """Return the property `auto_shard` of the class `DistributeOptions`, which has a policy instead."""
    return property(
        lambda self: self.auto_shard_policy.name != "OFF",
        lambda self, value: setattr(
            self, "auto_shard_policy", type(self.auto_shard_policy)["OFF" if value is False else "AUTO"]
        ),
    )


def experimental_run_v2(self: Any, fn: Any, args: Any = (), kwargs: Any = None) -> Any:
    """Run a function on each replica of a strategy."""
    return self.run(fn, args, kwargs)


def list_devices() -> list[str]:
    """Return the names of the devices."""
    devices = importlib.import_module("tensorflow.python.framework.config").list_logical_devices()
    return [f"/job:localhost/replica:0/task:0{device.name}" for device in devices]


def unknown_shape(op: Any) -> list[Any]:
    """Return unknown shapes of the outputs of `op`, which is what a shape function of TF1 returns."""
    shape = importlib.import_module("tensorflow.python.framework.tensor_shape").unknown_shape
    return [shape() for _ in op.outputs]


def scalar(*sizes: Any, **named: Any) -> Any:
    """Return the shape of a scalar, a vector or a matrix."""
    return importlib.import_module("tensorflow.python.framework.tensor_shape").TensorShape([*sizes, *named.values()])


vector = matrix = scalar


def register_nothing(*_: Any) -> Callable[[Any], Any]:
    """Stand in for a function that registers something which TensorFlow 2 does not need; also as a decorator."""
    return lambda function: function


class _RegisteredOps(Mapping[str, Any]):
    def __getitem__(self, name: str) -> Any:
        definition = importlib.import_module("tensorflow.python.framework.op_def_registry").get(name)
        if definition is None:
            raise KeyError(name)
        return definition

    def __iter__(self) -> Iterator[str]:
        util = importlib.import_module("tensorflow.python.framework.c_api_util")
        return iter(util.ApiDefMap().op_names())

    def __len__(self) -> int:
        return sum(1 for _ in self)


def get_registered_ops() -> Mapping[str, Any]:
    """Return the definitions of all ops, by name."""
    return _RegisteredOps()


class OpDefLibrary:
    """Makes ops by name, as the generated functions of TF1 did."""

    def add_op(self, op_def: Any) -> None:
        """Do nothing: the op is registered with its kernels."""

    def add_op_list(self, op_list: Any) -> None:
        """Do nothing: the ops are registered with their kernels."""

    def apply_op(self, op_type_name: str, name: str | None = None, **keywords: Any) -> Any:
        """Add an op to the graph; return its outputs, or the op if it has none."""
        library = importlib.import_module("tensorflow.python.framework.op_def_library")
        return library.apply_op(op_type_name, name, **keywords)


def run_in_graph_and_eager_modes(
    func: Any = None, config: Any = None, use_gpu: bool = True, reset_test: bool = True, **more: Any
) -> Any:
    """Run a test in a graph and eagerly, as TensorFlow's test_util does, whose decorator no longer has `reset_test`."""
    util: Any = importlib.import_module("tensorflow.python.framework.test_util")
    return views.own(util, "run_in_graph_and_eager_modes")(func, config, use_gpu=use_gpu, **more)
