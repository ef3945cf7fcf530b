"""Programs on `tf.estimator` give the numbers of TensorFlow 1.15.5, with the package `tensorflow-estimator`."""

from __future__ import annotations

import pytest
from legacy_support import HERE, PROGRAMS, Run, assert_same_numbers, goldens, last_json

FOLDER = PROGRAMS / "estimator"


@pytest.fixture(scope="module")
def under_run(staging_run: Run) -> dict[str, str]:
    paths = sorted(str(path) for path in FOLDER.glob("*.py"))
    printed: dict[str, str] = last_json(staging_run(HERE / "run_programs.py", *paths))
    return printed


@pytest.mark.parametrize("name", sorted(goldens("estimator")))
def test_same_losses_under_run(under_run: dict[str, str], name: str) -> None:
    # Rounding errors add up over the steps of a training.
    assert_same_numbers(under_run[name], goldens("estimator")[name], rel=1e-3)


def test_there_is_a_golden_for_every_program() -> None:
    assert sorted(goldens("estimator")) == sorted(path.stem for path in FOLDER.glob("*.py"))
    assert len(goldens("estimator")) >= 10


def test_a_program_by_itself(staging_run: Run) -> None:
    ran = staging_run(FOLDER / "iris_premade.py")
    assert ran.returncode == 0, ran.stderr[-3000:]
    assert_same_numbers(ran.stdout, goldens("estimator")["iris_premade"], rel=1e-3)
    assert "deprecated" not in ran.stderr
