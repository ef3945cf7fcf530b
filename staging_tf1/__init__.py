"""The classic StagingArea workflow for graph-mode TensorFlow, on TensorFlow 2.x.

    import tensorflow.compat.v1 as tf
    import staging_tf1 as staging

Names load on first use, and TensorFlow with them. Programs started by `staging-tf1 run` set environment variables that
TensorFlow reads at import, so they must be the first to import it.
"""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from staging_tf1 import contrib, errors, legacy, sources, testing
    from staging_tf1.arguments import AUTOTUNE
    from staging_tf1.cluster.cluster import Cluster
    from staging_tf1.define.custom_runner import CustomRunner
    from staging_tf1.define.staged import staged
    from staging_tf1.graph.areas import StagingArea
    from staging_tf1.graph.map_area import MapStagingArea
    from staging_tf1.lifecycle.hook import StagingHook
    from staging_tf1.lifecycle.session import StagingSession
    from staging_tf1.lifecycle.start import start, stats
    from staging_tf1.watch.stats import PipelineStats
    from staging_tf1.watch.summary_hook import StagingSummaryHook

__version__ = "0.1.0"

__all__ = [
    "AUTOTUNE",
    "Cluster",
    "CustomRunner",
    "MapStagingArea",
    "PipelineStats",
    "StagingArea",
    "StagingHook",
    "StagingSession",
    "StagingSummaryHook",
    "contrib",
    "errors",
    "legacy",
    "sources",
    "staged",
    "start",
    "stats",
    "testing",
]

# The module that defines each name. Public modules are not listed.
_HOMES = {
    "AUTOTUNE": "arguments",
    "Cluster": "cluster.cluster",
    "CustomRunner": "define.custom_runner",
    "MapStagingArea": "graph.map_area",
    "PipelineStats": "watch.stats",
    "StagingArea": "graph.areas",
    "StagingHook": "lifecycle.hook",
    "StagingSession": "lifecycle.session",
    "StagingSummaryHook": "watch.summary_hook",
    "staged": "define.staged",
    "start": "lifecycle.start",
    "stats": "lifecycle.start",
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        # By its name only: importing `sources` for that would be an import within an import.
        cure = ". Sources are in staging_tf1.sources" if name.endswith("Source") else _meant(name)
        raise AttributeError(f"module 'staging_tf1' has no attribute {name!r}{cure}")
    if sys.platform == "win32" and name not in ("AUTOTUNE", "errors"):
        # Files and forks are opened in ways that Windows lacks.
        raise ImportError(
            f"staging_tf1.{name} needs Linux or macOS. On Windows use WSL. `staging-tf1 check` and `migrate` run there."
        )
    if name in _HOMES:
        value = getattr(importlib.import_module(f"staging_tf1.{_HOMES[name]}"), name)
    else:
        value = importlib.import_module(f"staging_tf1.{name}")
    globals()[name] = value
    return value


def load_ipython_extension(shell: Any) -> None:
    """Make the code of a notebook TensorFlow 1. IPython calls it for ``%load_ext staging_tf1``."""
    from staging_tf1 import notebook

    notebook.load(shell)


def _meant(name: str) -> str:
    if name.startswith("_"):  # Python and its tools look up many of those
        return ""
    from staging_tf1.arguments import close_to

    hint = close_to(name, __all__)
    return f".{hint}" if hint else ""


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
