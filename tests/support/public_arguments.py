"""Every argument of every public function, found by introspection."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import staging_tf1 as staging
from staging_tf1 import data
from staging_tf1.sources.grain import GrainIterSource, GrainMapSource

# TensorFlow calls these, and `RecordSource` its two hooks, with arguments of their own. Users do not call them.
_CALLBACKS = {"begin", "after_create_session", "before_run", "after_run", "end", "record_spec", "gather"}
# Records that the package makes, and what a user's subclass has to write.
_RECORDS = {"PipelineStats", "Settings", "LabelledImages"}
_TO_BE_WRITTEN = {"StreamSource.state", "StreamSource.restore"}
# Made by GrainSource.
_MADE = {"GrainMapSource.__init__", "GrainIterSource.__init__"}


def public_arguments() -> Iterator[tuple[str, str, str]]:
    """Yield a function's qualified name, one of its arguments and its annotation. An inherited method appears once."""
    seen = set()
    for function in _functions():
        name = function.__qualname__
        if name in seen or name in _TO_BE_WRITTEN | _MADE:
            continue
        seen.add(name)
        for parameter in inspect.signature(function).parameters.values():
            if parameter.name != "self" and parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
                yield name.removesuffix(".__init__"), parameter.name, parameter.annotation


def _functions() -> Iterator[Any]:
    for module in (staging, staging.sources, staging.testing, staging.legacy, data):
        for name in module.__all__:
            if name != "AUTOTUNE":
                yield from _of(getattr(module, name))
    for grain in (GrainMapSource, GrainIterSource):
        yield from _of(grain)


def _of(value: Any) -> Iterator[Any]:
    if isinstance(value, ModuleType) or (inspect.isclass(value) and issubclass(value, BaseException)):
        return
    if not inspect.isclass(value):
        yield value
        return
    if value.__name__ in _RECORDS:
        return
    for name, member in inspect.getmembers(value, lambda each: inspect.isfunction(each) or inspect.ismethod(each)):
        ours = getattr(member, "__module__", "").startswith("staging_tf1")
        asked = name == "__init__" or not name.startswith("_")
        if ours and asked and name not in _CALLBACKS and not getattr(member, "__isabstractmethod__", False):
            yield member


def public_names() -> list[str]:
    """Return every public function with its arguments, a line each, sorted."""
    arguments: dict[str, list[str]] = {}
    for function, argument, _ in public_arguments():
        arguments.setdefault(function, []).append(argument)
    return sorted(f"{function}({', '.join(names)})" for function, names in arguments.items())


if __name__ == "__main__":
    # python tests/support/public_arguments.py > tests/project/public_names.txt
    print(*public_names(), sep="\n")
