"""Finds names of TensorFlow that programs use and another TensorFlow lacks.

Usage: python private_names.py collect FOLDER... > used.txt
       PYTHON private_names.py present < used.txt > present.txt
       staging-tf1 run private_names.py missing < present.txt
`collect` lists the names of tensorflow.python, tensorflow.core and tensorflow.compiler that the Python files in the
folders import, and the attributes that they read from imported modules; `collect-all` lists all names of tensorflow.
`present` lists those of them that the TensorFlow of the interpreter PYTHON has, `missing` those that it lacks. What of
present.txt of TensorFlow 1.15.5 is missing in a later version, in plain Python, is private_names.txt.
It must also run on Python 3.7, for TensorFlow 1.15.5.
"""

from __future__ import annotations

import ast
import contextlib
import importlib
import os
import sys
import warnings

BELOW = ("tensorflow.python.", "tensorflow.core.", "tensorflow.compiler.")
ALL = ("tensorflow.",)


def used_in(text, below=BELOW):
    """Return the full names that the text of a program uses, of the packages that `below` names."""
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
    return {name for name in names if name.startswith(below) and not name.endswith(".*")}


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


def collect(folders, below):
    names = set()
    for folder in folders:
        for path, _, files in os.walk(folder):
            for file in files:
                if file.endswith(".py"):
                    python_2 = contextlib.suppress(SyntaxError, ValueError)
                    with open(os.path.join(path, file), encoding="utf-8", errors="replace") as source, python_2:
                        names |= used_in(source.read(), below)
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
    if sys.argv[1:] in (["present"], ["missing"]):
        names = {line.strip() for line in sys.stdin}
        wanted = sys.argv[1] == "present"
        print("\n".join(sorted(name for name in names if name and resolves(name) == wanted)))
    elif sys.argv[1:2] in (["collect"], ["collect-all"]) and sys.argv[2:]:
        print("\n".join(sorted(collect(sys.argv[2:], BELOW if sys.argv[1] == "collect" else ALL))))
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main()
