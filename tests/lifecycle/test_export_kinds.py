"""What `export_saved_model()` takes and tells: how variables start, parts of inputs, shapes, ops of training."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow.compat.v1 as tf
from served import Loader

import staging_tf1 as staging
from staging_tf1.errors import BuildError, StagingWarning


@pytest.fixture(scope="module")
def served() -> Iterator[Loader]:
    with Loader() as loader:
        yield loader


@pytest.fixture(autouse=True)
def graph() -> Any:
    with tf.Graph().as_default() as graph:
        yield graph


def averaged(w: Any) -> Any:
    average = tf.train.ExponentialMovingAverage(0.5)
    with tf.control_dependencies([average.apply([w])]):
        tf.add_to_collection("step", tf.no_op())
    return average.average(w)


def initialized(w: Any) -> Any:
    """What `initialized_value()` returns where TensorFlow still has it."""
    return tf.cond(tf.is_variable_initialized(w), w.read_value, lambda: w.initial_value)


def from_another(w: Any) -> Any:
    return tf.Variable(initialized(w) + 1, use_resource=True)


def from_a_chain(w: Any) -> Any:
    second = tf.Variable(initialized(w) + 1, use_resource=True)
    return tf.Variable(initialized(second) * 2, use_resource=True)


def from_a_ref_variable(w: Any) -> Any:
    return tf.Variable(initialized(tf.Variable(initialized(w), use_resource=False)), use_resource=False)


def from_a_placeholder(w: Any) -> Any:
    return tf.Variable(tf.placeholder_with_default(4.0, []), use_resource=True) * tf.Variable(
        tf.py_func(lambda: np.float32(5), [], tf.float32), shape=[], validate_shape=False, use_resource=True
    )


def from_a_batch(w: Any) -> Any:
    batch = tf.data.make_one_shot_iterator(tf.data.Dataset.from_tensors(6.0)).get_next()
    return tf.Variable(batch, use_resource=True)


def of_a_local_variable(w: Any) -> Any:
    local = tf.Variable(w + 7, collections=[tf.GraphKeys.LOCAL_VARIABLES], trainable=False, use_resource=True)
    return local * 1.0


STARTS = [
    averaged,
    from_another,
    from_a_chain,
    from_a_ref_variable,
    from_a_placeholder,
    from_a_batch,
    of_a_local_variable,
]


def exported(start: Any, folder: Path) -> tuple[str, list[float]]:
    """Export x * start(w). Return the folder, and the result for x = [2.0]."""
    x = tf.placeholder(tf.float32, [None])
    y = x * start(tf.get_variable("w", initializer=3.0, use_resource=True))
    with tf.Session() as sess:
        # One after the other: TensorFlow may read a ref variable while another run initializes it.
        for variable in tf.global_variables():
            sess.run(variable.initializer)
        sess.run(tf.local_variables_initializer())
        sess.run(tf.get_collection("step"))
        expected = sess.run(y, {x: [2.0]}).tolist()
        saved = tf.train.Saver().save(sess, str(folder / "model.ckpt"))
    return staging.export_saved_model(str(folder / "model"), {"x": x}, {"y": y}, checkpoint=saved), expected


@pytest.mark.parametrize("start", STARTS)
def test_variables_may_start_from_anything(start: Any, tmp_path: Path) -> None:
    folder, expected = exported(start, tmp_path)
    assert loaded(folder, x=[2.0])["y"].tolist() == expected


@pytest.mark.slow  # the test above loads the same models in this process
@pytest.mark.parametrize("start", STARTS)
def test_tensorflow_2_loads_them(start: Any, tmp_path: Path, served: Loader) -> None:
    folder, expected = exported(start, tmp_path)
    assert served(folder, x=[2.0]) == {"y": expected}


def saved_w(folder: Path) -> tuple[Any, str]:
    """A variable 2.0, and a checkpoint of it."""
    w = tf.get_variable("w", initializer=2.0, use_resource=True)
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        return w, tf.train.Saver().save(sess, str(folder / "model.ckpt"))


def loaded(folder: str, **given: Any) -> Any:
    """What the served model computes. Sparse values are given by a SparseTensorValue."""
    with tf.Session(graph=tf.Graph()) as sess:
        signature = tf.saved_model.loader.load(sess, ["serve"], folder).signature_def["serving_default"]
        feeds = {}
        for name, value in given.items():
            sparse = signature.inputs[name].coo_sparse
            parts = [sparse.indices_tensor_name, sparse.values_tensor_name, sparse.dense_shape_tensor_name]
            feeds |= dict(zip(parts, value)) if sparse.values_tensor_name else {signature.inputs[name].name: value}
        return sess.run({name: info.name for name, info in signature.outputs.items()}, feeds)


SPARSE = tf.SparseTensorValue([[0, 1], [1, 0]], [3.0, 4.0], [2, 2])
PARTS: dict[str, tuple[Callable[[Any], Any], list[float]]] = {
    "values": (lambda sparse: sparse.values, [6.0, 8.0]),
    "indices": (lambda sparse: tf.cast(sparse.indices[:, 1], tf.float32), [2.0, 0.0]),
    "dense_shape": (lambda sparse: tf.cast(sparse.dense_shape, tf.float32), [4.0, 4.0]),
    "all": (lambda sparse: tf.sparse.reduce_sum(sparse, 1), [6.0, 8.0]),
}


@pytest.mark.parametrize("shape", [None, [None, 2], [2, 2]], ids=str)
@pytest.mark.parametrize("part", PARTS)
def test_any_part_of_a_sparse_input_may_stay_unread(part: str, shape: Any, tmp_path: Path) -> None:
    w, saved = saved_w(tmp_path)
    read, expected = PARTS[part]
    sparse = tf.sparse_placeholder(tf.float32, shape)
    unread = tf.placeholder(tf.float32, [None])
    folder = staging.export_saved_model(
        str(tmp_path / "model"),
        {"sparse": sparse, "dense": unread},
        {"y": read(sparse) * w, "dense": unread},
        checkpoint=saved,
        batch_size="any" if shape == [2, 2] else None,
    )
    got = loaded(folder, sparse=SPARSE, dense=[1.0])
    assert got["y"].tolist() == expected
    assert got["dense"].tolist() == [1.0]


STATIC = r"inputs\['x'\] is \(4,\) in the graph, so the model serves batches of 4. Pass batch_size='any' unless"


@pytest.mark.parametrize(
    ("shape", "batch_size", "exported", "warning"),
    [
        ([4], None, [4], STATIC),
        ([4], 4, [4], None),
        ([4], "any", [None], None),
        ([None], None, [None], None),
        ([None], 4, [4], None),
        ([None, 3], None, [None, 3], None),
        ([], None, [], None),
        (None, None, None, None),
        (None, 4, None, None),
    ],
)
def test_an_input_keeps_its_shape(shape: Any, batch_size: Any, exported: Any, warning: Any, tmp_path: Path) -> None:
    w, saved = saved_w(tmp_path)
    x = tf.placeholder(tf.float32, shape)
    y = tf.reduce_sum(x) / (int(x.shape[0]) if shape == [4] else 1.0) * w
    warned = nullcontext() if warning is None else pytest.warns(StagingWarning, match=warning)
    with warned:
        folder = staging.export_saved_model(
            str(tmp_path / "model"), {"x": x}, {"y": y}, checkpoint=saved, batch_size=batch_size
        )
    with tf.Session(graph=tf.Graph()) as sess:
        signature = tf.saved_model.loader.load(sess, ["serve"], folder).signature_def["serving_default"]
        assert (
            tf.TensorShape(signature.inputs["x"].tensor_shape).as_list() == exported
            if exported is not None
            else (signature.inputs["x"].tensor_shape.unknown_rank)
        )
        if exported == [4]:
            with pytest.raises(ValueError, match="Cannot feed value of shape"):
                sess.run(signature.outputs["y"].name, {signature.inputs["x"].name: [2.0, 2.0]})


def test_a_fixed_input_beside_a_free_one_is_no_batch(tmp_path: Path) -> None:
    w, saved = saved_w(tmp_path)
    x, weights = tf.placeholder(tf.float32, [None, 3]), tf.placeholder(tf.float32, [3])
    staging.export_saved_model(
        str(tmp_path / "model"), {"weights": weights, "x": x}, {"y": x * weights * w}, checkpoint=saved
    )


def with_a_dropout(x: Any, w: Any) -> Any:
    return tf.nn.dropout(x, rate=tf.constant(0.5))


def with_noise(x: Any, w: Any) -> Any:
    return x + tf.random.truncated_normal([1])


def with_stateless_noise(x: Any, w: Any) -> Any:
    return x + tf.random.stateless_uniform([1], [1, 2])


def with_an_assign(x: Any, w: Any) -> Any:
    return x * w.assign_add(1.0)


def with_an_assign_before(x: Any, w: Any) -> Any:
    with tf.control_dependencies([w.assign(1.0)]):
        return tf.identity(x)


def with_a_training_step(x: Any, w: Any) -> Any:
    with tf.control_dependencies([tf.train.GradientDescentOptimizer(0.1).minimize(tf.reduce_sum(x) * w)]):
        return tf.identity(x)


def with_a_training_norm(x: Any, w: Any) -> Any:
    image = tf.reshape(x, [-1, 1, 1, 1])
    return tf.nn.fused_batch_norm(image, [1.0], [0.0], is_training=True)[0]


def with_a_dropout_in_a_function(x: Any, w: Any) -> Any:
    return tf.function(lambda value: tf.nn.dropout(value, rate=tf.constant(0.5)))(x)


def of_an_evaluated_model(x: Any, w: Any) -> Any:
    image = tf.reshape(x, [-1, 1, 1, 1])
    normal = tf.nn.fused_batch_norm(image, [1.0], [0.0], mean=[0.0], variance=[1.0], is_training=False)[0]
    return tf.scatter_nd([[0]], x[:1], [1]) + normal


OF_TRAINING = {
    with_a_dropout: "draws random numbers, as dropout does",
    with_noise: "draws random numbers",
    with_stateless_noise: "draws random numbers",
    with_an_assign: "changes a variable or table",
    with_an_assign_before: "changes a variable or table",
    with_a_training_step: "changes a variable or table",
    with_a_training_norm: "normalizes by the batch, as in training",
    with_a_dropout_in_a_function: "draws random numbers, as dropout does",
    of_an_evaluated_model: None,
}


@pytest.mark.parametrize("model", OF_TRAINING)
def test_an_output_of_training_is_told(model: Any, tmp_path: Path) -> None:
    w, saved = saved_w(tmp_path)
    x = tf.placeholder(tf.float32, [None])
    y = model(x, w)
    told = OF_TRAINING[model]
    words = rf"outputs\['y'\] depends on '.+' \(\w+\), which {told}.*\. So does the served model\. Give an output that"
    with nullcontext() if told is None else pytest.warns(StagingWarning, match=words):
        staging.export_saved_model(str(tmp_path / "model"), {"x": x}, {"y": y}, checkpoint=saved)


def test_python_in_a_function_is_refused(tmp_path: Path) -> None:
    w, saved = saved_w(tmp_path)
    x = tf.placeholder(tf.float32, [None])
    y = tf.function(lambda value: tf.py_func(lambda part: part, [value], tf.float32))(x) * w
    with pytest.raises(BuildError, match="which runs Python code of this process"):
        staging.export_saved_model(str(tmp_path / "model"), {"x": x}, {"y": y}, checkpoint=saved)
