"""Random pipelines, speeds, faults and stop moments, and the promises that must hold whatever happens.

Every case is drawn from a seed of its own, which a failure prints with the command that replays it. The normal run
takes 60 seconds, and always begins with the same case, because a change must not fail for what another one broke.
`make soak` draws new ones, for ten minutes.

Environment: STAGING_TF1_SOAK_SECS, how long (0 is one case), with a new seed. STAGING_TF1_SOAK_SEED, the seed of the
first case; the others follow it by one each.
"""

from __future__ import annotations

import os
import random
import time
from collections import Counter
from pathlib import Path

import pytest
import tensorflow.compat.v1 as tf
from soak.invariants import check
from soak.plan import draw
from soak.play import Game

SECS = float(os.environ.get("STAGING_TF1_SOAK_SECS", "60"))
_FIRST = random.SystemRandom().randrange(10**9) if "STAGING_TF1_SOAK_SECS" in os.environ else 41000
SEED = int(os.environ.get("STAGING_TF1_SOAK_SEED", _FIRST))


# The last case may begin just before the end, on a machine that is busy besides.
@pytest.mark.timeout(SECS + 900)
def test_soak(tmp_path: Path) -> None:
    end = time.monotonic() + SECS
    ways: Counter[str] = Counter()
    seed = SEED
    while seed == SEED or time.monotonic() < end:
        try:
            play(seed, tmp_path / str(seed))
        except BaseException:
            print(f"replay: STAGING_TF1_SOAK_SECS=0 STAGING_TF1_SOAK_SEED={seed} pytest -s tests/test_soak.py")
            raise
        ways[draw(seed).kind] += 1
        seed += 1
    print(f"soak: {seed - SEED} cases from seed {SEED} on: {dict(ways.most_common())}")


def play(seed: int, folder: Path) -> None:
    """One case: a graph, and all its sessions."""
    plan = draw(seed)
    print(plan, flush=True)
    begin = [0] * plan.towers
    with tf.Graph().as_default():
        game = Game(plan)
        for _ in range(plan.sessions):
            outcome = game.play(str(folder) if plan.resumes else None)
            print(f"  {outcome}", flush=True)
            check(plan, outcome, begin)
            if plan.resumes:
                begin = [at + len(got) for at, got in zip(begin, outcome.got)]
