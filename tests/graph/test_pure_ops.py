"""`pure_ops`: all ops that TensorFlow has are either known to be pure, or refused."""

from __future__ import annotations

from typing import Any

import tensorflow.compat.v1 as tf
from tensorflow.core.framework import op_def_pb2
from tensorflow.python.client import pywrap_tf_session
from tensorflow.python.framework import op_def_registry

from staging_tf1.graph import pure_ops
from staging_tf1.graph.pure_ops import PURE

_LIST = op_def_pb2.OpList.FromString(pywrap_tf_session.TF_GetBuffer(pywrap_tf_session.TF_GetAllOpList()))
OPS = {op.name: op for op in _LIST.op}
# What the user writes in map_fn is asked about elsewhere: Python functions, and shuffles with a seed.
KNOWN = PURE | {"PyFunc", "EagerPyFunc"}
# Stateless, and deterministic: the seed is an input, or unused.
SEEDED = {"ComputeAccidentalHits", "KMC2ChainInitialization", "KmeansPlusPlusInitialization", "RandomIndexShuffle"}
SEEDED |= {"SnapshotDataset"}


def kind_of(name: str) -> str:
    """Return the kind of an op with the default values of its attributes."""
    node = tf.NodeDef(name="op", op=name)
    for attr in OPS[name].attr:
        node.attr[attr.name].CopyFrom(attr.default_value)
    return pure_ops._kind(node, {"op": node}, in_function=True)


def test_each_stateful_op_is_on_the_list_or_refused() -> None:
    stateful = {name for name, op in OPS.items() if op.is_stateful}
    assert len(stateful) > 400
    allowed = {name for name in stateful if not kind_of(name)}
    assert allowed - KNOWN == set()
    # Shuffles without a seed are refused.
    assert {kind_of(name) for name in KNOWN & stateful} <= {"", "shuffle"}


def test_the_list_has_only_ops_that_tensorflow_has() -> None:
    of_other_libraries = {"WordpieceTokenizeWithOffsets"}
    assert {name for name in PURE if op_def_registry.get(name) is None} == of_other_libraries


def test_a_glimpse_without_noise_is_pure() -> None:
    noise = tf.AttrValue(s=b"zero")
    for op in ("ExtractGlimpse", "ExtractGlimpseV2"):
        node = tf.NodeDef(name="op", op=op, attr={"noise": noise})
        assert pure_ops._kind(node, {"op": node}, in_function=True) == ""


def test_each_stateless_op_with_a_seed_is_known() -> None:
    def is_seeded(op: Any) -> bool:
        return any("seed" in each.name for each in [*op.input_arg, *op.attr])

    seeded = {name for name, op in OPS.items() if not op.is_stateful and is_seeded(op) and not kind_of(name)}
    other = {name for name in seeded if not name.startswith(("Stateless", "CudnnRNN", "Shuffle"))}
    assert other - SEEDED == set()
