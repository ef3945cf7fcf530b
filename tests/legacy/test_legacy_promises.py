"""STG117: what it says of a name of tf.contrib is what `run` and `migrate` do for that name."""

from __future__ import annotations

import functools
import importlib
from pathlib import Path

import pytest

from staging_tf1.legacy.codemod import targets
from staging_tf1.legacy.lint import files
from staging_tf1.legacy.lint.configuration import Configuration

RUN = "staging-tf1 run brings it back for the program as it is"


def said(text: str, tmp_path: Path) -> list[str]:
    path = tmp_path / "a.py"
    path.write_text("import tensorflow as tf\n" + text)
    found = files.check_file(str(path), Configuration(select=("STG117",)))
    assert not isinstance(found, str)
    return [one.message.partition("left TensorFlow with tf.contrib: ")[2] for one in found]


@pytest.mark.parametrize(
    ("name", "runs", "migrates"),
    [
        ("staging.StagingArea", True, True),
        ("slim.conv2d", True, True),
        ("slim.dataset.Dataset", True, True),
        ("layers.conv2d", True, False),
        ("layers.xavier_initializer", True, True),
        ("framework.nest.map_structure", True, True),
        ("framework.nest.is_sequence", False, True),
        ("layers.no_such_layer", False, False),
        ("rnn.LSTMCell", True, True),
        ("rnn.NASCell", False, False),
        ("training.StopAfterNEvalsHook", True, False),
        ("training.bucket", True, True),
        ("training.batch_sequences_with_states", True, True),
        ("training.stratified_sample", False, False),
        ("learn.Estimator", False, False),
        ("learn.datasets", False, False),
        ("learn.datasets.mnist.read_data_sets", True, True),
        ("estimator.add_metrics", True, False),
        ("estimator.RNNEstimator", False, False),
        ("layers.python.layers.initializers", True, False),
        ("slim.python.slim.nets.resnet_v1", False, False),
        ("tpu.TPUEstimator", True, False),
    ],
)
def test_what_becomes_of_a_name(name: str, runs: bool, migrates: bool) -> None:
    full = f"tensorflow.contrib.{name}"
    assert promises.is_brought_back(full) is runs
    assert promises.is_migrated(full) is migrates
    text = promises.what_is_left(full)
    assert text.startswith(RUN) is runs
    assert ("staging-tf1 migrate rewrites it" in text) is (runs and migrates)


def test_nobody_is_sent_to_tf_slim_for_what_it_lacks() -> None:
    text = promises.what_is_left("tensorflow.contrib.layers.no_such_layer")
    assert text == (
        "staging-tf1 does not bring it back; rewrite the code that uses it (other names of tf.contrib.layers are in "
        "the package tf_slim (tf_slim.layers))"
    )


def test_of_a_module_it_says_what_becomes_of_the_names_that_the_file_uses(tmp_path: Path) -> None:
    assert said("from tensorflow.contrib import rnn\nrnn.LSTMCell(8)\n", tmp_path) == [
        "staging-tf1 run brings back what this file uses of it, staging-tf1 migrate rewrites it"
    ]
    assert said("from tensorflow.contrib import rnn\nrnn.NASCell(8)\n", tmp_path) == [
        "staging-tf1 does not bring back tf.contrib.rnn.NASCell; rewrite the code that uses it (other names of "
        "tf.contrib.rnn are in tf.nn.rnn_cell and tf.nn)"
    ]
    assert said("layers = tf.contrib.layers\nlayers.conv2d(1)\nlayers.flatten(2)\n", tmp_path) == [
        "staging-tf1 run brings back what this file uses of it; to migrate, use the package tf_slim (tf_slim.layers)"
    ]
    assert said("import tensorflow.contrib.slim as slim\n", tmp_path) == [
        "staging-tf1 run brings back those of its names that have a replacement; to migrate, import tf_slim, as "
        "staging-tf1 migrate does"
    ]


def test_names_with_a_home_are_those_of_the_installed_packages() -> None:
    """The table holds the names of TensorFlow 2.21. Older releases lack a few."""
    pytest.importorskip("tf_slim")
    from staging_tf1._tf import tf
    from staging_tf1.legacy.contrib import homes, modules

    for part in sorted(set(homes.PACKAGES) | set(homes.MODULES) | set(homes.LENT)):
        there: set[str] = importlib.import_module(homes.LENT[part]).listed(part) if part in homes.LENT else set()
        for package in modules._packages(part):
            there.update(dir(package))
        for path in homes.MODULES.get(part, ()):
            # Without Keras 2, TensorFlow cannot list its cells.
            of_keras = path == "nn.rnn_cell"
            there.update(targets._RNN_CELLS if of_keras else dir(functools.reduce(getattr, path.split("."), tf)))


def test_every_moved_name_is_brought_back() -> None:
    # `migrate` writes the new name, so `run` must find it, too. Those of numpy and Python are no names of tf.contrib.
    moves = [name for name in targets.MOVES if name.startswith("tensorflow.contrib.")]
    assert moves and [name for name in moves if not promises.is_brought_back(name)] == []
