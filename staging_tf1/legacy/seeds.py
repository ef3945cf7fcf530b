"""Gives random ops without a seed of their own the seed that they had in TF1, if the graph has one.

TF1 used the number of ops that the graph had. TensorFlow 2 counts the random ops instead, so after
``tf.set_random_seed(1)`` it draws other numbers than TF1.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any


class _NumbersOfOps(dict[Any, int]):
    """Stands in for TensorFlow's dictionary of the next seed of each graph."""

    def setdefault(self, graph: Any, default: int = 0) -> int:
        return int(graph.version)

    def __getitem__(self, graph: Any) -> int:
        return 0

    def __setitem__(self, graph: Any, seed: int) -> None:
        pass  # the next seed depends on the graph only


def attach(module: ModuleType) -> None:
    """Change the loaded ``tensorflow.python.framework.random_seed`` for all graphs of this process."""
    module.__dict__["_graph_to_seed_dict"] = _NumbersOfOps()
