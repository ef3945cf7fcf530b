"""What becomes of a name of `tf.contrib`: what `run` and `migrate` do for that very name."""

from __future__ import annotations

from staging_tf1.legacy.codemod import targets
from staging_tf1.legacy.contrib import homes
from staging_tf1.legacy.lint.rules import contrib_names

_CONTRIB = targets.CONTRIB
_OFFERED = homes.LENIENT | set(homes.ALIASES) | set(homes.MODULES) | set(homes.PACKAGES)
_SLIM = "the package tf_slim"


def what_is_left(full: str) -> str:
    """Return what `run` and `migrate` do for a name, and what to do by hand if they do nothing."""
    runs = is_brought_back(full)
    if targets.moved(full) is not None and runs:
        return "staging-tf1 run brings it back for the program as it is, staging-tf1 migrate rewrites it"
    by_hand = _by_hand(full, runs)
    if full == _CONTRIB:
        return f"staging-tf1 run brings back the parts that have a replacement; {by_hand}"
    if runs:
        return f"staging-tf1 run brings it back for the program as it is; to migrate, {by_hand}"
    return f"staging-tf1 does not bring it back; {by_hand}"


def is_brought_back(full: str) -> bool:
    """Whether a program finds a name of `tf.contrib`, or a module of it, under `staging-tf1 run`."""
    if full == _CONTRIB:
        return True
    part, *below = full.removeprefix(_CONTRIB + ".").split(".")
    if part not in _OFFERED:
        return False
    if not below:
        return True
    if below[0] in ("python", "ops"):
        below = below[-1:]  # contrib.layers.python.layers.initializers.NAME is contrib.layers.NAME
    home = homes.ALIASES.get(part, {}).get(below[0])
    if home is not None:
        # tf.estimator was removed from TensorFlow itself.
        return not home.startswith("estimator.")
    return below[0] in contrib_names.of(part)


def _by_hand(full: str, runs: bool) -> str:
    advice = targets.advice(full) or "rewrite the code that uses it"
    if not runs and _SLIM in advice:
        # The package continues this part, but lacks this name.
        others = [one for one in advice.removeprefix("use ").split(" and ") if "tf_slim" not in one]
        return (
            "the package tf_slim lacks it, too; rewrite the code that uses it"
            if not others
            else (f"use {' and '.join(others)}, or rewrite the code that uses it")
        )
    return advice
