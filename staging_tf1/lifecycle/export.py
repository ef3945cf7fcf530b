"""`export_saved_model()`: a trained model for serving, without the areas and queues of its training graph."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Literal, NamedTuple

from staging_tf1._tf import tf
from staging_tf1.arguments import INT64_MAX, choice, path, refuse, whole
from staging_tf1.errors import BuildError, CheckpointError, StagingWarning, warn
from staging_tf1.feed.checkpoint import shortened
from staging_tf1.graph.dependencies import PYTHON_OPS, ancestors, functions_of

WHAT = "export_saved_model()"
_KEYS = tf.GraphKeys
# Take a batch of an area, an iterator, a queue or a reader.
_TAKING = re.compile(
    r"((Ordered)?(Map)?(Stage|Unstage)(NoKey|Peek)?|IteratorGetNext(Sync)?|QueueDequeue(Many|UpTo)?V2|ReaderRead(UpTo)?V2)$"
)
# The ends of the names of a checkpoint's files.
_OF_CHECKPOINT = re.compile(r"\.(meta|index|data-\d{5}-of-\d{5})$")
_DRAWS = re.compile(
    r"(State(less|ful))?(Random(?!\w*(Queue|Dataset))\w*|(Parameterized)?TruncatedNormal\w*|StandardNormal\w*"
    r"|Uniform(Int|FullInt)?|Multinomial|Shuffle|SampleDistortedBoundingBox\w*)|\w+CandidateSampler"
)
_CHANGES = re.compile(
    r"Assign\w*|(Resource)?(Sparse)?(Apply|Scatter(?!Nd$|NdNonAliasingAdd$))\w*|(Resource)?StridedSliceAssign"
    r"|(Resource)?CountUpTo|LookupTable(Insert|Import|Remove)\w*"
)


def export_saved_model(
    folder: str,
    inputs: Mapping[str, Any],
    outputs: Mapping[str, Any],
    *,
    checkpoint: str,
    batch_size: int | Literal["any"] | None = None,
    graph: Any = None,
) -> str:
    """Write a SavedModel that computes `outputs` from `inputs`, with the variables of a checkpoint.

    A training graph gets its batches from areas, queues or iterators, and a SavedModel of it would wait for them. This
    one is cut at `inputs`: placeholders stand in their place, and only what `outputs` need is copied. Give the tensors
    that `staged()` returned, those of an iterator's `get_next`, a dequeue, or any later ones. The model loads with
    `tf.saved_model.load` of TensorFlow 2, with TensorFlow Serving, and with `tf.saved_model.loader`. Its signature is
    `serving_default`.

    Build what is served as for evaluation: dropout and batch normalization behave as the graph's outputs do. A
    `StagingWarning` names an op that draws random numbers, changes a variable or normalizes by its batch.

    Args:
      folder: where to write. It may exist if it is empty.
      inputs: tensors or sparse tensors, by their names in the signature.
      outputs: the same for what the model returns.
      checkpoint: the path of a checkpoint (`model.ckpt-100`) or of one of its files, or a folder, for the
        last checkpoint in it.
      batch_size: the first dimension of all inputs, or "any". None is what the graph knows: `staged()` returns tensors
        of a fixed one if all batches are equal. Such a model may have computed with that number, as in
        `sum / x.shape[0]`, and nothing in the graph tells: "any" is for those that did not.
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
    where = path(WHAT, "folder", folder, schemes=tf.io.gfile.get_registered_schemes())
    home = tf.get_default_graph() if graph is None else graph
    if not isinstance(home, tf.Graph):
        refuse(WHAT, "graph", graph, "a tf.Graph or None")
    if isinstance(batch_size, str):
        choice(WHAT, "batch_size", batch_size, ("any",))
    elif batch_size is not None:
        batch_size = whole(WHAT, "batch_size", batch_size, 1, INT64_MAX)
    fed, wanted = _tensors(home, "inputs", inputs), _tensors(home, "outputs", outputs)
    saved = last_checkpoint(checkpoint)
    if tf.gfile.Exists(where) and (not tf.gfile.IsDirectory(where) or tf.gfile.ListDirectory(where)):
        raise FileExistsError(f"{WHAT}: {where} exists and is not empty. Remove it, or choose another folder.")
    _check(home, fed, wanted)
    _warn_of_training(home, fed, wanted)
    try:
        serving = _serving_graph(home, fed, wanted, batch_size)
    except ValueError as error:
        raise BuildError(
            f"{WHAT}: the model does not compute with inputs of batch_size={batch_size}: {error}. Give the batch size "
            f"that it was trained with."
        ) from error
    _write(where, serving, saved)
    firsts = [value.shape.rank and value.shape.dims[0].value for value in fed.values()]
    if batch_size is None and any(firsts) and None not in firsts:
        name, size = next((name, first) for name, first in zip(fed, firsts) if first)
        warn(
            f"{WHAT}: inputs[{name!r}] is {fed[name].shape} in the graph, so the model serves batches of {size}. Pass "
            f"batch_size='any' unless it computes with that number, or batch_size={size}.",
            StagingWarning,
        )
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


def last_checkpoint(checkpoint: Any, caller: str = WHAT) -> str:
    """Return the path of a checkpoint that is given by its path or its folder.

    Raises:
      CheckpointError: there is none.
      ValueError: TensorFlow cannot open the path.
    """
    given = path(caller, "checkpoint", checkpoint, schemes=tf.io.gfile.get_registered_schemes())
    prefix = tf.train.latest_checkpoint(given) if tf.gfile.IsDirectory(given) else _OF_CHECKPOINT.sub("", given)
    if prefix is None or not tf.train.checkpoint_exists(prefix):
        raise CheckpointError(
            f"{caller}: there is no checkpoint at {given}. Give the path of one, such as model.ckpt-100, or its folder."
        )
    return str(prefix)


def _check(graph: Any, inputs: Mapping[str, Any], outputs: Mapping[str, Any]) -> None:
    fed, used = _names_of(inputs.values()), set(_names_of(outputs.values()))
    for name, output in outputs.items():
        ops = _needed_ops(graph, inputs, [output])
        used |= _read_by(ops)
        for op, node in _nodes(graph, ops):
            reason = _unserved(node.op)
            if reason:
                raise BuildError(
                    f"{WHAT}: outputs[{name!r}] ('{_names_of([output])[0]}') depends on '{op}', which {reason}. Give "
                    f"the tensors that the model computes with in inputs; they are {', '.join(sorted(fed))} now."
                )
    for name, value in inputs.items():
        if used.isdisjoint(_names_of([value])):
            raise BuildError(f"{WHAT}: no output depends on inputs[{name!r}]. Leave it out.")


def _unserved(kind: str) -> str:
    """Return why an op of that type cannot be part of a served model; "" if it can."""
    if _TAKING.match(kind):
        return "takes a batch"
    if kind in ("Placeholder", "PlaceholderV2"):
        return "must be fed"
    return "runs Python code of this process" if kind in PYTHON_OPS else ""


def _warn_of_training(graph: Any, inputs: Mapping[str, Any], outputs: Mapping[str, Any]) -> None:
    """Warn, once for each reason, of outputs that behave as in training."""
    warned = set[str]()
    for name, output in outputs.items():
        ops = {op.name: op for op in ancestors(_parts([output]), _names_of(inputs.values()))}
        for op, node in _nodes(graph, ops):
            reason = _trains(node)
            if reason and reason not in warned:
                warned.add(reason)
                warn(
                    f"{WHAT}: outputs[{name!r}] depends on '{op}' ({node.op}), which {reason}. So does the served "
                    f"model. Give an output that was built for evaluation.",
                    StagingWarning,
                )


def _trains(node: Any) -> str:
    """Return what a node does that a model does in training only; "" if nothing."""
    if _DRAWS.fullmatch(node.op):
        return "draws random numbers, as dropout does"
    if _CHANGES.fullmatch(node.op):
        return "changes a variable or table"
    training = node.op.startswith("FusedBatchNorm") and node.attr["is_training"].b
    return "normalizes by the batch, as in training" if training else ""


def _nodes(graph: Any, ops: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """Return the nodes of some ops and of the functions that these call, each with the name of the op."""
    library = {function.signature.name: function.node_def for function in graph.as_graph_def().library.function}
    found = [(name, op.node_def) for name, op in ops.items()]
    for name, node in found:
        for function in functions_of(node):
            found += [(name, inner) for inner in library.pop(function, ())]
    return found


def _read_by(ops: Mapping[str, Any]) -> set[str]:
    return {tensor.name for op in ops.values() for tensor in op.inputs}


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
    # Fills the tables and initializes local variables.
    main_op: Any
    # The files that the tables read.
    assets: list[Any]


def _needed_ops(graph: Any, inputs: Mapping[str, Any], outputs: Iterable[Any]) -> dict[str, Any]:
    """Return the ops, by name, that compute `outputs` from `inputs`, with those that initialize tables and locals."""
    fed = set(_names_of(inputs.values()))
    ops: dict[str, Any] = {}
    more = _parts(outputs)
    # A local variable may start from another one.
    while more:
        ops |= {op.name: op for op in ancestors(more, fed)}
        names = [name for _, proto in _variables(graph, ops) for name in (proto.initializer_name, proto.snapshot_name)]
        starts = [*_table_initializers(graph, ops), *map(graph.as_graph_element, names)]
        more = [start for start in starts if start.name.split(":")[0] not in ops]
    return ops


def _names_of(values: Iterable[Any]) -> list[str]:
    """Return the names of tensors, and of the parts of sparse ones."""
    return [part.name for part in _parts(values)]


def _variables(graph: Any, ops: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """Return the protos of the variables among some ops, each with the key of its collection."""
    protos = []
    restored = {variable.op.name for variable in graph.get_collection(_KEYS.GLOBAL_VARIABLES)}
    for key in (_KEYS.GLOBAL_VARIABLES, _KEYS.LOCAL_VARIABLES):
        for variable in graph.get_collection(key):
            if variable.op.name not in ops:
                continue
            proto = variable.to_proto()
            # What it begins with may be no op of this part: a batch, a placeholder, or another variable.
            proto.initial_value_name = ""
            if variable.op.name in restored:
                proto.initializer_name = proto.snapshot_name
            protos.append((key, proto))
    return protos


def _serving_graph(
    graph: Any, inputs: Mapping[str, Any], outputs: Mapping[str, Any], batch_size: int | str | None
) -> _ServingGraph:
    """Copy what `outputs` need into a new graph, where `inputs` are placeholders.

    Args:
      graph: the training graph. It stays as it is.
      inputs: the tensors to feed, by their names in the signature.
      outputs: the tensors to compute, by their names in the signature.
      batch_size: the first dimension of the inputs, "any", or None for what the graph knows.

    Raises:
      ValueError: the ops do not fit inputs of this batch size.
    """
    ops = _needed_ops(graph, inputs, outputs.values())
    scope = graph.unique_name("serving", mark_as_used=False)
    with tf.Graph().as_default() as served:
        fed = {name: _placeholder(value, f"{scope}/{name}", batch_size) for name, value in inputs.items()}
        parts = dict(zip(_names_of(inputs.values()), _parts(fed.values()), strict=True))
        read = {name: parts[name] for name in _read_by(ops) & set(parts)}
        tf.train.import_meta_graph(_meta_graph(graph, ops), clear_devices=True, input_map=read)

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


def _placeholder(value: Any, name: str, batch_size: int | str | None) -> Any:
    shape = value.shape
    if shape.rank and batch_size is not None:
        shape = tf.TensorShape([None if batch_size == "any" else batch_size, *shape[1:]])
    if isinstance(value, tf.SparseTensor):
        return tf.sparse_placeholder(value.dtype, None if shape.rank is None else shape, name)
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
    for key, proto in _variables(graph, ops):
        meta.collection_def[key].bytes_list.value.append(proto.SerializeToString())
    starts = [op.name for op in graph.get_collection(_KEYS.TABLE_INITIALIZERS) if op.name in ops]
    files = [file.name for file in graph.get_collection(_KEYS.ASSET_FILEPATHS) if file.op.name in ops]
    meta.collection_def[_KEYS.TABLE_INITIALIZERS].node_list.value.extend(starts)
    meta.collection_def[_KEYS.ASSET_FILEPATHS].node_list.value.extend(files)
    return meta
