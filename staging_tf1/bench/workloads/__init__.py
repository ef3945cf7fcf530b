"""The workloads, by name. Loading a workload imports its module and TensorFlow."""

from __future__ import annotations

import importlib
import importlib.machinery
import os
import sys
from typing import TYPE_CHECKING

from staging_tf1.bench.errors import BenchError
from staging_tf1.bench.workloads.facts import FACTS

if TYPE_CHECKING:
    from staging_tf1.bench.workloads.workload import Workload

__all__ = ["check_own", "check_workload", "load_workload", "no_module", "split_own"]


def check_workload(name: str) -> str:
    """Return the name of a workload in capitals, or raise BenchError; `w1` is accepted for `W1`."""
    if name.upper() not in FACTS:
        raise BenchError(f"Unknown workload {name!r}, expected one of {', '.join(FACTS)}.")
    return name.upper()


def split_own(name: str) -> tuple[str, str]:
    """Return the module and the function of the user's own training step, or raise BenchError.

    >>> split_own("my_module:build")
    ('my_module', 'build')
    """
    module, _, function = name.partition(":")
    if not module or not function.isidentifier():
        raise BenchError(f"--train got {name!r}, expected my_module:build, where build() returns (source, train).")
    return module, function


def check_own(name: str) -> None:
    """Raise BenchError if there is no module of the user's own training step. Imports nothing."""
    package = split_own(name)[0].partition(".")[0]
    known = package in sys.builtin_module_names or package in sys.modules
    if not known and importlib.machinery.PathFinder.find_spec(package, [os.getcwd(), *sys.path]) is None:
        raise no_module(name)


def no_module(name: str) -> BenchError:
    """Return the error of a training step whose module does not exist."""
    module = split_own(name)[0]
    return BenchError(f"--train {name}: found no module {module!r} in {os.getcwd()} or in the installed packages.")


def load_workload(name: str) -> Workload:
    """Return the workload of that name, or the user's own for a name such as `module:function`."""
    if ":" in name:
        from staging_tf1.bench.workloads.own import load_own

        return load_own(name)
    name = check_workload(name)
    module = importlib.import_module(f"staging_tf1.bench.workloads.{FACTS[name].module}")
    workload: Workload = getattr(module, name)()
    return workload
