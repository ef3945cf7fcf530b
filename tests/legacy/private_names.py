"""Finds names below TensorFlow's public API that programs use and another TensorFlow lacks.

Usage: python private_names.py collect FOLDER... > used.txt
       PYTHON private_names.py present < used.txt > present.txt
`collect` lists the names of tensorflow.python, tensorflow.core and tensorflow.compiler that the Python files in the
folders import, and the attributes that they read from imported modules. `present` lists those of them that the
TensorFlow of the interpreter PYTHON has. The names in present.txt of TensorFlow 1.15.5 that are not in that of a later
version are the ones that programs miss: private_names.txt. It must also run on Python 3.7, for TensorFlow 1.15.5.
"""

from __future__ import annotations

import ast
import contextlib
import importlib
import os
import sys
import warnings

BELOW = ("tensorflow.python.", "tensorflow.core.", "tensorflow.compiler.")


def used_in(text):
    """Return the full names below the API that the text of a program uses."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SyntaxWarning)
        tree = ast.parse(text)
    bound = {}
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
            bound.update((alias.asname, alias.name) for alias in node.names if alias.asname)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for alias in node.names:
                bound[alias.asname or alias.name] = node.module + "." + alias.name
                names.add(node.module + "." + alias.name)
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            names.update(_read_from(node, bound))
    return {name for name in names if name.startswith(BELOW) and not name.endswith(".*")}


def _read_from(node, bound):
    parts = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name):
        return
    root = "tensorflow" if node.id in ("tf", "tensorflow") else bound.get(node.id)
    if root == "tensorflow":
        yield ".".join([root, *reversed(parts)])
    elif root is not None:
        yield root + "." + parts[-1]


def collect(folders):
    names = set()
    for folder in folders:
        for path, _, files in os.walk(folder):
            for file in files:
                if file.endswith(".py"):
                    python_2 = contextlib.suppress(SyntaxError, ValueError)
                    with open(os.path.join(path, file), encoding="utf-8", errors="replace") as source, python_2:
                        names |= used_in(source.read())
    return names


def resolves(full):
    """Return whether the name is a module, or an attribute of the longest prefix that is a module."""
    importlib.import_module("tensorflow")
    parts = full.split(".")
    for length in range(len(parts), 0, -1):
        try:
            value = importlib.import_module(".".join(parts[:length]))
        except ImportError:
            continue
        try:
            for name in parts[length:]:
                value = getattr(value, name)
        except (AttributeError, ImportError):  # a module that TensorFlow loads late may need a package
            return False
        return True
    return False


def main():
    if sys.argv[1:] == ["present"]:
        names = {line.strip() for line in sys.stdin}
        print("\n".join(sorted(name for name in names if name and resolves(name))))
    elif sys.argv[1:2] == ["collect"] and sys.argv[2:]:
        print("\n".join(sorted(collect(sys.argv[2:]))))
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main()
