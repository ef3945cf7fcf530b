"""Names that numpy, Python and TensorFlow's private modules removed, restored for user code only.

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
from staging_tf1.legacy.shim import numpy_names, scipy_names, tensorflow_names, views
from staging_tf1.legacy.shim.origin import Origin

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
    "keras.utils": {"np_utils": "keras.utils"},  # what to_categorical and normalize were in
    **scipy_names.NAMES,
    **tensorflow_names.NAMES,
}
# Modules that scipy and Keras removed -> the module that has their names.
GONE_MODULES = {**scipy_names.MODULES, "keras.utils.np_utils": "keras.utils"}


def offer(module: ModuleType, origin: Origin) -> None:
    """Add the removed names of `module` through its ``__getattr__``, which Python calls only for missing names."""
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
            return _stand_in(module.__name__, name, home[1:])
        if name not in seen and not origin.is_lent(sys._getframe(1)):
            seen.add(name)
            _log.warning("%s.%s was removed; using %s instead.", module.__name__, name, _shown(home))
        return value_at(home)

    module.__dict__["__getattr__"] = __getattr__


@functools.cache
def _stand_in(module: str, name: str, instead: str) -> Any:
    return absent(f"{module}.{name} was removed in TensorFlow 2. {instead}")


class _Absent(type):
    """A class of which any use raises `RemovedNameError`, except to subclass it and to ask for its instances."""

    _message: str

    def __call__(cls, *args: Any, **kwargs: Any) -> NoReturn:
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


def run_in_graph_and_eager_modes(
    func: Any = None, config: Any = None, use_gpu: bool = True, reset_test: bool = True, **more: Any
) -> Any:
    """Run a test in a graph and eagerly, as TensorFlow's test_util does, whose decorator no longer has `reset_test`."""
    util: Any = importlib.import_module("tensorflow.python.framework.test_util")
    return views.own(util, "run_in_graph_and_eager_modes")(func, config, use_gpu=use_gpu, **more)
