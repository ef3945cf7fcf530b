"""The workloads, by name. They are loaded when they are asked for, and TensorFlow with them."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from staging_tf1.bench.errors import BenchError
from staging_tf1.bench.workloads.facts import FACTS

if TYPE_CHECKING:
    from staging_tf1.bench.workloads.workload import Workload

__all__ = ["check_workload", "load_workload", "split_own"]


def check_workload(name: str) -> str:
    """The name as it is written here; `w1` will do for `W1`.

    Raises:
      BenchError: there is none of that name.
    """
    if name.upper() not in FACTS:
        raise BenchError(f"There is no workload {name!r}. Choose among {', '.join(FACTS)}.")
    return name.upper()


def split_own(name: str) -> tuple[str, str]:
    """The module and the function of a training step of the user's own.

    Raises:
      BenchError: the name does not look like that.

    >>> split_own("my_module:build")
    ('my_module', 'build')
    """
    module, _, function = name.partition(":")
    if not module or not function.isidentifier():
        raise BenchError(f"--train got {name!r}, wanted my_module:build, where build() returns (source, train).")
    return module, function


def load_workload(name: str) -> Workload:
    """The workload of that name; for `module:function`, the user's own."""
    if ":" in name:
        from staging_tf1.bench.workloads.own import OwnWorkload

        return OwnWorkload(name)
    name = check_workload(name)
    module = importlib.import_module(f"staging_tf1.bench.workloads.{name.lower()}")
    workload: Workload = getattr(module, name)()
    return workload
