"""Functions of TensorFlow 1 that need more than another name."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping
from typing import Any

from staging_tf1.legacy.shim import views


class _RegisteredOps(Mapping[str, Any]):
    """The definitions of all ops, by name."""

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
