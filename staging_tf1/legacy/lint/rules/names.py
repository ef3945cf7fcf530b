"""Names that TensorFlow 2 does not have."""

from __future__ import annotations

from staging_tf1.legacy.lint.facts import Facts, Place
from staging_tf1.legacy.lint.rule import Found, Rule

_NEVER_WAS = "tensorflow.staging"
_CONTRIB = "tensorflow.contrib"


def tutorial_api(facts: Facts) -> Found:
    """STG116."""
    for place, full in _outermost(facts, _NEVER_WAS):
        yield (
            place,
            f"{_short(full)}: TensorFlow never had tf.staging; use staging_tf1.StagingArea(dtypes, shapes), with "
            "put() and get() instead of stage() and unstage()",
        )


def contrib(facts: Facts) -> Found:
    """STG117."""
    for place, full in _outermost(facts, _CONTRIB):
        yield (
            place,
            f"{_short(full)} left TensorFlow with tf.contrib: staging-tf1 run brings it back for the program as it "
            "is, staging-tf1 migrate rewrites it",
        )


def _outermost(facts: Facts, package: str) -> list[tuple[Place, str]]:
    """Return one use per line of any name in `package`, written out or imported."""
    found: dict[int, tuple[Place, str]] = {}
    last = package.rpartition(".")[2]
    for full, spelled, place in facts.uses:
        written_out = spelled is None or last in spelled.split(".")
        fallback = spelled is None and place.guarded  # the file itself handles the missing name
        if written_out and not fallback and (full == package or full.startswith(package + ".")):
            found.setdefault(place.line, (place, full))
    return [found[line] for line in sorted(found)]


def _short(full: str) -> str:
    return full.replace("tensorflow.", "tf.", 1)


RULES = (
    Rule("STG116", "tutorial-api", tutorial_api),
    Rule("STG117", "contrib", contrib),
)
