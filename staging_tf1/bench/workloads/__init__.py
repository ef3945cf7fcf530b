"""The workloads, by name. Loading a workload imports its module and TensorFlow."""

from __future__ import annotations

import importlib
import importlib.machinery
import os
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

from staging_tf1.bench import BenchError

if TYPE_CHECKING:
    from staging_tf1.bench.workloads.workload import Workload

__all__ = ["FACTS", "Facts", "check_own", "check_workload", "load_workload", "no_module", "split_own"]


@dataclass(frozen=True)
class Facts:
    """The sizes of one workload."""

    help_text: str
    # Records per batch.
    batch_size: int
    # The number of records, and the number with `--quick`. Both are multiples of the batch size: all batches are full.
    records: int
    quick_records: int
    # The module of the class, in this package.
    module: str = "in_memory"
    # The system whose time is the bound; None if the bound is computed.
    reference: str | None = None
    # The cores that one op of the step uses; 0 leaves the choice to TensorFlow.
    intra_op: int = 0
    # Whether systems with worker processes suit it: a batch takes milliseconds of Python, or is large.
    for_processes: bool = False


FACTS = {
    "W1": Facts("128x784 float32 from bytes; softmax regression: overhead per step", 128, 128 * 400, 128 * 8),
    "W2": Facts("64x96x96x3 float32 from bytes; two convolutions: copies, busy cores", 64, 64 * 64, 64 * 2),
    "W3": Facts("as W1, each batch waits 20 ms; two hidden layers of 896: latency", 128, 128 * 400, 128 * 8),
    "W4": Facts(
        "16x96x96x3 float32 from JPEGs; two convolutions: decoding in Python",
        *(16, 16 * 32, 16 * 2),
        for_processes=True,
    ),
    "W5": Facts(
        "256 records of 1 KB from TFRecord, shuffled; no model: reading",
        *(256, 256 * 3906, 256 * 4),
        module="w5",
        reference="tf_data",
    ),
    "W6": Facts(
        "256 texts to 32 tokens; an embedding and a layer on one core: pure Python",
        *(256, 256 * 32, 256 * 2),
        intra_op=1,
        for_processes=True,
    ),
    "W7": Facts(
        "64x320x320x3 bytes, 20 MB; no model: large batches",
        *(64, 64 * 8, 64 * 2),
        reference="memcpy",
        for_processes=True,
    ),
}


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
