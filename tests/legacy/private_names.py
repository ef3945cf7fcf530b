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
    from staging_tf1.legacy.lint.module import Module  # not on Python 3.7

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SyntaxWarning)
        module = Module(ast.parse(text))
    names = set()
    for use in module.uses:
        first = use.node
        while not use.imported and isinstance(first.value, ast.Attribute):
            first = first.value
        # What is read from an imported module may be an object. Below tf itself, there are modules.
        is_whole = use.imported or module.full_name(first.value) == "tensorflow"
        names.add(use.imported or module.full_name(use.node if is_whole else first))
    return {name for name in names if name.startswith(below) and not name.endswith(".*")}


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
