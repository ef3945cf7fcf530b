"""`serving_graph`: the part of a training graph that computes outputs from inputs, for a graph of its own."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from staging_tf1._tf import tf
from staging_tf1.graph.dependencies import ancestors

_KEYS = tf.GraphKeys


class ServingGraph(NamedTuple):
    """A graph with placeholders for its inputs, and what its SavedModel needs."""

    graph: Any
    inputs: dict[str, Any]
    outputs: dict[str, Any]
    saver: Any
    # Fills the tables and initializes local variables; and the files that the tables read.
    main_op: Any
    assets: list[Any]


def needed_ops(graph: Any, inputs: Mapping[str, Any], outputs: Iterable[Any]) -> dict[str, Any]:
    """Return the ops, by name, that compute `outputs` from `inputs`, with those that initialize their variables."""
    fed = set(names_of(inputs.values()))
    ops = {op.name: op for op in ancestors(_parts(outputs), fed)}
    starts = _table_initializers(graph, ops)
    for variable in variables_in(graph, ops):
        # A variable that is made from its proto looks for both.
        starts += [variable.initializer, graph.as_graph_element(variable.to_proto().snapshot_name)]
    return ops | {op.name: op for op in ancestors(starts, fed)}


def names_of(values: Iterable[Any]) -> list[str]:
    """Return the names of tensors, and of the parts of sparse ones."""
    return [part.name for part in _parts(values)]


def variables_in(graph: Any, ops: Mapping[str, Any]) -> list[Any]:
    """Return the variables among some ops, by the collections of the graph."""
    every = [*graph.get_collection(_KEYS.GLOBAL_VARIABLES), *graph.get_collection(_KEYS.LOCAL_VARIABLES)]
    return list({variable.op.name: variable for variable in every if variable.op.name in ops}.values())


def serving_graph(
    graph: Any, inputs: Mapping[str, Any], outputs: Mapping[str, Any], batch_size: int | None
) -> ServingGraph:
    """Copy what `outputs` need into a new graph, where `inputs` are placeholders.

    Args:
      graph: the training graph. It stays as it is.
      inputs: the tensors to feed, by their names in the signature.
      outputs: the tensors to compute, by their names in the signature.
      batch_size: the first dimension of the inputs; None is any.

    Raises:
      ValueError: the ops do not fit inputs of this batch size.
    """
    ops = needed_ops(graph, inputs, outputs.values())
    scope = graph.unique_name("serving", mark_as_used=False)
    with tf.Graph().as_default() as served:
        fed = {name: _placeholder(value, f"{scope}/{name}", batch_size) for name, value in inputs.items()}
        parts = dict(zip(names_of(inputs.values()), _parts(fed.values()), strict=True))
        tf.train.import_meta_graph(_meta_graph(graph, ops), clear_devices=True, input_map=parts)

        def copied(value: Any) -> Any:
            there = [parts[name] if name in parts else served.as_graph_element(name) for name in names_of([value])]
            return tf.nest.pack_sequence_as(value, there, expand_composites=True)

        return ServingGraph(
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
    return [each for each in every if each.name in ops or any(tensor.op.name in ops for tensor in each.inputs[:1])]


def _meta_graph(graph: Any, ops: Mapping[str, Any]) -> Any:
    """Return the ops as a meta graph, without colocation with ops that are not among them."""
    part = graph.as_graph_def()
    kept = [node for node in part.node if node.name in ops]
    del part.node[:]
    part.node.extend(kept)
    for node in part.node:
        together = node.attr["_class"].list.s if "_class" in node.attr else []
        together[:] = [each for each in together if each.decode().removeprefix("loc:@") in ops]
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
