"""The configuration of the checks: ``[tool.staging-tf1.check]`` in pyproject.toml."""

from __future__ import annotations

import importlib
import os
import sys
from dataclasses import dataclass
from typing import Any

_KEYS = ("select", "ignore", "exclude")


class ConfigurationError(Exception):
    """An invalid configuration."""


@dataclass(frozen=True)
class Configuration:
    """The rules that run, and the files that they skip."""

    select: tuple[str, ...] = ("STG",)  # codes or prefixes of codes
    ignore: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()  # names of files and folders

    def wants(self, code: str) -> bool:
        """Whether the rule with this code runs. The longest matching prefix decides; on a tie, ignore wins."""
        selected = max((len(prefix) for prefix in self.select if code.startswith(prefix)), default=-1)
        ignored = max((len(prefix) for prefix in self.ignore if code.startswith(prefix)), default=-1)
        return selected > ignored


def load(folder: str) -> Configuration:
    """Return the configuration in the nearest pyproject.toml at or above `folder`, or raise ConfigurationError."""
    path = _nearest(os.path.abspath(folder))
    if path is None:
        return Configuration()
    try:
        with open(path, "rb") as file:
            text = file.read()
        if b"staging-tf1" not in text:
            return Configuration()
        toml = importlib.import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")
        table: Any = toml.loads(text.decode())
    except (OSError, ValueError) as error:
        raise ConfigurationError(f"{path}: {error}") from error
    except ImportError:
        raise ConfigurationError(f"{path}: Python 3.10 needs tomli to read it: pip install tomli") from None
    settings = table.get("tool", {}).get("staging-tf1", {}).get("check", {})
    for key, value in settings.items():
        if key not in _KEYS:
            raise ConfigurationError(
                f"{path}: [tool.staging-tf1.check] has unknown key {key!r}, expected one of {', '.join(_KEYS)}"
            )
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise ConfigurationError(f"{path}: [tool.staging-tf1.check] {key} must be a list of strings")
    return Configuration(**{key: tuple(value) for key, value in settings.items()})


def overridden(configuration: Configuration, select: str | None, ignore: str | None) -> Configuration:
    """Return the configuration with the comma-separated codes of the command line instead of its own."""
    return Configuration(
        configuration.select if select is None else _codes(select),
        configuration.ignore if ignore is None else _codes(ignore),
        configuration.exclude,
    )


def unknown_codes(configuration: Configuration, known: tuple[str, ...]) -> str | None:
    """Return the first code or prefix that matches no rule, or None."""
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
