"""What becomes of a name of `tf.contrib`: what `run` and `migrate` do for that very name."""

from __future__ import annotations

from collections.abc import Collection

from staging_tf1.legacy.codemod import targets
from staging_tf1.legacy.contrib import homes
from staging_tf1.legacy.lint.rules import contrib_names

_CONTRIB = targets.CONTRIB
# contrib.layers.python.layers.initializers and similar modules have the names of contrib.layers.
_INNER = ("python", "ops")


def what_is_left(full: str, used: Collection[str] = ()) -> str:
    """Return what `run` and `migrate` do for a name, and what to do by hand if they do nothing.

    `used` are the full names that a file reads from a module.
    """
    if full == _CONTRIB:
        return f"staging-tf1 run brings back the parts that have a replacement; {targets.advice(full)}"
    if is_module(full):
        return _module(full, sorted({name for name in used if name != full}))
    if not is_brought_back(full):
        return f"staging-tf1 does not bring it back; {_by_hand(full)}"
    if is_migrated(full):
        return "staging-tf1 run brings it back for the program as it is, staging-tf1 migrate rewrites it"
    return f"staging-tf1 run brings it back for the program as it is; to migrate, {targets.advice(full)}"


def is_module(full: str) -> bool:
    """Whether a name is a module that `staging-tf1 run` makes importable, whatever it contains."""
    if any(f"{ours}.".startswith(f"{full}.") for ours in homes.OURS):
        return True
    part, *below = _path(full)
    if part not in homes.OFFERED:
        return False
    if not below or below[0] in contrib_names.only_imported(part):
        return True
    # Of these parts, an unknown name can be imported and not used; of all others it becomes a module.
    return below[0] in _INNER and (len(below) == 1 or part not in homes.LENIENT) and not is_brought_back(full)


def is_brought_back(full: str) -> bool:
    """Whether a program finds a name of `tf.contrib` under `staging-tf1 run`."""
    if any(f"{full}.".startswith(f"{ours}.") for ours in homes.OURS):
        return True
    part, *below = _path(full)
    if part not in homes.OFFERED:
        return False
    if below and below[0] in _INNER:
        below = [name for name in below if name not in _INNER]
        if len(below) > 1 and below[0] == part:
            del below[0]
        if below and below[0] not in contrib_names.of(part):
            below = below[-1:]
    if not below:
        return True
    home = homes.ALIASES.get(part, {}).get(below[0])
    if home is None:
        return below[0] in contrib_names.of(part)
    return len(below) == 1 or below[1] in contrib_names.of(home)


def is_migrated(full: str) -> bool:
    """Whether `staging-tf1 migrate` rewrites a name: it moves itself, or the module that it is in."""
    path = _path(full)
    if any(one in _INNER for one in path):
        return targets.moved(full) is not None
    return any(targets.moved(".".join([_CONTRIB, *path[:length]])) is not None for length in range(1, len(path) + 1))


def _path(full: str) -> list[str]:
    """Return the names below `tf.contrib`. Attributes that every module has are left out."""
    path = full.removeprefix(_CONTRIB + ".").split(".")
    special = next((index for index, name in enumerate(path) if name.startswith("__")), len(path))
    return path[:special]


def _module(full: str, used: list[str]) -> str:
    lacking = [name for name in used if not is_module(name) and not is_brought_back(name)]
    if lacking:
        more = f" and {len(lacking) - 3} more" if len(lacking) > 3 else ""
        shown = ", ".join(name.replace("tensorflow.", "tf.", 1) for name in lacking[:3])
        return f"staging-tf1 does not bring back {shown}{more}; {_by_hand(lacking[0])}"
    if not used:
        return f"staging-tf1 run brings back those of its names that have a replacement; to migrate, {_migrating(full)}"
    if all(is_migrated(name) for name in used):
        return "staging-tf1 run brings back what this file uses of it, staging-tf1 migrate rewrites it"
    return f"staging-tf1 run brings back what this file uses of it; to migrate, {_migrating(full)}"


def _migrating(full: str) -> str:
    if targets.moved(full) is not None:
        return f"import {targets.moved(full)}, as staging-tf1 migrate does"
    return targets.advice(full) or "rewrite the code that uses it"


def _by_hand(full: str) -> str:
    part = _path(full)[0]
    replacement = homes.REPLACEMENTS.get(part)
    if part in homes.OFFERED and replacement:
        # What continues this part lacks this name, so it would be no help to name it as the replacement.
        return f"rewrite the code that uses it (other names of tf.contrib.{part} are in {replacement})"
    return targets.advice(full) or "rewrite the code that uses it"
