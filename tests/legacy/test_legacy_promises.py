"""STG117 and `migrate`: what they say of a name of tf.contrib is what becomes of it."""

from __future__ import annotations

import pytest

from staging_tf1.legacy import moved_names
from staging_tf1.legacy.contrib import homes


@pytest.mark.parametrize(
    ("name", "missing", "moves"),
    [
        ("staging.StagingArea", None, "staging_tf1.StagingArea"),
        ("slim.conv2d", None, "staging_tf1.contrib.slim.conv2d"),
        ("slim.python.slim.nets.resnet_v1", None, "staging_tf1.contrib.slim.python.slim.nets.resnet_v1"),
        ("framework.nest.map_structure", None, "staging_tf1.contrib.framework.nest.map_structure"),
        ("framework.nest", None, "tensorflow.nest"),
        ("rnn.LSTMCell", None, "tensorflow.nn.rnn_cell.LSTMCell"),
        ("rnn.NASCell", None, "staging_tf1.contrib.rnn.NASCell"),
        ("learn.ModeKeys", None, "staging_tf1.contrib.learn.ModeKeys"),
        ("seq2seq.BasicDecoder", None, "staging_tf1.contrib.seq2seq.BasicDecoder"),
        ("estimator.add_metrics", None, "staging_tf1.contrib.estimator.add_metrics"),
        ("estimator.RNNEstimator", "staging-tf1 does not bring it back; use tf.estimator", None),
        ("tpu.TPUEstimator", None, "staging_tf1.contrib.tpu.TPUEstimator"),
        ("tpu.python.tpu.tpu_estimator", None, None),
        (
            "tensor_forest.client",
            "its ops were in a binary of TensorFlow 1; use the package tensorflow-decision-forests",
            None,
        ),
        ("rpc.rpc", "its ops were in a binary of TensorFlow 1; rewrite the code that uses it", None),
        (
            "image.connected_components",
            "its ops were in a binary of TensorFlow 1; use scipy.ndimage.label in tf.numpy_function",
            None,
        ),
        ("image.rotate", None, "staging_tf1.contrib.image.rotate"),
        ("lookups.index", "TensorFlow 1.15 had no tf.contrib.lookups; check the spelling", None),
        ("lite.TFLiteConverter", None, None),
        ("gan.gan_model", None, None),
        ("distributions.python.ops.bernoulli", None, "staging_tf1.contrib.distributions.python.ops.bernoulli"),
    ],
)
def test_what_becomes_of_a_name(name: str, missing: str | None, moves: str | None) -> None:
    full = f"tensorflow.contrib.{name}"
    assert moved_names.what_is_missing(full) == missing
    assert moved_names.moved(full) == moves
    if missing is not None:
        assert moved_names.advice(full)


def test_every_moved_name_is_brought_back() -> None:
    # `migrate` writes the new name, so `run` must find it, too. Those of numpy and Python are no names of tf.contrib.
    moves = [name for name in moved_names.MOVES if name.startswith("tensorflow.contrib.")]
    assert moves and [name for name in moves if moved_names.what_is_missing(name) is not None] == []


def test_the_names_of_our_parts_are_there() -> None:
    """The table holds the names of TensorFlow 2.21. Older releases lack a few."""
    from staging_tf1.legacy.shim.old_names import value_at

    for part, ours in homes.OURS.items():
        listed = set(ours.names)
        there = {name for home in ours.homes for name in dir(value_at(home))}
        assert len(listed - there) <= max(1, 0.1 * len(listed)), (part, listed - there)
