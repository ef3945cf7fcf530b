"""Which names of `tf.contrib` a program does not find under `staging-tf1 run`."""

from __future__ import annotations

from staging_tf1.legacy.codemod import targets
from staging_tf1.legacy.contrib.homes import OURS, PARTS

_CONTRIB = targets.CONTRIB


def what_is_missing(full: str) -> str | None:
    """Return what to do about a name of `tf.contrib` that `run` does not bring back; None if it does."""
    if full == _CONTRIB:
        return None
    part, *below = full.removeprefix(_CONTRIB + ".").split(".")
    if part.startswith("__"):
        return None
    if part not in PARTS:
        return f"TensorFlow 1.15 had no tf.contrib.{part}; check the spelling"
    instead = targets.lost(full)
    if instead is not None:
        return f"its ops were in a binary of TensorFlow 1; {_use(instead)}"
    ours = OURS.get(part)
    if ours is None or not below or below[0] in ("python", *ours.names.split()) or below[0].startswith("__"):
        return None
    return f"staging-tf1 does not bring it back; {_use(ours.instead)}"


def _use(instead: str) -> str:
    return f"use {instead}" if instead else "rewrite the code that uses it"
