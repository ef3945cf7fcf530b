"""`export_saved_model()`: a trained model for serving, without the areas and queues of its training graph."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from staging_tf1._tf import tf
from staging_tf1.arguments import INT64_MAX, only_known, path, refuse, whole
from staging_tf1.errors import BuildError, CheckpointError
from staging_tf1.feed.checkpoint import shortened
from staging_tf1.graph.dependencies import PYTHON_OPS, ancestors

WHAT = "export_saved_model()"
_KEYS = tf.GraphKeys
# Take a batch of an area, an iterator, a queue or a reader.
_TAKING = re.compile(
    r"((Ordered)?(Map)?(Stage|Unstage)(NoKey|Peek)?|IteratorGetNext(Sync)?|QueueDequeue(Many|UpTo)?V2|ReaderRead(UpTo)?V2)$"
)
# The ends of the names of a checkpoint's files.
_OF_CHECKPOINT = re.compile(r"\.(meta|index|data-\d{5}-of-\d{5})$")


@only_known
def export_saved_model(
    folder: str,
    inputs: Mapping[str, Any],
    outputs: Mapping[str, Any],
    *,
    checkpoint: str,
    batch_size: int | None = None,
    graph: Any = None,
) -> str:
    """Write a SavedModel that computes `outputs` from `inputs`, with the variables of a checkpoint.

    A training graph gets its batches from areas, queues or iterators, and a SavedModel of it would wait for them. This
    one is cut at `inputs`: placeholders stand in their place, and only what `outputs` need is copied. Give the tensors
    that `staged()` returned, those of an iterator's `get_next`, a dequeue, or any later ones. The model loads with
    `tf.saved_model.load` of TensorFlow 2, with TensorFlow Serving, and with `tf.saved_model.loader`. Its signature is
    `serving_default`.

    Build what is served as for evaluation: dropout and batch normalization behave as the graph's outputs do.

    Args:
      folder: where to write. It may exist if it is empty.
      inputs: tensors or sparse tensors, by their names in the signature.
      outputs: the same for what the model returns.
      checkpoint: the path of a checkpoint (`model.ckpt-100`) or of one of its files, or a folder, of which the last
        one is taken.
      batch_size: the first dimension of the inputs, for a model that computes with a fixed one. None is any.
      graph: the training graph. None is the default graph.

    Returns:
      `folder`.

    Raises:
      BuildError: an output needs a batch, a placeholder or a Python function that no input replaces; or it does not
        need an input; or the model computes with another batch size.
      CheckpointError: there is no checkpoint, or it does not fit the graph.
      FileExistsError: the folder has files in it.
      TypeError, ValueError: an argument is invalid.

    Source: https://github.com/tensorflow/tensorflow/issues/36720

    >>> import tempfile
    >>> folder = tempfile.mkdtemp()
    >>> with tf.Graph().as_default():
    ...     batch = tf.data.make_one_shot_iterator(tf.data.Dataset.range(4).batch(2)).get_next()
    ...     doubled = tf.cast(batch, tf.float32) * tf.get_variable("w", initializer=2.0, use_resource=True)
    ...     with tf.Session() as sess:
    ...         sess.run(tf.global_variables_initializer())
    ...         saved = tf.train.Saver().save(sess, f"{folder}/model.ckpt")
    ...     model = export_saved_model(f"{folder}/model", {"x": batch}, {"y": doubled}, checkpoint=saved)
    >>> with tf.Session(graph=tf.Graph()) as sess:
    ...     loaded = tf.saved_model.loader.load(sess, ["serve"], model)
    ...     signature = loaded.signature_def["serving_default"]
    ...     sess.run(signature.outputs["y"].name, {signature.inputs["x"].name: [7]}).tolist()
    [14.0]
    """
    where = path(WHAT, "folder", folder, remote=True)
    home = tf.get_default_graph() if graph is None else graph
    if not isinstance(home, tf.Graph):
        refuse(WHAT, "graph", graph, "a tf.Graph or None")
    size = None if batch_size is None else whole(WHAT, "batch_size", batch_size, 1, INT64_MAX)
    fed, wanted = _tensors(home, "inputs", inputs), _tensors(home, "outputs", outputs)
    saved = last_checkpoint(path(WHAT, "checkpoint", checkpoint, remote=True))
    if tf.gfile.Exists(where) and (not tf.gfile.IsDirectory(where) or tf.gfile.ListDirectory(where)):
        raise FileExistsError(f"{WHAT}: {where} exists and is not empty. Remove it, or choose another folder.")
    _check(home, fed, wanted)
    try:
        serving = _serving_graph(home, fed, wanted, size)
    except ValueError as error:
        raise BuildError(
            f"{WHAT}: the model does not compute with inputs of batch_size={size}: {error}. Give the batch size that "
            f"it was trained with."
        ) from error
    _write(where, serving, saved)
    return where


def _tensors(graph: Any, argument: str, values: Any) -> dict[str, Any]:
    expected = "a dict of tensors of the graph, by their names in the signature"
    if not isinstance(values, Mapping) or not values:
        refuse(WHAT, argument, values, expected)
    for name, value in values.items():
        if not isinstance(name, str) or not name.isidentifier():
            refuse(WHAT, argument, name, "names that are identifiers", ValueError)
        if not isinstance(value, (tf.Tensor, tf.SparseTensor)) or value.graph is not graph:
            refuse(WHAT, f"{argument}[{name!r}]", value, "a tensor or sparse tensor of the graph")
    return dict(values)


def last_checkpoint(given: str) -> str:
    """Return the path of a checkpoint that is given by its path or its folder.

    Raises:
      CheckpointError: there is none.
    """
    prefix = tf.train.latest_checkpoint(given) if tf.gfile.IsDirectory(given) else _OF_CHECKPOINT.sub("", given)
    if prefix is None or not tf.train.checkpoint_exists(prefix):
        raise CheckpointError(
            f"{WHAT}: there is no checkpoint at {given}. Give the path of one, such as model.ckpt-100, or its folder."
        )
    return str(prefix)


def _check(graph: Any, inputs: Mapping[str, Any], outputs: Mapping[str, Any]) -> None:
    fed, used = _names_of(inputs.values()), set(_names_of(outputs.values()))
    for name, output in outputs.items():
        for op in _needed_ops(graph, inputs, [output]).values():
            used |= {tensor.name for tensor in op.inputs}
            reason = _unserved(op)
            if reason:
                raise BuildError(
                    f"{WHAT}: outputs[{name!r}] ('{_names_of([output])[0]}') depends on '{op.name}', which {reason}. "
                    f"Give the tensors that the model computes with in inputs; they are "
                    f"{', '.join(sorted(fed))} now."
                )
    for name, value in inputs.items():
        if used.isdisjoint(_names_of([value])):
            raise BuildError(f"{WHAT}: no output depends on inputs[{name!r}]. Leave it out.")


def _unserved(op: Any) -> str:
    """Return why an op cannot be part of a served model; "" if it can."""
    if _TAKING.match(op.type):
        return "takes a batch"
    if op.type in ("Placeholder", "PlaceholderV2"):
        return "must be fed"
    return "runs Python code of this process" if op.type in PYTHON_OPS else ""


def _write(folder: str, serving: _ServingGraph, checkpoint: str) -> None:
    with tf.Session(graph=serving.graph) as session:
        try:
            serving.saver.restore(session, checkpoint)
        except (tf.errors.OpError, ValueError) as error:
            # TensorFlow's first line says only that it failed.
            lines = [line for line in str(error).split("\n") if "not found in checkpoint" in line or "shape" in line]
            if isinstance(error, (tf.errors.NotFoundError, tf.errors.InvalidArgumentError)) and lines:
                raise CheckpointError(f"{WHAT}: {checkpoint} does not fit the graph: {lines[0]}") from error
            raise CheckpointError(
                f"{WHAT}: {checkpoint} is damaged or incomplete: {shortened(error)}. Copy it again, or give an older "
                f"one."
            ) from error
        builder = tf.saved_model.Builder(folder)
        builder.add_meta_graph_and_variables(
            session,
            [tf.saved_model.tag_constants.SERVING],
            {
                tf.saved_model.signature_constants.DEFAULT_SERVING_SIGNATURE_DEF_KEY: (
                    tf.saved_model.predict_signature_def(serving.inputs, serving.outputs)
                )
            },
            assets_collection=serving.assets,
            main_op=serving.main_op,
            saver=serving.saver,
            strip_default_attrs=True,
        )
        builder.save()


class _ServingGraph(NamedTuple):
    """A graph with placeholders for its inputs, and what its SavedModel needs."""

    graph: Any
    inputs: dict[str, Any]
    outputs: dict[str, Any]
    saver: Any
    # Fills the tables and initializes local variables; and the files that the tables read.
    main_op: Any
    assets: list[Any]


def _needed_ops(graph: Any, inputs: Mapping[str, Any], outputs: Iterable[Any]) -> dict[str, Any]:
    """Return the ops, by name, that compute `outputs` from `inputs`, with those that initialize their variables."""
    fed = set(_names_of(inputs.values()))
    ops = {op.name: op for op in ancestors(_parts(outputs), fed)}
    starts = _table_initializers(graph, ops)
    for variable in _variables_in(graph, ops):
        # A variable that is made from its proto looks for both.
        starts += [variable.initializer, graph.as_graph_element(variable.to_proto().snapshot_name)]
    return ops | {op.name: op for op in ancestors(starts, fed)}


def _names_of(values: Iterable[Any]) -> list[str]:
    """Return the names of tensors, and of the parts of sparse ones."""
    return [part.name for part in _parts(values)]


def _variables_in(graph: Any, ops: Mapping[str, Any]) -> list[Any]:
    """Return the variables among some ops, by the collections of the graph."""
    every = [*graph.get_collection(_KEYS.GLOBAL_VARIABLES), *graph.get_collection(_KEYS.LOCAL_VARIABLES)]
    return list({variable.op.name: variable for variable in every if variable.op.name in ops}.values())


def _serving_graph(
    graph: Any, inputs: Mapping[str, Any], outputs: Mapping[str, Any], batch_size: int | None
) -> _ServingGraph:
    """Copy what `outputs` need into a new graph, where `inputs` are placeholders.

    Args:
      graph: the training graph. It stays as it is.
      inputs: the tensors to feed, by their names in the signature.
      outputs: the tensors to compute, by their names in the signature.
      batch_size: the first dimension of the inputs; None is any.

    Raises:
      ValueError: the ops do not fit inputs of this batch size.
    """
    ops = _needed_ops(graph, inputs, outputs.values())
    scope = graph.unique_name("serving", mark_as_used=False)
    with tf.Graph().as_default() as served:
        fed = {name: _placeholder(value, f"{scope}/{name}", batch_size) for name, value in inputs.items()}
        parts = dict(zip(_names_of(inputs.values()), _parts(fed.values()), strict=True))
        tf.train.import_meta_graph(_meta_graph(graph, ops), clear_devices=True, input_map=parts)

        def copied(value: Any) -> Any:
            there = [parts[name] if name in parts else served.as_graph_element(name) for name in _names_of([value])]
            return tf.nest.pack_sequence_as(value, there, expand_composites=True)

        return _ServingGraph(
            served,
            fed,
            {name: copied(value) for name, value in outputs.items()},
            tf.train.Saver(tf.global_variables(), allow_empty=True),
            tf.group(tf.tables_initializer(), tf.local_variables_initializer(), name=f"{scope}/init"),
            served.get_collection(_KEYS.ASSET_FILEPATHS),
        )


def _parts(values: Iterable[Any]) -> list[Any]:
    parts: list[Any] = tf.nest.flatten(list(values), expand_composites=True)
    return parts


def _placeholder(value: Any, name: str, batch_size: int | None) -> Any:
    shape = value.shape
    if shape.rank:
        shape = tf.TensorShape([batch_size, *shape[1:]])
    if isinstance(value, tf.SparseTensor):
        return tf.sparse_placeholder(value.dtype, shape, name)
    return tf.placeholder(value.dtype, shape, name)


def _table_initializers(graph: Any, ops: Mapping[str, Any]) -> list[Any]:
    every = graph.get_collection(_KEYS.TABLE_INITIALIZERS)
    return [op for op in every if op.name in ops or any(tensor.op.name in ops for tensor in op.inputs[:1])]


def _meta_graph(graph: Any, ops: Mapping[str, Any]) -> Any:
    """Return the ops as a meta graph, without colocation with ops that are not among them."""
    part = graph.as_graph_def()
    kept = [node for node in part.node if node.name in ops]
    del part.node[:]
    part.node.extend(kept)
    for node in part.node:
        together = node.attr["_class"].list.s if "_class" in node.attr else []
        together[:] = [name for name in together if name.decode().removeprefix("loc:@") in ops]
    meta = tf.MetaGraphDef(graph_def=part)
    for key in (_KEYS.GLOBAL_VARIABLES, _KEYS.LOCAL_VARIABLES):
        for variable in graph.get_collection(key):
            if variable.op.name in ops:
                proto = variable.to_proto()
                # The value that it begins with may be no op of this part.
                proto.initial_value_name = ""
                meta.collection_def[key].bytes_list.value.append(proto.SerializeToString())
    starts = [op.name for op in graph.get_collection(_KEYS.TABLE_INITIALIZERS) if op.name in ops]
    files = [file.name for file in graph.get_collection(_KEYS.ASSET_FILEPATHS) if file.op.name in ops]
    meta.collection_def[_KEYS.TABLE_INITIALIZERS].node_list.value.extend(starts)
    meta.collection_def[_KEYS.ASSET_FILEPATHS].node_list.value.extend(files)
    return meta
