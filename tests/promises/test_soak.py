"""Random pipelines, speeds, faults, stop moments and damaged checkpoints, and the promises that must hold.

Every case is drawn from a seed of its own, which a failure prints with the command that replays it. The normal run
takes 4 seconds, with the slow tests 30, and always begins with the same case, because a change must not fail for what
another one broke. `make soak` draws new ones, for ten minutes.

Environment: STAGING_TF1_SOAK_SECS, how long (0 is one case), with a new seed. STAGING_TF1_SOAK_SEED, the seed of the
first case; the others follow it by one each.
"""

from __future__ import annotations

import gc
import os
import random
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import tensorflow.compat.v1 as tf
from soak.damage import Saved
from soak.invariants import check
from soak.outcome import Outcome
from soak.plan import draw
from soak.play import Game

# Seconds, and the seed of the first case.
FORMS: list[Any] = [(4.0, 41000), pytest.param(26.0, 41500, marks=pytest.mark.matrix)]
if "STAGING_TF1_SOAK_SECS" in os.environ:
    FORMS = [(float(os.environ["STAGING_TF1_SOAK_SECS"]), random.SystemRandom().randrange(10**9))]
if "STAGING_TF1_SOAK_SEED" in os.environ:
    FORMS = [(FORMS[0][0], int(os.environ["STAGING_TF1_SOAK_SEED"]))]


# The last case may begin just before the end, on a machine that is busy besides.
@pytest.mark.timeout(FORMS[0][0] + 900)
@pytest.mark.parametrize(("secs", "first"), FORMS)
def test_soak(tmp_path: Path, secs: float, first: int) -> None:
    # Forked children collect garbage, and what other tests have left may not be freed there.
    gc.collect()
    end = time.monotonic() + secs
    ways: Counter[str] = Counter()
    seed = first
    while seed == first or time.monotonic() < end:
        try:
            play(seed, tmp_path / str(seed))
        except BaseException:
            print(f"replay: STAGING_TF1_SOAK_SECS=0 STAGING_TF1_SOAK_SEED={seed} pytest -s tests/promises/test_soak.py")
            raise
        ways[draw(seed).kind] += 1
        seed += 1
    print(f"soak: {seed - first} cases from seed {first} on: {dict(ways.most_common())}")


def play(seed: int, folder: Path) -> None:
    """One case: a graph, and all its sessions."""
    plan = draw(seed)
    print(plan, flush=True)
    with tf.Graph().as_default():
        game = Game(plan)
        saved = Saved(plan, str(folder)) if plan.resumes else None
        for number in range(plan.sessions):
            outcome = session(game, saved, number)
            check(plan, outcome, saved.begin if saved is not None else [0] * plan.towers)
            if saved is not None:
                saved.went_on(outcome)


def session(game: Game, saved: Saved | None, number: int) -> Outcome:
    """The session of this number; after one that refuses a damaged checkpoint, the one that goes on from elsewhere."""
    damage = game.plan.damage
    damaged = saved is not None and damage is not None and damage.before == number
    if damaged:
        saved.damage()
    outcome = game.play(saved.folder if saved is not None else None)
    print(f"  {outcome}", flush=True)
    if damaged and saved.refused(outcome):
        saved.cure()
        outcome = game.play(saved.folder)
        print(f"  {outcome}", flush=True)
    return outcome
