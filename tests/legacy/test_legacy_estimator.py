"""Programs on `tf.estimator` give the numbers of TensorFlow 1.15.5, with the package `tensorflow-estimator`."""

from __future__ import annotations

import math
import re
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from legacy_support import (
    HERE,
    PROGRAMS,
    PROMISES,
    Run,
    assert_same_numbers,
    goldens,
    last_json,
    names_to_test,
    needs_contrib,
)

from staging_tf1.sources import ArraySource

FOLDER = PROGRAMS / "estimator"
# Ten trainings in one process: about a minute on an idle machine.
_LIMIT_SECS = 1200
pytestmark = pytest.mark.timeout(_LIMIT_SECS)


@pytest.fixture(scope="module")
def under_run(request: pytest.FixtureRequest, legacy_run: Run, try_contrib: str) -> dict[str, str]:
    """What the programs print that this run tests."""
    paths = [FOLDER / f"{name}.py" for name in sorted(names_to_test(request, "test_same_losses_under_run"))]
    printed: dict[str, str] = last_json(legacy_run(HERE / "run_programs.py", *paths, timeout=_LIMIT_SECS))
    return printed


# More estimators, heads and inputs of TensorFlow's, a warm start, and tasks as in test_legacy_cluster.py.
@pytest.mark.matrix_cases(r"(?!(mnist_model_fn)$).*")
@pytest.mark.parametrize("name", sorted(goldens("estimator")))
def test_same_losses_under_run(under_run: dict[str, str], name: str, try_contrib: str) -> None:
    if try_contrib and needs_contrib(FOLDER / f"{name}.py"):
        pytest.skip(try_contrib)
    # Rounding errors add up over the steps of a training.
    assert_same_numbers(under_run[name], goldens("estimator")[name], rel=1e-3)


def test_there_is_a_golden_for_every_program() -> None:
    assert sorted(goldens("estimator")) == sorted(path.stem for path in FOLDER.glob("*.py"))
    assert len(goldens("estimator")) >= 9


def test_an_input_pipeline_resumes_as_under_tensorflow_1(legacy_run: Run) -> None:
    # The output under TensorFlow 1.15.5.
    assert legacy_run(PROMISES / "input_hook.py").stdout.splitlines() == [
        "failed after 11",
        "104 107 102 103 100 111 106 113 108 105 110 116 119 101 112",
        " ".join(f"input.ckpt-{step}.index" for step in (0, 11, 13, 14, 2, 3, 4, 6, 7, 9)),
    ]


def test_each_line_is_logged_once(legacy_run: Run, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "import tensorflow as tf\nfrom absl import logging\ntf.logging.set_verbosity(tf.logging.INFO)\n"
        "logging.warning('now the root logger has a handler, too')\n"
        "tf.estimator.Estimator(lambda features, mode: None)\n"
    )
    assert len(re.findall("^INFO:tensorflow:Using config", legacy_run(program).stderr, re.MULTILINE)) == 1


@pytest.fixture(scope="module")
def staged(legacy_run: Run) -> dict[str, Any]:
    """What programs/promises/estimator_inputs.py prints."""
    found: dict[str, Any] = last_json(legacy_run(PROMISES / "estimator_inputs.py"))
    return found


@pytest.mark.matrix  # test_same_losses_under_run has the same losses
def test_deterministic_ops_change_nothing(staged: dict[str, Any], staging_run: Run) -> None:
    ran = last_json(staging_run(PROMISES / "estimator_inputs.py", env={"TF_DETERMINISTIC_OPS": "1"}))
    for key in ("first run", "second run", "evaluation", "prediction", "both"):
        assert ran[key] == staged[key]


def batches(first: int, rows: int, count: int) -> list[list[int]]:
    """The first batches of the source in that program."""
    source = ArraySource({"row": np.arange(first, first + rows)}, batch_size=4, shuffle=True, seed=1)
    return [source.batch(number)["row"].tolist() for number in range(count)]


def test_a_staged_input_is_read_in_order_and_resumed(staged: dict[str, Any]) -> None:
    # The second run has a StagingHook of its own, in the middle of a pass over the rows.
    assert staged["first run"] + staged["second run"] == batches(0, 40, 12)
    assert "train/position" in staged["variables"]


def test_evaluations_and_predictions_begin_at_the_first_batch(staged: dict[str, Any]) -> None:
    expected = batches(100, 12, 3)
    assert staged["evaluation"] == staged["evaluation, same name"] == expected
    assert staged["prediction"] == [row for batch in expected for row in batch]


def test_training_goes_on_after_each_evaluation(staged: dict[str, Any]) -> None:
    trained = batches(0, 40, 6)
    checked = batches(100, 12, 3)
    assert staged["both"] == [*trained[:3], *checked, *trained[3:], *checked]


def test_other_ways_to_stage(staged: dict[str, Any]) -> None:
    expected = [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11]]
    assert staged["staged in the model_fn"] == staged["lockstep"] == expected


def test_errors_end_the_training(staged: dict[str, Any]) -> None:
    assert staged["failed"] == "RuntimeError: the disk is gone"
    assert staged["interrupted"] == "KeyboardInterrupt: "
    assert staged["threads"] == []
    assert re.fullmatch(
        r"ClusterError: 'shared' \(made at .*\) has cluster=, and an Estimator starts the servers of its cluster "
        r"itself\. Leave cluster= out and give each worker its own part of the input, .*",
        staged["in a cluster"],
    )


@pytest.fixture(scope="module")
def changed(legacy_run: Run) -> dict[str, Any]:
    """What programs/promises/estimator_changed.py prints."""
    found: dict[str, Any] = last_json(legacy_run(PROMISES / "estimator_changed.py"))
    return found


@pytest.mark.parametrize(
    ("old", "mode"), [("None", "exact"), ("None", "ignore"), ("a", "exact"), ("a", "restart"), ("old", "ignore")]
)
def test_a_checkpoint_from_before_the_input_was_staged(changed: dict[str, Any], old: str, mode: str) -> None:
    """Three steps are in the checkpoint; `old` is the name of its pipeline."""
    assert changed[f"{old}, {mode}, evaluated"] == {"seen": [[0, 3.0], [1, 3.0]], "lines": [], "error": None}
    ran = changed[f"{old}, {mode}"]
    if old != "a" and mode == "exact":
        assert re.match(r"CheckpointError: 'a' \(made at .*\) cannot resume exactly: checkpoint ", ran["error"])
        assert ran["seen"] == ran["lines"] == []
        return
    begin = 3 if old == "a" and mode != "restart" else 0
    assert ran["seen"] == [[begin, 3.0], [begin + 1, 4.0]] and ran["error"] is None
    assert [line.split(":")[0] for line in ran["lines"]] == [f"'a' begins with its first batch (resume='{mode}')"] * (
        old != "a"
    )


def test_a_saver_of_the_estimator_without_the_position(changed: dict[str, Any]) -> None:
    (line,) = changed["partial, first"]["lines"]
    assert "checkpoints of this run will not hold its position" in line
    error = changed["partial, exact"]["error"]
    assert error.startswith("CheckpointError: 'a' (made at ")
    assert "does not restore its position. Make the saver after staged()" in error
    assert changed["partial, ignore"]["seen"] == [[0, 3.0], [1, 4.0]]
    assert changed["partial, restart"]["seen"] == [[0, 5.0], [1, 6.0]]
    assert len(changed["partial, restart"]["lines"]) == 1


@pytest.fixture(scope="module")
def names(legacy_run: Run) -> dict[str, Any]:
    """What programs/promises/estimator_names.py prints."""
    ran = legacy_run(PROMISES / "estimator_names.py")
    assert "is deprecated" not in ran.stderr
    found: dict[str, Any] = last_json(ran)
    return found


def test_every_name_is_there(names: dict[str, Any]) -> None:
    assert names["missing"] == []
    assert names["one object"] == [True] * 5


def test_the_heads_of_contrib_take_the_mean_of_a_batch(names: dict[str, Any]) -> None:
    """`contrib_premade_heads` trains with them; those of TensorFlow 2's package sum."""
    assert names["losses"] == pytest.approx([math.log(2), math.log(3), 5.0])


def test_a_hook_does_not_load_the_package(names: dict[str, Any]) -> None:
    assert names["hook"]
    assert not names["loaded for a hook"]


def test_an_estimator_without_a_pipeline_does_not_load_ours(names: dict[str, Any]) -> None:
    assert not names["loaded to train"]


def test_what_is_gone_says_so(names: dict[str, Any]) -> None:
    lacks = "and the package tensorflow-estimator lacks it."
    assert names["boosted trees"] == (
        f"RemovedNameError: tf.estimator.BoostedTreesClassifier was removed, {lacks} Its ops were removed from "
        "TensorFlow. Use the package tensorflow-decision-forests instead."
    )
    assert names["misspelt"] == (
        "RemovedNameError: tf.estimator.Estimater is not in the package tensorflow-estimator, and staging_tf1 does not "
        "restore it."
    )
    assert names["contrib towers"] == (
        f"RemovedNameError: tf.contrib.estimator.replicate_model_fn was removed with tf.contrib, {lacks} Use "
        "RunConfig(train_distribute=tf.distribute.MirroredStrategy()), or average the gradients in the model_fn."
    )
    assert names["contrib misspelt"].endswith("staging_tf1 does not restore it. Use instead: tf.estimator.")


# Whether the package is a part of TensorFlow.
HAS_ESTIMATOR = tuple(map(int, version("tensorflow").split(".")[:2])) < (2, 16)


@pytest.mark.skipif(HAS_ESTIMATOR, reason="TensorFlow 2.15 has the coordinator")
def test_a_strategy_across_a_cluster_is_refused(names: dict[str, Any]) -> None:
    assert names["strategy"].startswith(
        "RemovedNameError: tf.estimator.RunConfig got train_distribute=MirroredStrategy"
    )
    assert names["strategy"].endswith("or train on one machine without TF_CONFIG.")


def test_without_the_package_an_error_names_the_command(legacy_run: Run) -> None:
    report = last_json(legacy_run(PROMISES / "estimator_names.py", "--without-package"))
    cure = "Install it: pip install tensorflow-estimator==2.15.0. The program itself needs no change."
    why = "needs the package tensorflow-estimator, which this TensorFlow does not bring along."
    assert report["estimator"] == f"RemovedNameError: tf.estimator.Estimator {why} {cure}"
    assert report["inputs"] == f"RemovedNameError: tf.estimator.inputs {why} {cure}"
    assert report["contrib"] == f"RemovedNameError: tf.estimator.add_metrics {why} {cure}"
    if not HAS_ESTIMATOR:
        assert report["below"] == f"RemovedModuleError: tensorflow.python.estimator {why} {cure}"
    assert report["hook still there"]
    assert not report["listed"]
