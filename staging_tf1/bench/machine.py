"""Describes the benchmark machine."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import time

from staging_tf1 import __version__
from staging_tf1.cores import usable_cores

__all__ = ["describe_machine"]


def describe_machine() -> dict[str, str]:
    """Return processor, cores, load and versions, as shown above the tables."""
    load = ", ".join(f"{value:.2f}" for value in os.getloadavg())
    return {
        "processor": f"{_processor()}, {usable_cores()} cores",
        "load average": load,
        "system": platform.platform(terse=True),
        "Python": platform.python_version(),
        "TensorFlow": _version("tensorflow"),
        "numpy": _version("numpy"),
        "staging_tf1": __version__,
        "date": time.strftime("%Y-%m-%d"),
    }


def _processor() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as lines:
            models = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    except OSError:
        models = []
    return models[0] if models else platform.processor() or platform.machine()


def _version(distribution: str) -> str:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"
