"""Names that Python, TensorFlow and other libraries removed, read from the files in `removed/`.

A line is "OWNER NAME... -> HOME". The owner is a module, or "module:Class"; with "~" before it the names have changed,
not gone. A line without a name is about a module. "a{b,c}" stands for "ab" and "ac". The home is "module:attribute"
("builtins" for types of Python), or "!" and what to do instead, or both: the advice is then for `migrate`. A module may
have several homes. After the arrow, "*" is the name, or what its braces have. In a home, "@" is the package `shim`, and
"tf:" `tensorflow.compat.v1`. With "=" before it, the home is called with the full name of the attribute, and returns
what all code sees. The owner "tf.nn" is that part of the public API.
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
    advice: dict[str, str]  # for `migrate`, about names that have a home here only


def _read(file: str) -> Table:
    table = Table({}, {}, {}, {}, {})
    with open(os.path.join(_FOLDER, file), encoding="utf-8") as lines:
        for line in lines:
            if line.startswith("#"):
                continue
            before, _, home = line.rstrip().partition(" -> ")
            places, _, advice = home.partition("!")
            homes = [_in_full(place) for place in places.split()]
            words, *names = map(_expanded, before.split())
            for owner, part in words.items():
                if not names:
                    found = tuple(place.replace("*", part) for place in homes)
                    table.modules[owner] = Gone(found, advice.replace("*", part) or Gone().advice)
                    continue
                kind = table.changed if owner[0] == "~" else table.attributes if ":" in owner else table.names
                full = homes[0] if homes else home
                for word in names:
                    there = {name: full.replace("*", part) for name, part in word.items()}
                    kind.setdefault(owner.lstrip("~"), {}).update(there)
                    table.advice.update({f"{owner}.{name}": advice for name in word} if homes and advice else {})
    return table


def _expanded(word: str) -> dict[str, str]:
    """Return what a word stands for -> what "*" stands for then."""
    if word.startswith("tf.keras"):
        word = "{keras,tf_keras}.api._v1." + word.removeprefix("tf.")
    elif word.startswith("tf."):
        word = f"tensorflow._api.v2.compat.v1.{word.removeprefix('tf.')}"
    first, _, rest = word.partition("{")
    inside, _, last = rest.partition("}")
    return {f"{first}{each}{last}": each for each in inside.split(",")} if rest else {word: word}


def _in_full(home: str) -> str:
    home = home.replace("@", "staging_tf1.legacy.shim.")
    return f"tensorflow.compat.v1:{home[3:]}" if home.startswith("tf:") else home


PYTHON = _read("python.txt")
NUMPY = _read("numpy.txt")
SCIPY = _read("scipy.txt")
LIBRARIES = _read("libraries.txt")
TENSORFLOW = _read("tensorflow.txt")
