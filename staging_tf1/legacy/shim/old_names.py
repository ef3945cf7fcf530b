"""Names that Python, TensorFlow's private modules and other libraries removed, restored for user code only.

The first use of each name is logged.
"""

from __future__ import annotations

import collections.abc
import functools
import importlib
import logging
import sys
from collections.abc import Callable, Iterator, Mapping
from types import ModuleType
from typing import Any, NoReturn

from staging_tf1.errors import RemovedNameError
from staging_tf1.legacy.shim import library_names, numpy_names, scipy_names, tensorflow_names, views
from staging_tf1.legacy.shim.origin import Origin
from staging_tf1.legacy.shim.tensorflow_names import Gone

_log = logging.getLogger("staging_tf1")

_COLLECTIONS = {name: f"collections.abc:{name}" for name in collections.abc.__all__ if not hasattr(collections, name)}
# Module -> removed name -> current home of its value ("module:attribute"; "builtins" for Python's own types).
MODULES: dict[str, dict[str, str]] = {
    "numpy": numpy_names.NAMES,
    "numpy.lib": numpy_names.LIB,
    "collections": _COLLECTIONS,
    "inspect": {"getargspec": "staging_tf1.legacy.shim.old_names:getargspec"},
    "time": {"clock": "time:perf_counter"},
    "fractions": {"gcd": "math:gcd"},
    **library_names.NAMES,
    **scipy_names.NAMES,
    **tensorflow_names.NAMES,
}
# Modules that other libraries removed.
GONE_MODULES = {
    **library_names.MODULES,
    **{name: Gone((home,), "scipy has removed it.") for name, home in scipy_names.MODULES.items()},
}
# "module:Class" -> attributes that are gone or, in the second, have changed.
_OF_CLASSES = (library_names.METHODS, library_names.CHANGED)
OFFERED = {*MODULES, *(owner.partition(":")[0] for owners in _OF_CLASSES for owner in owners)}


def offer(module: ModuleType, origin: Origin) -> None:
    """Add the removed names of a loaded module of `OFFERED`, those of its classes, and its changed functions."""
    if module.__name__ in MODULES:
        _offer_names(module, origin)
    for owners in _OF_CLASSES:
        for owner, names in owners.items():
            if owner.partition(":")[0] == module.__name__:
                _offer_attributes(owner, names, origin)


def _offer_names(module: ModuleType, origin: Origin) -> None:
    """Offer names through the ``__getattr__`` of a module, which Python calls only for missing names."""
    removed = MODULES[module.__name__]
    before = module.__dict__.get("__getattr__")
    seen: set[str] = set()

    def __getattr__(name: str) -> Any:
        home = removed.get(name)
        if home is None or not origin.sees_old_names(sys._getframe(1)):
            if before is not None:
                return before(name)
            raise AttributeError(f"module {module.__name__!r} has no attribute {name!r}")
        if home.startswith("!"):
            return removed_name(f"{module.__name__}.{name}", home[1:])
        if name not in seen and not origin.is_lent(sys._getframe(1)):
            seen.add(name)
            _log.warning("%s.%s was removed; using %s instead.", module.__name__, name, _shown(home))
        return value_at(home)

    module.__dict__["__getattr__"] = __getattr__


def _offer_attributes(owner: str, names: Mapping[str, str], origin: Origin) -> None:
    kind = value_at(owner)
    for name, home in names.items():
        if isinstance(kind, ModuleType):
            if not isinstance(there := getattr(kind, name), _Function):
                setattr(kind, name, _Function(origin, home, there))
            continue
        there = next((vars(base)[name] for base in kind.__mro__ if name in vars(base)), None)
        is_changed = owner in library_names.CHANGED
        if not isinstance(there, _Attribute) and (there is not None) == is_changed:
            setattr(kind, name, _Attribute(origin, f"{owner.replace(':', '.')}.{name}", home, there))


class _Function:
    """A function of a module that has changed, and that user code sees as in an old release."""

    def __init__(self, origin: Origin, home: str, genuine: Callable[..., Any]) -> None:
        functools.update_wrapper(self, genuine)
        self._origin = origin
        self._home = home
        self._genuine = genuine

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self._origin.sees_old_names(sys._getframe(1)):
            return value_at(self._home)(self._genuine, *args, **kwargs)
        return self._genuine(*args, **kwargs)


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
        self._seen = False

    def __get__(self, instance: Any, owner: type) -> Any:
        if not self._origin.sees_old_names(sys._getframe(1)):
            if self._genuine is not None:
                return self._genuine.__get__(instance, owner)
            raise AttributeError(f"{owner.__name__!r} object has no attribute {self._full.rpartition('.')[2]!r}")
        if self._home.startswith("!"):
            return removed_name(self._full, self._home[1:])
        value = value_at(self._home)
        if self._genuine is not None:
            value = functools.partial(value, self._genuine)
            return value if instance is None else functools.partial(value, instance)
        if not self._seen:
            self._seen = True
            _log.warning("%s was removed; using %s instead.", self._full, _shown(self._home))
        return value.__get__(instance, owner)


@functools.cache
def removed_name(full: str, instead: str) -> Any:
    """Return a stand-in for a name that is gone, whose use raises what to do instead."""
    since = " in TensorFlow 2" if full.startswith("tensorflow") else ""
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

ArgSpec = collections.namedtuple("ArgSpec", "args varargs keywords defaults")


def getargspec(function: Callable[..., Any]) -> Any:
    """Return the arguments of `function` as `inspect.getargspec` did before Python 3.11.

    Raises ValueError for keyword-only arguments and annotations, which the old form cannot represent.
    """
    full = importlib.import_module("inspect").getfullargspec(function)
    if full.kwonlyargs or full.annotations:
        raise ValueError(
            "Function has keyword-only parameters or annotations, use inspect.signature() API which can support them"
        )
    return ArgSpec(full.args, full.varargs, full.varkw, full.defaults)


def unknown_shape(op: Any) -> list[Any]:
    """Return unknown shapes of the outputs of `op`, which is what a shape function of TF1 returns."""
    shape = importlib.import_module("tensorflow.python.framework.tensor_shape").unknown_shape
    return [shape() for _ in op.outputs]


def scalar() -> Any:
    """Return the shape of a scalar."""
    return _shape([])


def vector(length: Any) -> Any:
    """Return the shape of a vector."""
    return _shape([length])


def matrix(rows: Any, cols: Any) -> Any:
    """Return the shape of a matrix."""
    return _shape([rows, cols])


def _shape(sizes: list[Any]) -> Any:
    return importlib.import_module("tensorflow.python.framework.tensor_shape").TensorShape(sizes)


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
