"""Makes `Saver.restore` work where pipelines were added, renamed or removed; explains its errors, and those of saves.

A checkpoint without the position of a pipeline is that of a program before `staged()` was added, or renamed. TensorFlow
would restore nothing of it. For a truncated file, and for one that becomes too large, it raises `OutOfRangeError`,
which training loops take for the end of the data: a MonitoredSession ends without an error.
"""

from __future__ import annotations

import contextlib
import functools
import glob
import inspect
import numbers
import os
import re
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any, NoReturn

from absl import logging

from staging_tf1._tf import run_unwrapped, saver_without, tf
from staging_tf1.cluster.snapshot import is_save, saver_of
from staging_tf1.errors import CheckpointError, StagingError
from staging_tf1.feed.pipeline import Pipeline, pipelines_of
from staging_tf1.graph.dependencies import ancestors, elements_of
from staging_tf1.graph.state import feeding_in, state_of
from staging_tf1.replacing import free_text

# A full disk, or a limit of file sizes.
_NO_ROOM = (tf.errors.ResourceExhaustedError, tf.errors.OutOfRangeError)
# Not about the file, but about a server or memory. A MonitoredSession recovers from some of them.
_NOT_THE_FILE = (
    tf.errors.AbortedError,
    tf.errors.UnavailableError,
    tf.errors.CancelledError,
    tf.errors.DeadlineExceededError,
    tf.errors.ResourceExhaustedError,
)
_MISSING_KEY = re.compile(r"Key (\S+) not found in checkpoint")
_UNINITIALIZED = "the iterator has not been initialized"
# TensorFlow looks for a checkpoint with a glob. "*" and "?" match themselves.
_PATTERN = re.compile(r"[\[\\]")
_BUILT_AT = re.compile(r"Graph execution error:.*?^Node: [^\n]*", re.DOTALL | re.MULTILINE)
# An attribute of the methods that are wrapped.
_GUARDED = "_staging_tf1_guarded"
# Enough to recognize TensorFlow's message.
_MOST_CHARACTERS = 300


def guard_savers(graph: Any) -> None:
    """Make the restores of monitored sessions of `graph` raise CheckpointError, also without a pipeline."""
    guard_restores()
    state_of(graph).savers_are_guarded = True


def guard_restores() -> None:
    """Guard the restores and saves of graphs with pipelines, and note the saves.

    Each saver restores a model whose pipelines have changed. That of a monitored session raises CheckpointError.
    """
    # On the classes: a plain session has a saver that no collection has, and no hook sees the scaffold.
    _wrap(tf.train.Saver, "restore", _guarded)
    _wrap(tf.train.Saver, "save", _explained)
    _wrap(tf.train.Scaffold, "finalize", _noted)
    _wrap(tf.train.SessionManager, "prepare_session", _initializing)


def _wrap(owner: Any, name: str, wrapper: Callable[[Any], Any]) -> None:
    method = getattr(owner, name)
    if not hasattr(method, _GUARDED):
        wrapped = functools.wraps(method)(wrapper(method))
        setattr(wrapped, _GUARDED, True)
        setattr(owner, name, wrapped)


def _is_guarded(graph: Any) -> bool:
    return graph is not None and (state_of(graph).savers_are_guarded or bool(pipelines_of(graph)))


def _graph_of(session: Any) -> Any:
    """Return the graph of what a program passes to a saver: None without one. An eager call passes None."""
    return getattr(session, "graph", None)


def _noted(finalize: Any) -> Any:
    def finalized(self: Any) -> Any:
        scaffold = finalize(self)
        graph = tf.get_default_graph()
        if _is_guarded(graph):
            state_of(graph).monitored_saver = self.saver
        return scaffold

    return finalized


def _initializing(prepare: Any) -> Any:
    """Also initialize the positions that the program's own `init_op` leaves out, before its `init_fn`."""
    signature = inspect.signature(prepare)

    def initializing(*args: Any, **kwargs: Any) -> Any:
        try:
            call = signature.bind(*args, **kwargs)
        except TypeError:
            # TensorFlow says what is wrong.
            return prepare(*args, **kwargs)
        init_op, init_fn = call.arguments.get("init_op"), call.arguments.get("init_fn")

        def initialize(session: Any) -> None:
            # It may restore them.
            pipelines = pipelines_of(session.graph)
            variables = [variable for pipeline in pipelines for variable in pipeline.position_variables]
            init_ops = elements_of(session.graph, init_op or []) if variables else []
            set_by_program = {op.name for op in ancestors(init_ops)}
            left_out = [variable.initializer for variable in variables if variable.handle.op.name not in set_by_program]
            if left_out:
                run_unwrapped(session, left_out)
            if init_fn is not None:
                init_fn(session)

        if init_op is not None or init_fn is not None:
            call.arguments["init_fn"] = initialize
        return prepare(*call.args, **call.kwargs)

    return initializing


def _guarded(restore: Any) -> Any:
    def guarded(self: Any, sess: Any, save_path: Any) -> None:
        if save_path is None or not _is_guarded(_graph_of(sess)):
            restore(self, sess, save_path)
            return
        restoration = _Restoration(self, sess, tf.compat.as_text(os.fspath(save_path)))
        if not restoration.is_monitored:
            restoration.run(restore)
            return
        _refuse_pattern(restoration.path)
        restoration.check_shapes()
        try:
            restoration.run(restore)
        except (StagingError, *_NOT_THE_FILE):
            raise
        except (tf.errors.OpError, ValueError) as error:
            _explain(restoration.path, error)

    return guarded


def _explained(save: Any) -> Any:
    def explained(self: Any, sess: Any, save_path: Any, global_step: Any = None, *args: Any, **kwargs: Any) -> Any:
        graph = _graph_of(sess)
        if _is_guarded(graph) and self is state_of(graph).monitored_saver:
            _refuse_pattern(os.fspath(save_path))
        try:
            saved = save(self, sess, save_path, global_step, *args, **kwargs)
        except _NO_ROOM as error:
            if not _is_guarded(graph):
                raise
            raise _after_failed_save(sess, save_path, global_step, _shortened(error)) from error
        last_save = None if graph is None else state_of(graph).last_save
        if last_save is not None:
            last_save.note(self, save_path, global_step, args, kwargs)
        return saved

    return explained


def _after_failed_save(session: Any, save_path: Any, global_step: Any, reason: str) -> CheckpointError:
    """Return the error for a save without room. Remove its folder of unfinished files."""
    prefix = os.fspath(save_path)
    if global_step is not None:
        known = isinstance(global_step, numbers.Integral)
        prefix += f"-{global_step if known else tf.train.global_step(session, global_step)}"
    with contextlib.suppress(tf.errors.OpError):
        tf.io.gfile.rmtree(f"{prefix}_temp")
    folder = os.path.dirname(prefix) or os.curdir
    return CheckpointError(
        f"checkpoint '{prefix}' cannot be saved in the folder '{folder}'{free_text(folder)}: {reason}. Free space "
        f"there, keep fewer checkpoints (tf.train.Saver(max_to_keep=)), or raise the limit of file sizes (ulimit -f). "
        f"The checkpoints before it are complete."
    )


def _refuse_pattern(path: str) -> None:
    if _PATTERN.search(path):
        raise CheckpointError(
            f"checkpoint '{path}' cannot be restored: TensorFlow reads '[' and '\\' in its path as a pattern. Choose "
            f"another checkpoint_dir. To go on from a checkpoint of this one, rename the folder and call "
            f"tf.train.update_checkpoint_state(FOLDER, PATH_OF_A_CHECKPOINT)."
        )


def check_state_file(folder: str) -> None:
    """Check the file that names the latest checkpoint. If it is damaged, TensorFlow silently begins at step 0.

    Raises:
      CheckpointError: the file exists, but names no checkpoint.
    """
    path = os.path.join(folder, "checkpoint")
    if not tf.io.gfile.exists(path):
        return
    try:
        if tf.train.get_checkpoint_state(folder) is not None:
            return
        reason = "it is not a text of the expected format"
    except (ValueError, tf.errors.OpError) as error:
        reason = _shortened(error)
    prefixes = sorted(name.removesuffix(".index") for name in glob.glob(os.path.join(glob.escape(folder), "*.index")))
    others = f" The folder has {', '.join(map(repr, map(os.path.basename, prefixes)))}." if prefixes else ""
    raise CheckpointError(
        f"'{path}', which names the latest checkpoint of its folder, is damaged: {reason}.{others} Rewrite it with "
        f"tf.train.update_checkpoint_state('{folder}', PATH_OF_A_CHECKPOINT), or delete it to train from the start."
    )


class _Restoration:
    """A restore of one checkpoint by one saver.

    Attributes:
      is_monitored: whether the saver is that of a monitored session.
    """

    def __init__(self, saver: Any, session: Any, path: str) -> None:
        self.path = path
        self._saver, self._session = saver, session
        self.is_monitored = saver is state_of(session.graph).monitored_saver
        self._held = list(_held(saver, session.graph))
        # By name; None if the file is damaged: then the restore raises.
        self._shapes: dict[str, list[int]] | None = None
        # Exceptions of many types say that it is.
        with contextlib.suppress(Exception):
            self._shapes = tf.train.load_checkpoint(path).get_variable_to_shape_map()

    def check_shapes(self) -> None:
        """Check that each variable has the same shape in the checkpoint. TensorFlow would silently change its shape.

        Raises:
          CheckpointError: a variable has a different shape; the message names the first one.
        """
        for name, variable, must_agree in self._held:
            if not (self._shapes and name in self._shapes and must_agree and "shape" in variable.node_def.attr):
                continue
            shape = tf.TensorShape(variable.get_attr("shape"))
            if not shape.is_compatible_with(self._shapes[name]):
                raise CheckpointError(
                    f"checkpoint '{self.path}' does not fit this graph: variable '{name}' is {self._shapes[name]} in "
                    f"the checkpoint, {shape.as_list()} in the graph. {_OWN_FOLDER}"
                )

    def run(self, restore: Any) -> None:
        """Restore what the checkpoint has. A pipeline whose position is not restored begins anew, if resume= allows it.

        Raises:
          CheckpointError: a pipeline that must resume exactly has no position in the checkpoint.
        """
        session, graph = self._session, self._session.graph
        started = _started_in(session)
        pipelines = [pipeline for pipeline in pipelines_of(graph) if _is_in_checkpoints(pipeline, graph)]
        lacking = {pipeline: self._lacking(pipeline) for pipeline in pipelines}
        left_out = [variable for variables in lacking.values() for variable in variables]
        restore(saver_without(self._saver, left_out) if left_out else self._saver, session, self.path)
        foreign = self._foreign(pipelines)
        new = [pipeline for pipeline in foreign if pipeline.plan.resume != "exact"]
        # One that has started keeps its count.
        ops = [
            variable.initializer
            for pipeline in pipelines
            for variable in (pipeline.position_variables if pipeline in new else lacking[pipeline])
            if pipeline not in started
        ]
        if ops:
            run_unwrapped(session, ops)
        for pipeline in foreign:
            reason = f"the saver of checkpoint '{self.path}' does not restore its position"
            self._begin_anew(pipeline, reason, _how_to_save(pipeline), may_raise=self.is_monitored)
        for pipeline, variables in lacking.items():
            if variables and variables[0] is pipeline.position_variables[0]:
                reason = f"checkpoint '{self.path}' has no position of it"
                self._begin_anew(pipeline, reason, self._where_it_may_be(pipelines), may_raise=True)

    def _lacking(self, pipeline: Pipeline) -> list[Any]:
        """Return the variables of its position that the saver would restore, and the checkpoint lacks."""
        if self._shapes is None:
            return []
        keys = {variable.name: name for name, variable, _ in self._held}
        held = [(variable, keys.get(variable.handle.op.name)) for variable in pipeline.position_variables]
        return [variable for variable, name in held if name is not None and name not in self._shapes]

    def _foreign(self, pipelines: list[Pipeline]) -> list[Pipeline]:
        """Return those whose position the saver does not restore, and nothing else has set."""
        held = {variable.name for _, variable, _ in self._held}
        foreign = [pipeline for pipeline in pipelines if pipeline.position_variables[0].handle.op.name not in held]
        if not foreign:
            return []
        positions = [pipeline.position for pipeline in foreign if pipeline.position is not None]
        have_value = run_unwrapped(self._session, [position.has_value for position in positions])
        return [pipeline for pipeline, has_value in zip(foreign, have_value, strict=True) if not has_value]

    def _begin_anew(self, pipeline: Pipeline, reason: str, cure: str, *, may_raise: bool) -> None:
        if pipeline.plan.resume != "exact":
            has_started = pipeline in _started_in(self._session)
            what = "keeps its position" if has_started else "begins with its first batch"
            logging.warning("'%s' %s (resume='%s'): %s.", pipeline.name, what, pipeline.plan.resume, reason)
            return
        message = (
            f"{pipeline} cannot resume exactly: {reason}. {cure} Or use staged(resume='restart') to restore the rest "
            f"and begin with the first batch."
        )
        if may_raise:
            raise CheckpointError(message)
        # Another saver may restore it. Otherwise a plain session begins with the first batch.
        logging.warning("%s", message)

    def _where_it_may_be(self, pipelines: list[Pipeline]) -> str:
        """Say which names the checkpoint has for pipelines that the graph lacks: one was perhaps renamed."""
        assert self._shapes is not None
        positions = {name.removesuffix("/position") for name in self._shapes if name.endswith("/position")}
        known = {pipeline.name for pipeline in pipelines}
        others = sorted(name for name in positions - known if f"{name}/fingerprint" in self._shapes)
        if not others:
            return "Restore a checkpoint that was saved with this pipeline."
        named = " or ".join(f"'{name}'" for name in others)
        return f"If it was renamed, give it the name {named} again, whose position the checkpoint has."


def _started_in(session: Any) -> Collection[Pipeline]:
    feeding = feeding_in(session)
    return () if feeding is None else feeding.started


def warn_unsaved(pipelines: Sequence[Pipeline], graph: Any) -> None:
    """Warn of each pipeline whose position no checkpoint will hold: once, before the first batch."""
    warned = state_of(graph).unsaved
    for pipeline in pipelines:
        if pipeline.plan.resume == "restart" or pipeline in warned or not _is_in_checkpoints(pipeline, graph):
            continue
        if not _is_saved(pipeline, graph):
            warned.add(pipeline)
            logging.warning(
                "%s: checkpoints of this run will not hold its position, so none can be resumed with the next batch. "
                "%s Or use resume='restart', if it is always to begin with the first batch.",
                pipeline,
                _how_to_save(pipeline),
            )


def _is_saved(pipeline: Pipeline, graph: Any) -> bool:
    """Whether the saver of a monitored session saves the position; in a plain one, any saver. True without a saver."""
    scopes = {saver_of(op) for op in _saves(pipeline.position_variables[0].handle)}
    saver = state_of(graph).monitored_saver
    if saver is None:
        return bool(scopes) or not any(map(is_save, graph.get_operations()))
    return saver.saver_def is None or saver.saver_def.save_tensor_name.rpartition("/")[0] in scopes


def _saves(tensor: Any) -> Iterator[Any]:
    """Yield the ops that write the value of a variable into checkpoints."""
    for op in tensor.consumers():
        if is_save(op):
            yield op
        elif op.type in ("ReadVariableOp", "Identity"):
            yield from _saves(op.outputs[0])


def _is_in_checkpoints(pipeline: Pipeline, graph: Any) -> bool:
    """Whether it has a position that checkpoints are to hold."""
    # Not in an evaluation of an Estimator, where it is local.
    saved = {variable.ref() for variable in graph.get_collection(tf.GraphKeys.GLOBAL_VARIABLES)}
    return any(variable.ref() in saved for variable in pipeline.position_variables)


def _how_to_save(pipeline: Pipeline) -> str:
    return f"Make the saver after staged(), or add tf.global_variables('{pipeline.name}/') to its var_list."


def _held(saver: Any, graph: Any) -> Iterator[tuple[str, Any, bool]]:
    """Yield what `saver` restores: the name in the checkpoint, the op of the variable, and whether shapes must agree.

    They need not for a part of a partitioned variable, or if the saver reshapes what it reads.
    """
    restore = saver.saver_def.restore_op_name if saver.saver_def is not None else ""
    try:
        restores = graph.get_operation_by_name(restore)
    except KeyError:
        # It restores nothing, or belongs to another graph, as TensorFlow then says.
        return
    for op in ancestors([restores]):
        if op.type != "RestoreV2":
            continue
        names, slices = (tf.get_static_value(tensor) for tensor in op.inputs[1:3])
        for name, part, output in zip(names, slices, op.outputs, strict=True):
            for assign, reshaped in _assigns(output):
                yield name.decode(), assign.inputs[0].op, not (part or reshaped)


def _assigns(tensor: Any, reshaped: bool = False) -> Iterator[tuple[Any, bool]]:
    for op in tensor.consumers():
        if op.type in ("AssignVariableOp", "Assign"):
            yield op, reshaped
        elif op.type in ("Identity", "Reshape"):
            yield from _assigns(op.outputs[0], reshaped or op.type == "Reshape")


def _explain(path: str, error: Exception) -> NoReturn:
    key = _MISSING_KEY.search(str(error))
    if key is not None:
        raise CheckpointError(
            f"checkpoint '{path}' has no variable '{key[1]}', which this graph has. It belongs to another program, or "
            f"the graph has changed. {_OWN_FOLDER}"
        ) from error
    if isinstance(error, tf.errors.InvalidArgumentError):
        raise CheckpointError(
            f"checkpoint '{path}' does not fit this graph: {_shortened(error)}. {_OWN_FOLDER}"
        ) from error
    if isinstance(error, tf.errors.FailedPreconditionError) and _UNINITIALIZED in str(error):
        iterator = "" if error.op is None else f" '{error.op.inputs[0].op.name}'"
        raise CheckpointError(
            f"checkpoint '{path}' has the state of the iterator{iterator}, which cannot be restored before it is "
            f"initialized, and a session initializes after it has restored. Save no state of the iterator, and pass "
            f"the dataset to staged(), which saves its own position; this checkpoint then needs resume='restart'. Or "
            f"use tf.data.make_one_shot_iterator(dataset), which needs no initializer, in a new checkpoint_dir."
        ) from error
    older = _checkpoint_before(path)
    names = f"'{os.path.dirname(path)}', {older!r}" if older else "FOLDER, PATH_OF_AN_OLDER_CHECKPOINT"
    raise CheckpointError(
        f"checkpoint '{path}' is damaged or incomplete: {_shortened(error)}. Return to an older checkpoint with "
        f"tf.train.update_checkpoint_state({names}), or train from the start in an empty folder."
    ) from error


_OWN_FOLDER = (
    "Set checkpoint_dir to an empty folder or one with checkpoints of this program, or build the graph as it was when "
    "the checkpoint was saved."
)


def _checkpoint_before(path: str) -> str | None:
    """Return the checkpoint that was saved before `path` in the same folder, if its files still exist."""
    try:
        state = tf.train.get_checkpoint_state(os.path.dirname(path))
    except (ValueError, tf.errors.OpError):
        return None
    listed = list(state.all_model_checkpoint_paths) if state is not None else []
    before = listed[: listed.index(path)] if path in listed else []
    kept = [prefix for prefix in before if tf.train.checkpoint_exists(prefix)]
    return kept[-1] if kept else None


def _shortened(error: Exception) -> str:
    """Return what TensorFlow says of a checkpoint, on one line."""
    # The saver and TensorFlow prepend an explanation and the line that built the op to the kernel's message.
    text = str(getattr(error, "message", error)).rpartition("Original error:")[2]
    first = next((line for line in _BUILT_AT.sub("", text).splitlines() if line.strip()), "").strip()
    return f"{type(error).__name__}: {first[:_MOST_CHARACTERS]}".rstrip(".")


class LastSave:
    """One more checkpoint when Ctrl-C or SIGTERM ends the training, by the saver that saves the checkpoints.

    After an exception, a MonitoredSession calls no `end` of its hooks, so the one that saves does not save either. Our
    hook cannot see it, nor its folder. But it has called its saver, at the first step at the latest. So it is the first
    saver of the session. Others save parts of the model, or the best one so far.
    """

    def __init__(self) -> None:
        # The saver and its arguments: the path, the step, and the others.
        self._last: tuple[Any, Any, Any, tuple[Any, ...], dict[str, Any]] | None = None

    @classmethod
    def of(cls, graph: Any) -> LastSave:
        """Return that of a new session of `graph`. It knows of the saves from now on."""
        guard_restores()
        last_save = state_of(graph).last_save = cls()
        return last_save

    def note(self, saver: Any, path: Any, step: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if self._last is not None:
            first, known, before, *_ = self._last
            # Without a step, the path may have it.
            if saver is not first or (path != known and (before is not None or step is not None)):
                return
        self._last = saver, path, step, args, kwargs

    def save(self, session: Any) -> None:
        """Save, unless the step has been saved. Call it between two steps."""
        if self._last is None:
            logging.warning("The training was stopped, and nothing was saved: no saver of its graph has saved before.")
            return
        saver, path, before, args, kwargs = self._last
        step = None if before is None else int(session.run(tf.train.get_global_step(session.graph)))
        if step is None or step != before:
            path = saver.save(session, path, step, *args, **kwargs)
        logging.warning("Saved %s; start again to continue.", path if step is None else f"at step {step}")
