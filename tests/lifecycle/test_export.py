"""`export_saved_model()`: plain TensorFlow 2 loads the model and computes what the training graph computed."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow.compat.v1 as tf
from served import Loader

import staging_tf1 as staging
from staging_tf1.cli.export import make_parser
from staging_tf1.cli.main import main
from staging_tf1.errors import BuildError, CheckpointError
from staging_tf1.sources import ArraySource

X = np.linspace(-1, 1, 24, dtype=np.float32).reshape(8, 3)


@pytest.fixture(scope="module")
def served() -> Iterator[Loader]:
    with Loader() as loader:
        yield loader


@pytest.fixture(autouse=True)
def graph() -> Any:
    with tf.Graph().as_default() as graph:
        tf.set_random_seed(1)
        yield graph


def staged() -> Any:
    return staging.staged(ArraySource({"x": X, "y": X[:, 0]}, batch_size=4), name="train")


def dequeued() -> Any:
    return staging.CustomRunner(ArraySource({"x": X, "y": X[:, 0]}, batch_size=4), queue="shuffle").get_inputs()


def two_areas() -> Any:
    return staging.staged(staged(), name="second")


def dense(x: Any) -> Any:
    w = tf.get_variable("w", [3, 2], use_resource=True)
    return tf.matmul(x, w) + tf.get_variable("b", [2], initializer=tf.ones_initializer(), use_resource=True)


def of_ref_variables(x: Any) -> Any:
    return tf.matmul(x, tf.get_variable("w", [3, 2], use_resource=False))


def partitioned(x: Any) -> Any:
    w = tf.get_variable("w", [3, 2], partitioner=tf.fixed_size_partitioner(2), use_resource=True)
    return tf.matmul(x, tf.convert_to_tensor(w))


def normalized(x: Any) -> Any:
    mean = tf.get_variable("mean", [3], trainable=False, initializer=tf.ones_initializer(), use_resource=True)
    tf.add_to_collection(tf.GraphKeys.UPDATE_OPS, mean.assign_sub(0.1 * (mean - tf.reduce_mean(x, 0))))
    return dense(tf.nn.relu(x - mean))


def in_a_loop(x: Any) -> Any:
    w = tf.get_variable("w", [3, 3], use_resource=True)
    return tf.while_loop(lambda i, y: i < 3, lambda i, y: (i + 1, tf.tanh(tf.matmul(y, w))), (0, x))[1]


def train(model: Callable[[Any], Any], batch: Any, folder: Path) -> tuple[Any, Any]:
    """Train for three steps. Return the output of the model, and how to compute it with the trained variables."""
    out = model(batch["x"])
    loss = tf.reduce_mean(tf.square(tf.reduce_sum(out, 1) - batch["y"]))
    with tf.control_dependencies(tf.get_collection(tf.GraphKeys.UPDATE_OPS)):
        step = tf.train.GradientDescentOptimizer(0.1).minimize(loss, tf.train.get_or_create_global_step())
    with staging.StagingSession(checkpoint_dir=str(folder)) as sess:
        for _ in range(3):
            sess.run(step)
        return out, np.concatenate([sess.run(out, {batch["x"]: part}) for part in (X[:4], X[4:])])


@pytest.mark.parametrize(
    ("batch", "model"),
    [
        (staged, dense),
        (dequeued, normalized),
        (two_areas, dense),
        (staged, of_ref_variables),
        (staged, partitioned),
        (staged, in_a_loop),
    ],
    ids=lambda each: each.__name__,
)
def test_a_served_model_computes_what_the_trained_one_does(
    batch: Any, model: Any, tmp_path: Path, served: Loader
) -> None:
    tensors = batch()
    out, expected = train(model, tensors, tmp_path / "training")
    folder = staging.export_saved_model(
        str(tmp_path / "model"),
        {"x": tensors["x"]},
        {"out": out},
        checkpoint=str(tmp_path / "training"),
        batch_size="any",
    )
    got = served(folder, x=X)
    np.testing.assert_allclose(got["out"], expected, rtol=1e-5, atol=1e-6)


def test_tables_bring_their_files(tmp_path: Path, served: Loader) -> None:
    words = tmp_path / "words.txt"
    words.write_text("red\ngreen\nblue\n")
    batch = staging.staged(ArraySource({"word": np.array([b"red", b"blue"] * 4)}, batch_size=4))
    init = tf.lookup.TextFileInitializer(
        str(words), tf.string, tf.lookup.TextFileIndex.WHOLE_LINE, tf.int64, tf.lookup.TextFileIndex.LINE_NUMBER
    )
    number = tf.lookup.StaticHashTable(init, -1).lookup(batch["word"])
    scale = tf.get_variable("scale", initializer=10, dtype=tf.int32, use_resource=True)
    tf.train.get_or_create_global_step()
    with staging.StagingSession(checkpoint_dir=str(tmp_path / "training")) as sess:
        sess.run(number)
    staging.export_saved_model(
        str(tmp_path / "model"),
        {"word": batch["word"]},
        {"number": tf.cast(number, tf.int32) * scale},
        checkpoint=str(tmp_path / "training"),
        batch_size="any",
    )
    words.unlink()
    shutil.move(tmp_path / "model", tmp_path / "moved")
    got = served(str(tmp_path / "moved"), word=["blue", "green", "grey"])
    assert got == {"number": [20, 10, -10]}


def test_sparse_inputs_and_outputs_that_are_inputs(tmp_path: Path) -> None:
    sparse = tf.sparse.from_dense(staged()["x"])
    total = tf.sparse.reduce_sum(sparse, 1) * tf.get_variable("w", initializer=2.0, use_resource=True)
    tf.train.get_or_create_global_step()
    with staging.StagingSession(checkpoint_dir=str(tmp_path / "training")) as sess:
        sess.run(total)
    (tmp_path / "model").mkdir()
    folder = staging.export_saved_model(
        str(tmp_path / "model"),
        {"sparse": sparse},
        {"total": total, "again": sparse.values},
        checkpoint=tf.train.latest_checkpoint(str(tmp_path / "training")),
        batch_size="any",
    )
    value = tf.SparseTensorValue([[0, 1], [1, 0]], [3.0, 4.0], [2, 2])
    with tf.Session(graph=tf.Graph()) as sess:
        signature = tf.saved_model.loader.load(sess, ["serve"], folder).signature_def["serving_default"]
        fed = tf.SparseTensor(
            *(
                sess.graph.as_graph_element(getattr(signature.inputs["sparse"].coo_sparse, f"{part}_tensor_name"))
                for part in ("indices", "values", "dense_shape")
            )
        )
        outputs = {name: info.name for name, info in signature.outputs.items()}
        got = sess.run(outputs, {fed: value})
    assert (got["total"].tolist(), got["again"].tolist()) == ([6.0, 8.0], [3.0, 4.0])


def test_the_training_graph_stays_as_it_is(tmp_path: Path, graph: Any) -> None:
    batch = staged()
    out, _ = train(dense, batch, tmp_path / "training")
    before = graph.as_graph_def().SerializeToString(deterministic=True)
    staging.export_saved_model(
        str(tmp_path / "model"), {"x": batch["x"]}, {"out": out}, checkpoint=str(tmp_path / "training"), batch_size=4
    )
    assert graph.as_graph_def().SerializeToString(deterministic=True) == before


def fed_twice(batch: Any, out: Any) -> dict[str, Any]:
    return {"inputs": {"x": batch["x"], "y": batch["y"]}, "outputs": {"out": out}}


def by_another_tensor(batch: Any, out: Any) -> dict[str, Any]:
    return {"inputs": {"y": batch["y"]}, "outputs": {"out": out}}


def behind_a_placeholder(batch: Any, out: Any) -> dict[str, Any]:
    rate = tf.placeholder(tf.float32, [], name="rate")
    return {"inputs": {"x": batch["x"]}, "outputs": {"out": out * rate}}


def behind_python(batch: Any, out: Any) -> dict[str, Any]:
    return {"inputs": {"x": batch["x"]}, "outputs": {"out": tf.py_func(lambda x: x, [out], tf.float32, name="mine")}}


def of_a_fixed_size(batch: Any, out: Any) -> dict[str, Any]:
    return {"inputs": {"x": batch["x"]}, "outputs": {"out": out + tf.zeros([4, 2])}, "batch_size": 3}


def of_another_graph(batch: Any, out: Any) -> dict[str, Any]:
    with tf.Graph().as_default():
        return {"inputs": {"x": tf.constant(1.0)}, "outputs": {"out": out}}


def with_a_variable_more(batch: Any, out: Any) -> dict[str, Any]:
    more = tf.get_variable("more", initializer=1.0, use_resource=True)
    return {"inputs": {"x": batch["x"]}, "outputs": {"out": out * more}}


REFUSED: dict[str, tuple[Callable[[Any, Any], dict[str, Any]], type[Exception], str]] = {
    "an input too much": (fed_twice, BuildError, r"no output depends on inputs\['y'\]. Leave it out"),
    "an input that is missing": (
        by_another_tensor,
        BuildError,
        r"outputs\['out'\] \('\S+:0'\) depends on '\S+', which takes a batch. Give the tensors .* train\S*:\d now",
    ),
    "a placeholder": (behind_a_placeholder, BuildError, "depends on 'rate', which must be fed"),
    "a Python function": (behind_python, BuildError, "depends on 'mine', which runs Python code of this process"),
    "another batch size": (
        of_a_fixed_size,
        BuildError,
        r"does not compute with inputs of batch_size=3: .*Give the batch size that it was trained with",
    ),
    "another graph": (of_another_graph, TypeError, r"inputs\['x'\]=.*expected a tensor or sparse tensor of the graph"),
    "a checkpoint without a variable": (
        with_a_variable_more,
        CheckpointError,
        "model.ckpt-3 does not fit the graph: .*more",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_served_is_refused(case: str, tmp_path: Path) -> None:
    made, kind, words = REFUSED[case]
    batch = staged()
    out, _ = train(dense, batch, tmp_path / "training")
    with pytest.raises(kind, match=words):
        staging.export_saved_model(str(tmp_path / "model"), checkpoint=str(tmp_path / "training"), **made(batch, out))
    assert not (tmp_path / "model").exists()


def test_folders_are_checked(tmp_path: Path) -> None:
    x = tf.constant([1.0])
    options: dict[str, Any] = {"inputs": {"x": x}, "outputs": {"y": tf.identity(x)}}
    with pytest.raises(CheckpointError, match=r"there is no checkpoint at .*Give the path of one, such as model"):
        staging.export_saved_model(str(tmp_path / "model"), checkpoint=str(tmp_path), **options)
    with tf.Session() as sess:
        tf.train.Saver([tf.get_variable("w", initializer=1.0)], allow_empty=True)
        sess.run(tf.global_variables_initializer())
        saved = tf.train.Saver().save(sess, str(tmp_path / "model.ckpt"))
    with pytest.raises(FileExistsError, match=r"exists and is not empty. Remove it, or choose another folder"):
        staging.export_saved_model(str(tmp_path), checkpoint=saved, **options)


def test_the_command_exports_a_meta_graph(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    batch = staged()
    out, expected = train(dense, batch, tmp_path / "training")
    words = ["export", str(tmp_path / "training"), str(tmp_path / "model"), "--batch-size", "any"]
    tensors = ["--input", f"x={batch['x'].name}", "--output", f"out={out.op.name}"]
    assert main([*words, *tensors]) == 0
    assert re.fullmatch(r"exported \S+model.ckpt-3 to \S+model: x -> out\n", capsys.readouterr().out)
    with tf.Session(graph=tf.Graph()) as sess:
        signature = tf.saved_model.loader.load(sess, ["serve"], str(tmp_path / "model")).signature_def[
            "serving_default"
        ]
        got = sess.run(signature.outputs["out"].name, {signature.inputs["x"].name: X})
    np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("tensors", "text"),
    [
        (["x=nothing:0"], "has no tensor 'nothing:0', expected a name such as"),
        (["x=train/nothing"], r"has no tensor 'train/nothing'.* There are train/"),
        (["y=train/Identity_1:0"], "depends on .* which takes a batch"),
        (["x=staged/Identity:0"], r"has no tensor 'staged/Identity:0'.* There are .*train/Identity:0"),
        (["x=train/Identity", "x=train/Identity_1"], "--input got 'x' twice, expected another name for each tensor"),
    ],
)
def test_the_command_says_what_is_wrong(
    tensors: list[str], text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, _ = train(dense, staged(), tmp_path / "training")
    given = [word for tensor in tensors for word in ("--input", tensor)]
    assert (
        main(["export", str(tmp_path / "training"), str(tmp_path / "model"), *given, "--output", f"out={out.name}"])
        == 1
    )
    assert re.search(rf"staging-tf1 export: .*{text}", capsys.readouterr().err)


def test_the_command_wants_names() -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["export", "model", "folder", "--input", "x", "--output", "y=y:0"])


def cut(path: Path) -> None:
    os.truncate(path, 10)


DAMAGES = {
    "cut data": (
        "data-*",
        cut,
        r"model\.ckpt-3 is damaged or incomplete: \w+: .*Copy it again, or give an older one\.",
    ),
    "cut index": ("index", cut, r"model\.ckpt-3 is damaged or incomplete: \w+: "),
    "no data": ("data-*", Path.unlink, r"model\.ckpt-3 is damaged or incomplete: \w+: "),
    "cut graph": ("meta", cut, "ckpt-3.meta is not a saved graph: "),
    "no graph": ("meta", Path.unlink, "ckpt-3.meta, the saved graph, does not exist. Give its file with --meta-graph"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_the_command_names_a_damaged_file(damage: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    part, do, text = DAMAGES[damage]
    batch = staged()
    out, _ = train(dense, batch, tmp_path / "training")
    for path in (tmp_path / "training").glob(f"model.ckpt-3.{part}"):
        do(path)
    words = ["export", str(tmp_path / "training"), str(tmp_path / "model"), "--input", f"x={batch['x'].name}"]
    assert main([*words, "--output", f"out={out.name}"]) == 1
    told = capsys.readouterr().err
    assert re.fullmatch(rf"staging-tf1 export: .*{text}.*\n", told), told


@pytest.mark.parametrize("part", ["meta", "index", "data-*"])
def test_a_file_of_a_checkpoint_stands_for_it(part: str, tmp_path: Path) -> None:
    batch = staged()
    out, _ = train(dense, batch, tmp_path / "training")
    file, *_ = (tmp_path / "training").glob(f"model.ckpt-3.{part}")
    staging.export_saved_model(
        str(tmp_path / "model"), {"x": batch["x"]}, {"out": out}, checkpoint=str(file), batch_size=4
    )


def test_the_example_of_the_command_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    commands = re.findall(r"^  staging-tf1 (.*)$", make_parser().format_help(), re.MULTILINE)
    assert [command.split()[0] for command in commands] == ["train", "export"]
    for command in commands:
        assert main([*command.split(), *(["--epochs", "1"] if "train" in command else [])]) == 0
    assert "to served: image -> label" in capsys.readouterr().out
