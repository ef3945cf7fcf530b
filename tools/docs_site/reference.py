"""The reference: a page for each public name, from its docstring, and one for each command, from its parser."""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import inspect
import os
import textwrap
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import staging_tf1
from staging_tf1.cli.main import COMMANDS

# The columns of the help of a command: what fits the page, whatever the width of the terminal that builds the site.
_HELP_COLUMNS = 92
# Modules whose names are listed on one page, because most of them mirror a module of `tf.contrib`.
_ONE_PAGE = ("staging_tf1.contrib", "staging_tf1.legacy")
# A number has no docstring of its own.
_CONSTANTS = {
    "AUTOTUNE": "As `num_threads` of `staged()` and `CustomRunner`: the number follows the load. Equal to "
    "`tf.data.AUTOTUNE`."
}


def public_names() -> Iterator[tuple[ModuleType, str, Any]]:
    """Yield each public name that has a page of its own: its module, the name and the object."""
    for module in (staging_tf1, staging_tf1.sources, staging_tf1.testing, staging_tf1.errors):
        for name in module.__all__:
            value = getattr(module, name)
            is_error = getattr(value, "__module__", None) == "staging_tf1.errors"
            if not inspect.ismodule(value) and (module is staging_tf1.errors or not is_error):
                yield module, name, value


def write_reference(target: Path) -> list[str]:
    """Write the pages and return those that the navigation lists."""
    folder = target / "reference"
    folder.mkdir(parents=True)
    groups: dict[str, list[tuple[str, str]]] = {}
    for module, name, value in public_names():
        page = f"{module.__name__}.{name}"
        _write(folder / f"{page}.rst", name, _directive(page, module, value))
        groups.setdefault(module.__name__, []).append((page, _CONSTANTS.get(name) or _first_line(value)))
    listed = [_group_page(folder, module, names) for module, names in groups.items()]
    listed += [_module_page(folder, module) for module in _ONE_PAGE]
    return [*listed, _command_pages(folder)]


def _directive(page: str, module: ModuleType, value: Any) -> str:
    if text := _CONSTANTS.get(page.rpartition(".")[2]):
        return f".. data:: {page}\n   :value: {value}\n\n   {text}"
    summary = _first_line(value)
    kind, options = "autofunction", ""
    if inspect.isclass(value):
        is_error = issubclass(value, BaseException)
        kind = "autoexception" if is_error else "autoclass"
        options = "   :show-inheritance:\n" if is_error else "   :members:\n   :inherited-members:\n"
    return f"{summary}\n\n.. currentmodule:: {module.__name__}\n\n.. {kind}:: {page}\n{options}"


def _first_line(value: Any) -> str:
    return (inspect.getdoc(value) or "").splitlines()[0]


def _group_page(folder: Path, module: str, names: list[tuple[str, str]]) -> str:
    """Write the page of a module, with a table of its names."""
    rows = "".join(f"   * - :doc:`{page.rsplit('.', 1)[1]} <{page}>`\n     - {line}\n" for page, line in names)
    table = f".. list-table::\n   :widths: auto\n\n{rows}"
    pages = "".join(f"   {page}\n" for page, _ in names)
    toctree = f".. toctree::\n   :hidden:\n\n{pages}"
    _write(folder / f"{module}.rst", module, f"{_documented(module)}\n\n{table}\n{toctree}")
    return f"reference/{module}"


def _module_page(folder: Path, module: str) -> str:
    """Write one page for a module and its public submodules."""
    names = importlib.import_module(module).__all__
    parts = [name for name in names if importlib.util.find_spec(f"{module}.{name}")]
    text = f".. automodule:: {module}\n"
    text += "" if parts else "   :members:\n"
    for part in parts:
        name = f"{module}.{part}"
        text += f"\n{name}\n{'-' * len(name)}\n\n.. automodule:: {name}\n   :members:\n"
    _write(folder / f"{module}.rst", module, text)
    return f"reference/{module}"


def _documented(module: str) -> str:
    return f".. automodule:: {module}\n   :no-index:\n"


def _command_pages(folder: Path) -> str:
    """Write the pages of the command line, from the help that the parsers print."""
    os.environ["COLUMNS"] = str(_HELP_COLUMNS)
    os.environ["NO_COLOR"] = "1"  # newer versions of Python color the help
    rows, pages = "", ""
    for command, summary in COMMANDS.items():
        parser = importlib.import_module(f"staging_tf1.cli.{command}").make_parser()
        page = f"staging-tf1-{command}"
        _write(folder / f"{page}.rst", f"staging-tf1 {command}", "\n".join(map(_literal, _helps(parser))))
        rows += f"   * - :doc:`staging-tf1 {command} <{page}>`\n     - {summary}\n"
        pages += f"   {page}\n"
    text = f".. list-table::\n   :widths: auto\n\n{rows}\n.. toctree::\n   :hidden:\n\n{pages}"
    _write(folder / "commands.rst", "The command line", text)
    return "reference/commands"


def _helps(parser: argparse.ArgumentParser) -> Iterator[str]:
    """Yield the help of a command, and of each command below it."""
    yield parser.format_help()
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for below in action.choices.values():
                yield from _helps(below)


def _literal(text: str) -> str:
    # argparse wraps the help of the options, but leaves descriptions as they are.
    lines = [part for line in text.splitlines() for part in textwrap.wrap(line, _HELP_COLUMNS) or [""]]
    return ".. code-block:: text\n\n" + "".join(f"   {line}".rstrip() + "\n" for line in lines)


def _write(path: Path, title: str, text: str) -> None:
    path.write_text(f"{title}\n{'=' * len(title)}\n\n{text}\n", encoding="utf-8")
