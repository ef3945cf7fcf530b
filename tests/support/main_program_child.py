"""Calls what a main program defines in a worker: `python main_program_child.py FOLDER`. Prints what is wrong."""

from __future__ import annotations

import enum
import functools
import importlib.util
import sys
import threading
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pools import pools

from staging_tf1.sources import Source
from staging_tf1.workers.shipping import check_picklable

LOCAL = threading.local()


@functools.cache
def cached(key: int) -> int:
    return key * 10


@functools.lru_cache(maxsize=3, typed=True)
def limited(key: int) -> int:
    return key * 10


@functools.lru_cache
def recursive(key: int) -> int:
    return recursive(key - 1) + 10 if key else 0


def wrapping(function: Callable[[int], int]) -> Any:
    @functools.wraps(function)
    def wrapped(*keys: int) -> int:
        return function(*keys)

    return wrapped


@wrapping
def wrapped(key: int) -> int:
    return key * 10


@functools.cache
@wrapping
def cached_wrapped(key: int) -> int:
    return key * 10


@wrapping
@functools.cache
def wrapped_cached(key: int) -> int:
    return key * 10


@functools.singledispatch
def dispatched(key: Any) -> int:
    return -1


@dispatched.register
def _(key: int) -> int:
    return key * 10


assert dispatched(1) == 10 and recursive(5) == 50  # fills their caches


def of_this_thread(key: int) -> int:
    LOCAL.unit = 10
    return key * LOCAL.unit


class Kind:
    unit = 10

    def __init__(self) -> None:
        self.lock = threading.Lock()

    def method(self, key: int) -> int:
        with self.lock:
            return key * self.unit

    @functools.cache  # noqa: B019 (programs do)
    def cached(self, key: int) -> int:
        return key * 10

    @staticmethod
    @functools.lru_cache
    def cached_static(key: int) -> int:
        return key * 10

    @classmethod
    @functools.cache
    def cached_of_class(cls, key: int) -> int:
        return key * cls.unit

    @functools.singledispatchmethod
    def dispatched(self, key: Any) -> int:
        return -1

    @dispatched.register
    def _(self, key: int) -> int:
        return key * 10


class Derived(Kind):
    def method(self, key: int) -> int:
        return super().method(key)


class Color(enum.Enum):
    TEN = 10

    def method(self, key: int) -> int:
        return key * self.value if self is Color.TEN and Color(10) is self else -1


def closure(unit: int) -> Any:
    def inner(key: int) -> int:
        return key * unit

    return inner


def traced() -> Any:
    """A function to whose constants a tracer or debugger has added objects."""
    constants = (*cached.__wrapped__.__code__.co_consts, threading.Lock, print)
    return types.FunctionType(cached.__wrapped__.__code__.replace(co_consts=constants), globals())


KINDS: dict[str, Callable[[int], Any]] = {
    "functools.cache": cached,
    "lru_cache(maxsize)": limited,
    "lru_cache, recursive": recursive,
    "wraps": wrapped,
    "cache of wraps": cached_wrapped,
    "wraps of cache": wrapped_cached,
    "cache of a lambda": functools.cache(lambda key: key * 10),
    "cache of a closure": functools.cache(closure(10)),
    "uses a cached function": lambda key: cached(key),
    "singledispatch": dispatched,
    "thread-local": of_this_thread,
    "partial of a cached function": functools.partial(cached),
    "traced": traced(),
    "method": Kind().method,
    "super": Derived().method,
    "cached method": Kind().cached,
    "cached staticmethod": Kind.cached_static,
    "cached classmethod": Kind.cached_of_class,
    "singledispatchmethod": Kind().dispatched,
    "enum": Color.TEN.method,
}

MODULE = """
import dataclasses, functools

def unit(): return 10

@functools.cache
def cached(key): return key * unit()

@dataclasses.dataclass
class Data:
    ten: int = 10
    def method(self, key): return key * self.ten

def plain(key): return cached(key)
"""


def loaded(name: str, path: Path) -> Any:
    """Load a module by its path and register it, as the documentation of `importlib` does."""
    path.parent.mkdir(exist_ok=True)
    path.write_text(MODULE)
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def modules(folder: Path) -> dict[str, Callable[[int], Any]]:
    """Return functions of modules that another process cannot import, or would import from another file."""
    folder.joinpath("shadowed.py").write_text("raise ImportError('the wrong file')\n")
    folder.joinpath("importable.py").write_text(
        "import sys\ndef here(key): return 10 * key * (__name__ in sys.modules)\n"
    )
    sys.path.insert(0, str(folder))
    by_path = loaded("by_path", folder / "elsewhere" / "conf.py")
    shadowed = loaded("shadowed", folder / "elsewhere" / "shadowed.py")
    dotted = loaded("configs.train", folder / "elsewhere" / "train.py")
    by_hand = sys.modules["by_hand"] = types.ModuleType("by_hand")
    exec("def plain(key): return key * 10", vars(by_hand))
    import importable  # type: ignore[import-not-found]

    return {
        "by path": by_path.plain,
        "by path, cached": by_path.cached,
        "by path, a class": by_path.Data().method,
        "by path, the module": lambda key: by_path.plain(key),
        "by path, in place of another": shadowed.plain,
        "by path, in a package that is not there": dotted.plain,
        "by hand": by_hand.plain,
        # By reference, as ever.
        "importable": importable.here,
    }


class Table(Source):
    """Batch k is what the k-th function returns for four keys."""

    num_records = batches_per_epoch = num_batches = None
    batch_size = 1
    spec = None

    def __init__(self, functions: list[Any]) -> None:
        self.functions = functions

    def batch(self, index: int) -> Any:
        return [int(self.functions[index](key)) for key in range(4)]

    def shard(self, index: int, count: int) -> Source:
        raise NotImplementedError

    def fingerprint(self) -> dict[str, int | str]:
        return {"source": "table"}


def main() -> None:
    functions = {**KINDS, **modules(Path(sys.argv[1]))}
    source = Table([*functions.values()])
    check_picklable("staged()", source)
    with pools(source) as (pool,):
        for number, name in enumerate(functions):
            got: Any
            try:
                got = [int(value) for value in pool.make(number)]
            except Exception as error:
                got = error
            if got != [0, 10, 20, 30]:
                print(name, repr(got))
    # The caches of this process are as before, and the pickler of others is not changed.
    assert recursive.cache_info().currsize == 6 and limited.cache_parameters() == {"maxsize": 3, "typed": True}
    import cloudpickle

    assert not cloudpickle.list_registry_pickle_by_value()
    print("done")


if __name__ == "__main__":
    main()
