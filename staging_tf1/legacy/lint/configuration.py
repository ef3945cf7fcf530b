"""What ``[tool.staging-tf1.check]`` in pyproject.toml says."""

from __future__ import annotations

import importlib
import os
import sys
from dataclasses import dataclass
from typing import Any

_KEYS = ("select", "ignore", "exclude")


class ConfigurationError(Exception):
    """A configuration that cannot be understood."""


@dataclass(frozen=True)
class Configuration:
    """Which rules run, and on what."""

    select: tuple[str, ...] = ("STG",)  # codes, or how codes start
    ignore: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()  # names of files and folders

    def wants(self, code: str) -> bool:
        """Whether the rule of this code runs. The longer of two prefixes decides; ignore wins a draw."""
        selected = max((len(prefix) for prefix in self.select if code.startswith(prefix)), default=-1)
        ignored = max((len(prefix) for prefix in self.ignore if code.startswith(prefix)), default=-1)
        return selected > ignored


def load(folder: str) -> Configuration:
    """The configuration in the nearest pyproject.toml at or above `folder`.

    Raises:
      ConfigurationError: it cannot be read, or says what we do not know.
    """
    path = _nearest(os.path.abspath(folder))
    if path is None:
        return Configuration()
    toml = importlib.import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")
    try:
        with open(path, "rb") as file:
            table: Any = toml.load(file)
    except (OSError, ValueError) as error:
        raise ConfigurationError(f"{path}: {error}") from error
    said = table.get("tool", {}).get("staging-tf1", {}).get("check", {})
    for key, value in said.items():
        if key not in _KEYS:
            raise ConfigurationError(f"{path}: [tool.staging-tf1.check] has {key!r}; it knows {', '.join(_KEYS)}")
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise ConfigurationError(f"{path}: [tool.staging-tf1.check] {key} must be a list of strings")
    return Configuration(**{key: tuple(value) for key, value in said.items()})


def overridden(configuration: Configuration, select: str | None, ignore: str | None) -> Configuration:
    """The configuration with what the command line says instead, as lists with commas."""
    return Configuration(
        configuration.select if select is None else _codes(select),
        configuration.ignore if ignore is None else _codes(ignore),
        configuration.exclude,
    )


def unknown_codes(configuration: Configuration, known: tuple[str, ...]) -> str | None:
    """The first code or prefix that no rule has, or None."""
    for prefix in (*configuration.select, *configuration.ignore):
        if not any(code.startswith(prefix) for code in known):
            return prefix
    return None


def _codes(text: str) -> tuple[str, ...]:
    return tuple(code.strip().upper() for code in text.split(",") if code.strip())


def _nearest(folder: str) -> str | None:
    while True:
        path = os.path.join(folder, "pyproject.toml")
        if os.path.isfile(path):
            return path
        above = os.path.dirname(folder)
        if above == folder:
            return None
        folder = above
