"""The reimplemented parts of `tf.contrib`, compared with results of TensorFlow 1.15.5."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from staging_tf1.legacy.contrib import homes
from staging_tf1.legacy.contrib.absent import removal_message
from staging_tf1.legacy.contrib.advice import ADVICE
from staging_tf1.legacy.contrib.hparams import HParams
from staging_tf1.legacy.contrib.initializers import variance_scaling_initializer, xavier_initializer
from staging_tf1.legacy.contrib.placement import GreedyLoadBalancingStrategy, byte_size_load_fn
from staging_tf1.legacy.contrib.regularizers import l1_regularizer, l2_regularizer


@pytest.mark.parametrize(
    ("initializer", "first"),
    [
        # Printed by TensorFlow 1.15.5 for shape [3, 5].
        (lambda: xavier_initializer(uniform=False, seed=3), [0.6052405, -0.5008667, 0.06377695, 0.10553303]),
        (lambda: xavier_initializer(seed=4), [0.7908227, -0.4038956, 0.8622109, 0.5991042]),
        (lambda: variance_scaling_initializer(seed=5), [-1.0967354, -0.6609195, -1.6274465, -0.46116647]),
        (
            lambda: variance_scaling_initializer(seed=5, uniform=True, mode="FAN_OUT"),
            [-0.24469775, 0.3586111, -0.67498976, 0.45143878],
        ),
    ],
)
def test_initializers_draw_the_numbers_of_tensorflow_1(initializer: Any, first: list[float], graph: Any) -> None:
    with tf.Session() as sess:
        drawn = sess.run(initializer()([3, 5], dtype=tf.float32))
    np.testing.assert_allclose(drawn.ravel()[:4], first, rtol=1e-6)


def test_initializers_refuse_what_makes_no_sense() -> None:
    with pytest.raises(ValueError, match="Unknown mode 'FAN': use FAN_IN, FAN_OUT or FAN_AVG"):
        variance_scaling_initializer(mode="FAN")
    with pytest.raises(TypeError, match="Cannot create initializer for non-floating point type: got int32"):
        xavier_initializer(dtype=tf.int32)


def test_regularizers(graph: Any) -> None:
    weights = tf.constant([1.0, -2.0])
    with tf.Session() as sess:
        assert sess.run(l1_regularizer(0.1)(weights)) == pytest.approx(0.3)
        assert sess.run(l2_regularizer(0.1)(weights)) == pytest.approx(0.25)
    assert l2_regularizer(0.0)(weights) is None
    with pytest.raises(ValueError, match="scale cannot be an integer: 1"):
        l2_regularizer(1)


def test_variables_go_to_the_server_with_the_least_load(graph: Any) -> None:
    strategy = GreedyLoadBalancingStrategy(2, byte_size_load_fn)
    with tf.device(tf.train.replica_device_setter(ps_tasks=2, ps_strategy=strategy)):
        sizes = (100, 10, 10, 10, 200)
        devices = [tf.get_variable(f"v{i}", [size]).device for i, size in enumerate(sizes)]
    assert [device[-1] for device in devices] == ["0", "1", "1", "1", "1"]


def test_hparams() -> None:
    hparams = HParams(steps=1, sizes=[1, 2], name="x", on=True, rate=0.5)
    assert hparams.parse("steps=3,sizes=[4,5],name=yy,on=false").parse("sizes[1]=9") is hparams
    assert hparams.values() == {"name": "yy", "on": False, "rate": 0.5, "sizes": [4, 9], "steps": 3}
    assert HParams(**hparams.values()).parse_json(hparams.to_json()).values() == hparams.values()
    assert ("rate" in hparams, hparams.get("nothing", 7)) == (True, 7)
    hparams.del_hparam("rate")
    assert not hasattr(hparams, "rate")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("steps=0.5", "Could not parse hyperparameter steps: '0.5' is not of type int"),
        ("other=1", "Unknown hyperparameter type for other"),
        ("sizes=3", "Hyperparameter sizes takes a list, got 3"),
        ("steps", "Malformed hyperparameter value: steps"),
        ("steps=1,steps=2", "Multiple assignments to variable 'steps' in steps=1,steps=2"),
        ("sizes[5]=1", "Hyperparameter sizes has no element 5"),
        ("on=maybe", "Could not parse hyperparameter on: 'maybe' is neither true nor false"),
    ],
)
def test_hparams_refuse_text_that_does_not_fit(text: str, message: str) -> None:
    with pytest.raises(ValueError) as caught:
        HParams(steps=1, sizes=[1], on=True).parse(text)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("symbol", "end"),
    [
        ("contrib.layers.real_valued_column", "Use instead: tf.feature_column."),
        ("contrib.rnn.NASCell", "There is no replacement."),
        ("contrib.training.weighted_resample", "Use instead: tf.data.Dataset.rejection_resample."),
        (
            "contrib.framework.nothing",
            "Use instead: tf.train, tf.nest and the package tf_slim. tf_slim has no nothing.",
        ),
        ("contrib.slim", "Use instead: the package tf_slim."),
    ],
)
def test_messages_promise_only_what_is_there(symbol: str, end: str) -> None:
    pytest.importorskip("tf_slim")
    gone = f"tf.{symbol} was removed with tf.contrib, and staging_tf1 does not restore it."
    assert removal_message(symbol, symbol.split(".")[1]) == f"{gone} {end}"


def test_no_listed_name_is_in_tf_slim() -> None:
    pytest.importorskip("tf_slim")
    for part, names in ADVICE.items():
        for home in homes.PACKAGES.get(part, ()):
            module = importlib.import_module(home)
            assert not [name for name in names if hasattr(module, name)], home
