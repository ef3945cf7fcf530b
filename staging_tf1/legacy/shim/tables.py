"""Names that Python, numpy, scipy and TensorFlow's public API removed, read from the files in `removed/`.

A line is "OWNER NAME... -> HOME". The owner is a module, or "module:Class"; with "~" before it the names have changed,
not gone. A line without a name is about a module. The home is "module:attribute" ("builtins" for types of Python), or
"!" and what to do instead, or for a module several homes and advice. In a home, "*" is the name, "@" the package
`shim`, and "tf:" `tensorflow.compat.v1`. With "=" before it, the home is called with the full name of the attribute,
and returns what all code sees.
"""

from __future__ import annotations

import os
from typing import NamedTuple

_FOLDER = os.path.join(os.path.dirname(__file__), "removed")
Homes = dict[str, dict[str, str]]  # owner -> name -> home


class Gone(NamedTuple):
    """What became of a module."""

    homes: tuple[str, ...] = ()  # modules that have its names ("module" or "module:attribute")
    advice: str = "There is no replacement."  # for the names that none of these modules has


class Table(NamedTuple):
    """What became of the names of one library."""

    names: Homes
    attributes: Homes
    changed: Homes
    modules: dict[str, Gone]


def _read(file: str) -> Table:
    table = Table({}, {}, {}, {})
    with open(os.path.join(_FOLDER, file), encoding="utf-8") as lines:
        for line in lines:
            if line.startswith("#"):
                continue
            before, _, home = line.rstrip().partition(" -> ")
            owner, *names = before.split()
            places, _, advice = home.partition("!")
            homes = [_in_full(place) for place in places.split()]
            if not names:
                table.modules[owner] = Gone(tuple(homes), advice or Gone().advice)
                continue
            kind = table.changed if owner[0] == "~" else table.attributes if ":" in owner else table.names
            full = homes[0] if homes else home
            kind.setdefault(owner.lstrip("~"), {}).update((name, full.replace("*", name)) for name in names)
    return table


def _in_full(home: str) -> str:
    home = home.replace("@", "staging_tf1.legacy.shim.")
    return f"tensorflow.compat.v1:{home[3:]}" if home.startswith("tf:") else home


PYTHON = _read("python.txt")
NUMPY = _read("numpy.txt")
SCIPY = _read("scipy.txt")
TENSORFLOW = _read("tensorflow.txt")
