"""What programs use of `pkg_resources`, which setuptools 82 removed: their files, and what is installed."""

from __future__ import annotations

import importlib
import importlib.metadata
import os
import pkgutil
import sys
from collections.abc import Iterator
from typing import Any, BinaryIO


class DistributionNotFound(Exception):
    """A package that is not installed."""


class VersionConflict(Exception):
    """A package that is installed in another version than required."""


class Distribution:
    """An installed package."""

    def __init__(self, found: importlib.metadata.Distribution) -> None:
        self.project_name: str = found.metadata["Name"]
        self.version = found.version
        self.key = self.project_name.lower()
        self.location = str(found.locate_file(""))

    def __str__(self) -> str:
        return f"{self.project_name} {self.version}"


def resource_filename(package_or_requirement: str, resource_name: str) -> str:
    """Return the path of a file or folder in the folder of a module."""
    module = sys.modules.get(package_or_requirement) or importlib.import_module(package_or_requirement)
    return os.path.join(os.path.dirname(getattr(module, "__file__", None) or ""), *resource_name.split("/"))


def resource_string(package_or_requirement: str, resource_name: str) -> bytes:
    """Return the content of a file in the folder of a module."""
    with resource_stream(package_or_requirement, resource_name) as file:
        return file.read()


def resource_stream(package_or_requirement: str, resource_name: str) -> BinaryIO:
    """Open a file in the folder of a module."""
    return open(resource_filename(package_or_requirement, resource_name), "rb")


def resource_exists(package_or_requirement: str, resource_name: str) -> bool:
    """Return whether a file or folder is in the folder of a module."""
    return os.path.exists(resource_filename(package_or_requirement, resource_name))


def resource_isdir(package_or_requirement: str, resource_name: str) -> bool:
    """Return whether a folder is in the folder of a module."""
    return os.path.isdir(resource_filename(package_or_requirement, resource_name))


def resource_listdir(package_or_requirement: str, resource_name: str) -> list[str]:
    """Return the names in a folder in the folder of a module."""
    return os.listdir(resource_filename(package_or_requirement, resource_name))


def parse_version(v: str) -> Any:
    """Return a version that can be compared."""
    return importlib.import_module("packaging.version").parse(v)


def get_distribution(dist: str) -> Distribution:
    """Return an installed package, by a name or requirement.

    Raises DistributionNotFound or VersionConflict if the environment does not have it.
    """
    wanted = importlib.import_module("packaging.requirements").Requirement(dist)
    try:
        found = Distribution(importlib.metadata.distribution(wanted.name))
    except importlib.metadata.PackageNotFoundError:
        missing = f"The '{dist}' distribution was not found and is required by the application"
        raise DistributionNotFound(missing) from None
    if not wanted.specifier.contains(found.version, prereleases=True):
        raise VersionConflict(f"{found} is installed but {dist} is required")
    return found


def require(*requirements: str) -> list[Distribution]:
    """Return the installed packages; see `get_distribution`."""
    return [get_distribution(each) for each in requirements]


def iter_entry_points(group: str, name: str | None = None) -> Iterator[importlib.metadata.EntryPoint]:
    """Yield the entry points of installed packages."""
    for point in importlib.metadata.entry_points(group=group):
        if name in (None, point.name):
            yield point


def declare_namespace(packageName: str) -> None:  # setuptools' spelling
    """Let modules of a package lie in several folders of `sys.path`."""
    module: Any = sys.modules[packageName]
    module.__path__ = pkgutil.extend_path(module.__path__, packageName)
