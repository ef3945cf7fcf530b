"""A program whose pipelines have changed continues from its checkpoint as `resume=` says, in every kind of session."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import tensorflow.compat.v1 as tf
from clusters import only_worker
from resuming import plain
from running import feed_threads

import staging_tf1 as staging
from staging_tf1.errors import CheckpointError, ResumeError
from staging_tf1.sources import ArraySource, GeneratorSource

pytestmark = pytest.mark.usefixtures("quick_graphs")

# Steps before the checkpoint, and after it.
CONSUMED, NEXT = 3, 2
QUIET: dict[str, Any] = dict(save_checkpoint_steps=1, log_step_count_steps=0, save_summaries_steps=0)
MODES = ("exact", "ignore", "restart")
FIRST = "begins with its first batch"


class Model(NamedTuple):
    """A graph: what a step fetches, and what it has to show of a restore."""

    batches: dict[str, Any]
    train: Any
    weights: Any


def build(names: Sequence[str], **options: Any) -> Model:
    """Build a model that adds 1 to its weights in each step, with a pipeline for each name."""
    # Longer than a run, so that each checkpoint is one within the data.
    batches = {
        name: staging.staged(ArraySource(np.arange(20), batch_size=1, epochs=1), name=name, **options) for name in names
    }
    weights = tf.get_variable("weights", [4], initializer=tf.zeros_initializer())
    step = tf.train.get_or_create_global_step()
    return Model(batches, tf.group(weights.assign_add(tf.ones([4])), step.assign_add(1)), weights)


@contextmanager
def supervisor(folder: Path, saver: Any = None) -> Iterator[Any]:
    saver = tf.train.Saver() if saver is None else saver
    # Its thread that counts steps for summaries cannot read a resource variable.
    supervisor = tf.train.Supervisor(logdir=str(folder), saver=saver, summary_writer=None, save_model_secs=0)
    with supervisor.managed_session() as sess:
        yield sess
        saver.save(sess, str(folder / "model.ckpt"), global_step=tf.train.get_global_step())


def monitored(folder: Path, saver: Any = None, hooks: Any = ()) -> Any:
    """`MonitoredTrainingSession`; a saver of the user's is the one in the collection."""
    if saver is not None:
        tf.add_to_collection(tf.GraphKeys.SAVERS, saver)
    return tf.train.MonitoredTrainingSession(checkpoint_dir=str(folder), hooks=hooks, **QUIET)


def scaffold(folder: Path, saver: Any = None) -> Any:
    given = tf.train.Scaffold(saver=tf.train.Saver() if saver is None else saver)
    return tf.train.MonitoredTrainingSession(checkpoint_dir=str(folder), scaffold=given, **QUIET)


def own(folder: Path, saver: Any = None) -> Any:
    given = None if saver is None else tf.train.Scaffold(saver=saver)
    return staging.StagingSession(checkpoint_dir=str(folder), scaffold=given, **QUIET)


WAYS: dict[str, Callable[..., Any]] = {
    "plain": plain,
    "supervisor": supervisor,
    "monitored": monitored,
    "hook": lambda folder, saver=None: monitored(folder, saver, [staging.StagingHook()]),
    "scaffold": scaffold,
    "own": own,
    "own and scaffold": lambda folder, saver=None: own(folder, saver or tf.train.Saver()),
}


def train(way: str, folder: Path, model: Model, steps: int, saver: Any = None) -> tuple[dict[str, list[int]], float]:
    """Return the batches of each pipeline, and what the weights were before the first step."""
    seen: dict[str, list[int]] = {name: [] for name in model.batches}
    with WAYS[way](folder, saver) as sess:
        before = float(sess.run(model.weights)[0])
        for _ in range(steps):
            values = sess.run([model.batches, model.train])[0]
            for name, batch in values.items():
                seen[name] += batch.tolist()
    assert feed_threads() == []
    return seen, before


class Change(NamedTuple):
    old: tuple[str, ...]
    new: tuple[str, ...]

    def __str__(self) -> str:
        return f"{'+'.join(self.old) or 'none'} to {'+'.join(self.new) or 'none'}"

    @property
    def added(self) -> list[str]:
        """The pipelines that the checkpoint does not know."""
        return [name for name in self.new if name not in self.old]


CHANGES = [
    Change((), ("a",)),
    Change((), ("a", "b")),
    Change(("a",), ("a",)),
    Change(("a",), ("a", "b")),
    Change(("a", "b"), ("a",)),
    Change(("a",), ()),
    Change(("old",), ("a",)),
    Change(("a", "old"), ("a", "b")),
]


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Sequence[str]], dict[str, np.ndarray[Any, Any]]]:
    """Returns what a run of the program with these pipelines saves."""
    saved: dict[Sequence[str], dict[str, np.ndarray[Any, Any]]] = {}

    def of(names: Sequence[str]) -> dict[str, np.ndarray[Any, Any]]:
        if names not in saved:
            folder = tmp_path_factory.mktemp("saved")
            with tf.Graph().as_default():
                train("own", folder, build(names), CONSUMED)
            reader = tf.train.load_checkpoint(str(folder))
            saved[names] = {name: reader.get_tensor(name) for name in reader.get_variable_to_shape_map()}
        return saved[names]

    return of


def write(folder: Path, values: dict[str, Any]) -> str:
    """Write a checkpoint of these values as the latest one of the folder; return its path."""
    path = str(folder / f"model.ckpt-{CONSUMED}")
    with tf.Graph().as_default(), tf.Session() as sess:
        slices = [""] * len(values)
        sess.run(
            tf.raw_ops.SaveV2(
                prefix=path,
                tensor_names=list(values),
                shape_and_slices=slices,
                tensors=[tf.constant(value) for value in values.values()],
            )
        )
    tf.train.update_checkpoint_state(str(folder), path)
    return path


def said(caplog: pytest.LogCaptureFixture, *words: str) -> list[str]:
    """Return the lines of the log with one of these words."""
    texts = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    return [text for text in texts if any(word in text for word in words)]


@pytest.mark.thinned
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("change", CHANGES, ids=str)
def test_each_change(
    checkpoints: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture, change: Change, mode: str, way: str
) -> None:
    path = write(tmp_path, checkpoints(change.old))
    with tf.Graph().as_default():
        model = build(change.new, resume=mode)
        if change.added and mode == "exact":
            with pytest.raises(CheckpointError) as caught:
                train(way, tmp_path, model, 1)
            assert not isinstance(caught.value, tf.errors.OpError)
            text = str(caught.value)
            assert text.startswith(f"'{change.added[0]}' (made at "), text
            assert f") cannot resume exactly: checkpoint '{path}' has no position of it." in text
            assert text.endswith(" Or use staged(resume='restart') to restore the rest and begin with the first batch.")
            assert ("If it was renamed, give it the name 'old' again, whose position" in text) == ("old" in change.old)
            assert feed_threads() == []
            return
        seen, weights = train(way, tmp_path, model, NEXT)
    assert weights == CONSUMED, "the model is restored"
    for name, batches in seen.items():
        begin = 0 if name in change.added or mode == "restart" else CONSUMED
        assert batches == [begin, begin + 1], name
    lines = said(caplog, FIRST)
    assert len(lines) == len(change.added), "one line for each that begins anew"
    for name, line in zip(change.added, lines, strict=True):
        assert line.startswith(f"'{name}' {FIRST} (resume='{mode}'): checkpoint '{path}' has no position of it."), line
    # The next run has a checkpoint with all positions, and needs no leave.
    caplog.clear()
    with tf.Graph().as_default():
        seen, weights = train(way, tmp_path, build(change.new), 1)
    assert weights == CONSUMED + NEXT
    assert all(
        batches == [NEXT + (0 if name in change.added or mode == "restart" else CONSUMED)]
        for name, batches in seen.items()
    )
    assert said(caplog, FIRST) == []


SAVERS: dict[str, Callable[[], Any]] = {
    "sharded": lambda: tf.train.Saver(sharded=True),
    "a dict": lambda: tf.train.Saver({f"renamed/{variable.op.name}": variable for variable in tf.global_variables()}),
    "one after another": lambda: tf.train.Saver(restore_sequentially=True),
    "reshaping": lambda: tf.train.Saver(reshape=True),
}


@pytest.mark.parametrize("kind", SAVERS)
def test_all_that_a_saver_restores(tmp_path: Path, kind: str) -> None:
    """Variables of each kind, and what a table holds."""

    def build_each() -> tuple[list[Any], Any]:
        options: dict[str, Any] = dict(initializer=tf.zeros_initializer())
        each = [tf.get_variable(name, [2], use_resource=name == "resource", **options) for name in ("resource", "ref")]
        each += tf.get_variable("parts", [4], partitioner=tf.fixed_size_partitioner(2), **options)
        table = tf.lookup.experimental.MutableHashTable(tf.int64, tf.int64, -1, name="table", checkpoint=True)
        return each, table

    with tf.Graph().as_default(), tf.Session() as sess:
        each, table = build_each()
        sess.run(tf.global_variables_initializer())
        sess.run([variable.assign([1.0, 2.0]) for variable in each])
        sess.run(table.insert(np.array([7]), np.array([8])))
        path = SAVERS[kind]().save(sess, str(tmp_path / "model"))
    with tf.Graph().as_default() as graph, tf.Session() as sess:
        x = staging.staged(ArraySource(np.arange(20), batch_size=1), resume="restart")
        each, table = build_each()
        found = table.lookup(np.array([7]))
        saver = SAVERS[kind]()
        never = tf.raw_ops.Assert(condition=False, data=["run"])
        with tf.device("/cpu:1"), tf.name_scope("elsewhere"), tf.control_dependencies([never]):
            saver.restore(sess, path)
        ops = len(graph.get_operations())
        assert [values.tolist() for values in sess.run(each)] == [[1.0, 2.0]] * len(each)
        # The dict has variables only.
        assert sess.run(found).tolist() == [-1 if kind == "a dict" else 8]
        saver.restore(sess, path)
        assert len(graph.get_operations()) == ops, "another restore makes no more ops"
        coord = tf.train.Coordinator()
        threads = staging.start(sess, coord)
        assert sess.run(x).tolist() == [0]
        coord.request_stop()
        coord.join(threads)


PIPELINES: dict[str, dict[str, Any]] = {
    "towers": dict(devices=["/cpu:0", "/cpu:0"]),
    "lockstep": dict(lockstep=True),
    "static": dict(share="static"),
    "dynamic": dict(share="dynamic"),
}


@pytest.mark.parametrize("kind", PIPELINES)
def test_each_kind_of_pipeline_begins_anew(checkpoints: Any, tmp_path: Path, kind: str) -> None:
    """Those of a cluster in its chief."""
    write(tmp_path, checkpoints(()))
    with tf.Graph().as_default() as graph, ExitStack() as stack:
        options, cluster = PIPELINES[kind], None
        if "share" in options:
            cluster = stack.enter_context(only_worker())
            stack.enter_context(cluster.device_scope())
            options = dict(options, cluster=cluster)
        x = tf.nest.flatten(staging.staged(ArraySource(np.arange(20), batch_size=1), resume="restart", **options))
        model = build(())
        with staging.StagingSession(checkpoint_dir=str(tmp_path), cluster=cluster, **QUIET) as sess:
            assert graph.finalized
            assert sess.run(model.weights)[0] == CONSUMED
            assert [batch.tolist() for batch in sess.run([x, model.train])[0]] == [[0], [1]][: len(x)]


def test_a_pipeline_that_runs_keeps_its_count(checkpoints: Any, tmp_path: Path) -> None:
    path = write(tmp_path, checkpoints(()))
    with tf.Graph().as_default():
        model = build(["a"], resume="restart")
        saver = tf.train.Saver()
        with plain(tmp_path / "new", saver) as sess:
            assert [sess.run(model.batches["a"]).tolist() for _ in range(2)] == [[0], [1]]
            saver.restore(sess, path)
            assert sess.run(model.batches["a"]).tolist() == [2]
            (position,) = tf.global_variables("a/position")
            assert sess.run(position).tolist() == [3]


def test_a_session_that_is_recovered_begins_anew(checkpoints: Any, tmp_path: Path) -> None:
    """The checkpoint from before is the latest one: the run has saved none yet."""

    class Lost(tf.train.SessionRunHook):  # type: ignore[misc]
        runs = 0

        def after_run(self, context: Any, values: Any) -> None:
            self.runs += 1
            if self.runs == 2:
                raise tf.errors.AbortedError(None, None, "preempted")

    write(tmp_path, checkpoints(()))
    with tf.Graph().as_default():
        model = build(["a"], resume="ignore")
        seen = []
        options = QUIET | dict(save_checkpoint_steps=None, save_checkpoint_secs=None)
        with staging.StagingSession(checkpoint_dir=str(tmp_path), hooks=[Lost()], **options) as sess:
            for _ in range(3):
                seen += sess.run([model.batches["a"], model.train])[0].tolist()
            assert sess.run(model.weights)[0] == CONSUMED + 2
    assert seen == [0, 0, 1], "the model of before has not had the first batch"


def test_a_stream_that_now_has_a_state(checkpoints: Any, tmp_path: Path) -> None:
    """Its checkpoint has a position, but no state: that of a source without one."""
    write(tmp_path, checkpoints(("a",)))

    def build_stream(resume: str) -> Any:
        stream = GeneratorSource(lambda: (np.array([number]) for number in range(20)), resume="skip")
        stream.keeps_state, stream.state = True, lambda position: b""
        return staging.staged(stream, name="a", resume=resume), build(())

    with tf.Graph().as_default():
        build_stream("exact")
        with pytest.raises(ResumeError, match="source was 'ArraySource', is 'GeneratorSource'"):
            own(tmp_path)
    for mode, begin in (("ignore", CONSUMED), ("restart", 0)):
        with tf.Graph().as_default():
            x, model = build_stream(mode)
            with staging.StagingSession(
                checkpoint_dir=str(tmp_path), **QUIET | dict(save_checkpoint_steps=None)
            ) as sess:
                assert sess.run(model.weights)[0] == CONSUMED
                assert sess.run(x).tolist() == [begin]


@pytest.mark.parametrize("way", ["plain", "own"])
def test_a_model_that_has_changed_too_is_another_program(checkpoints: Any, tmp_path: Path, way: str) -> None:
    write(tmp_path, checkpoints(()))
    with tf.Graph().as_default():
        model = build(["a"], resume="restart")
        tf.get_variable("bias", [2])
        expected = CheckpointError if way == "own" else tf.errors.NotFoundError
        with pytest.raises(expected, match="bias"):
            train(way, tmp_path, model, 1)
    assert feed_threads() == []


def made(kind: str, mode: str) -> tuple[Model, Any]:
    """Build a graph with a saver of a kind; return the saver that the session gets, None for its own."""
    if kind == "before staged()":
        model = build(())
        saver = tf.train.Saver()
        return model._replace(batches=pipeline(mode)), saver
    model = build(())._replace(batches=pipeline(mode))
    variables = [tf.train.get_global_step(), model.weights]
    by_name = {variable.op.name: variable for variable in variables}
    if kind == "the session's own":
        tf.train.Saver(variables)
    return model, {
        "a list": lambda: tf.train.Saver(variables),
        "a dict": lambda: tf.train.Saver(by_name),
        "sharded": lambda: tf.train.Saver(variables, sharded=True),
        "all": lambda: tf.train.Saver(),
        "all, sharded": lambda: tf.train.Saver(sharded=True),
        "with the position": lambda: tf.train.Saver([*variables, *tf.global_variables("a/")]),
        "the session's own": lambda: None,
    }[kind]()


def pipeline(mode: str) -> dict[str, Any]:
    return {"a": staging.staged(ArraySource(np.arange(20), batch_size=1, epochs=1), name="a", resume=mode)}


UNSAVED = "checkpoints of this run will not hold its position"
CURE = "Make the saver after staged(), or add tf.global_variables('a/') to its var_list."
FOREIGN = ("before staged()", "a list", "a dict", "sharded")
WHOLE = ("all", "all, sharded", "with the position", "the session's own")
# In these nobody knows which saver the session restores with. TensorFlow ends the start of a Supervisor.
UNKNOWN = ("plain", "supervisor")


@pytest.mark.thinned
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", FOREIGN)
def test_a_saver_without_the_position(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, kind: str, mode: str, way: str
) -> None:
    with tf.Graph().as_default():
        model, saver = made(kind, mode)
        train(way, tmp_path, model, CONSUMED, saver)
    lines = said(caplog, UNSAVED, FIRST)
    assert len(lines) == (0 if mode == "restart" else 1), "said at the first start"
    assert all(line.startswith("'a' (made at ") and UNSAVED in line and CURE in line for line in lines)
    caplog.clear()
    reason = f"the saver of checkpoint '{tmp_path}/model.ckpt-{CONSUMED}' does not restore its position"
    with tf.Graph().as_default():
        model, saver = made(kind, mode)
        if mode == "exact" and way != "plain":
            error, words = (RuntimeError, "a/position") if way in UNKNOWN else (CheckpointError, reason)
            with pytest.raises(error, match=re.escape(words)):
                train(way, tmp_path, model, 1, saver)
        else:
            assert train(way, tmp_path, model, NEXT, saver) == ({"a": [0, 1]}, CONSUMED)
    lines = said(caplog, reason)
    assert len(lines) == (0 if mode == "exact" and way not in UNKNOWN else 1)
    for line in lines:
        assert f"'a' {FIRST}" in line if mode != "exact" else f"cannot resume exactly: {reason}. {CURE}" in line


@pytest.mark.thinned
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", WHOLE)
def test_a_saver_with_the_position(tmp_path: Path, caplog: pytest.LogCaptureFixture, kind: str, way: str) -> None:
    for begin in (0, CONSUMED):
        with tf.Graph().as_default():
            model, saver = made(kind, "exact")
            assert train(way, tmp_path, model, CONSUMED, saver)[0] == {"a": [begin, begin + 1, begin + 2]}
    assert said(caplog, FIRST, UNSAVED) == []


def test_it_is_said_once_for_each_graph_and_not_without_a_saver(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with tf.Graph().as_default(), tf.Session() as sess:
        build(["a"])
        sess.run(tf.global_variables_initializer())
        coord = tf.train.Coordinator()
        threads = staging.start(sess, coord)
        coord.request_stop()
        coord.join(threads)
    assert said(caplog, FIRST, UNSAVED) == []
    with tf.Graph().as_default():
        model, saver = made("a list", "exact")
        for part in "xy":
            train("plain", tmp_path / part, model, 1, saver)
    assert len(said(caplog, UNSAVED)) == 1


def test_a_part_of_the_model_from_elsewhere(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Fine-tuning: the variables have values before a saver restores some of them."""
    with tf.Graph().as_default(), tf.Session() as sess:
        weights = build(()).weights
        sess.run(tf.global_variables_initializer())
        sess.run(weights.assign([7.0] * 4))
        path = tf.train.Saver([weights]).save(sess, str(tmp_path / "pretrained"))
    with tf.Graph().as_default():
        model = build(["a"])
        pretrained = tf.train.Saver([model.weights])
        given = tf.train.Scaffold(init_fn=lambda scaffold, sess: pretrained.restore(sess, path))
        with staging.StagingSession(checkpoint_dir=str(tmp_path / "tuned"), scaffold=given, **QUIET) as sess:
            assert sess.run(model.weights)[0] == 7
            assert sess.run(model.batches["a"]).tolist() == [0]
    assert said(caplog, FIRST, UNSAVED) == []


def test_another_saver_has_the_position_but_not_that_of_the_session(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with tf.Graph().as_default():
        model = build(["a"])
        tf.train.Saver()
        train("own", tmp_path, model, 1, tf.train.Saver([model.weights, tf.train.get_global_step()]))
    assert len(said(caplog, UNSAVED)) == 1


def test_the_errors_of_a_plain_saver_stay(tmp_path: Path) -> None:
    with tf.Graph().as_default():
        build(())
        other = tf.train.Saver()
    with tf.Graph().as_default(), tf.Session() as sess:
        build(["a"])
        saver = tf.train.Saver()
        for wrong, error in (
            (None, "Can't load save_path when it is None"),
            (str(tmp_path / "none"), "The passed save_path is not a valid checkpoint"),
        ):
            with pytest.raises(ValueError, match=error) as caught:
                saver.restore(sess, wrong)
            assert not isinstance(caught.value, CheckpointError)
        sess.run(tf.global_variables_initializer())
        path = saver.save(sess, str(tmp_path / "model"))
    with tf.Graph().as_default(), tf.Session() as sess:
        staging.staged(tf.constant(1))
        with pytest.raises(TypeError, match="does not exist in the graph"):
            other.restore(sess, path)
