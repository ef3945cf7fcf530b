"""The modules of a program: the one that is started, and those that it imports from its own folder."""

from __future__ import annotations

import ast
import os
import sys
from collections.abc import Sequence

from staging_tf1.legacy import source_files
from staging_tf1.legacy.lint.module import Module
from staging_tf1.legacy.source_files import UnreadableError

# A checkout may have them in the same folder.
_NEVER_OWN = ("tensorflow", "staging_tf1")
# Packages that know nothing of a program's graph.
_KNOWN = frozenset("numpy absl cv2 h5py matplotlib pandas PIL scipy sklearn tqdm".split()) | frozenset(
    sys.stdlib_module_names
)


def program(started: Module) -> list[Module] | None:
    """Return the modules of the program that `started` is; None if it may import others, which the text does not show.

    Absolute imports are found in the folder of `started`, as if that file was run.
    """
    modules: list[Module] = []
    waiting, seen = [started], {os.path.realpath(started.path)}
    while waiting:
        modules.append(waiting.pop())
        for node in modules[-1].around:
            for path in _files(node, modules[-1].path, started.path):
                if path is None:
                    return None
                if (real := os.path.realpath(path)) not in seen:
                    seen.add(real)
                    read = _read(path)
                    if read is None:
                        return None
                    waiting.append(read)
    return modules


def _read(path: str) -> Module | None:
    try:
        return Module(source_files.parsed(source_files.read(path)), path)
    except (UnreadableError, RecursionError):
        return None


def _files(node: ast.AST, path: str, started: str) -> list[str | None]:
    """Return the files of the program's own that an import runs. One of them is None if it is unknown."""
    if isinstance(node, ast.Import):
        return [file for alias in node.names for file in _own(os.path.dirname(started), alias.name.split("."), 0)]
    if not isinstance(node, ast.ImportFrom):
        return []
    folder = os.path.dirname(path if node.level else started)
    for _ in range(node.level - 1):
        folder = os.path.join(folder, os.pardir)
    package = node.module.split(".") if node.module else []
    # The last name may be an attribute.
    return [file for alias in node.names for file in _own(folder, [*package, alias.name], 1, bool(node.level))]


def _own(folder: str, names: Sequence[str], attributes: int, is_relative: bool = False) -> list[str | None]:
    if names[0] in _NEVER_OWN and not is_relative:
        return []
    files: list[str | None] = []
    left = list(names)
    here = folder
    while left:
        here = os.path.join(here, left[0])
        if os.path.isfile(f"{here}.py"):
            files.append(f"{here}.py")
            left.pop(0)
            break
        if not os.path.isdir(here):
            break
        left.pop(0)
        if os.path.isfile(os.path.join(here, "__init__.py")):
            files.append(os.path.join(here, "__init__.py"))
    if not files and not is_relative:
        return [] if names[0] in _KNOWN else [None]
    return files if len(left) <= attributes else [None]
