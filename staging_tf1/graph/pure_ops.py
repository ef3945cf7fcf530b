"""Which ops give the same in each run if their inputs are the same: a batch may be made by these only."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from staging_tf1._tf import allows_any_order, is_stateful, tf
from staging_tf1.graph.dependencies import PYTHON_OPS, bodies_of

_VARIABLES = frozenset({"VarHandleOp", "Variable", "VariableV2"})
# Of the other ops: those that take from an input of the graph, or hold one.
_INPUTS = re.compile("Iterator|Queue|Dequeue|Reader|[Ss]tage|Peek|Accumulator|Barrier|RecordInput|Recv|GetSession")
# They draw their own seed if both of these inputs are 0. With another seed, each run shuffles as the one before.
_SHUFFLES = frozenset({"ShuffleDataset", "ShuffleDatasetV3", "ShuffleAndRepeatDataset", "ShuffleAndRepeatDatasetV2"})
_SEEDS = slice(2, 4)
# With the name of a file, a later run reads from it what the first one has written.
_CACHES = frozenset({"CacheDataset", "CacheDatasetV2"})
_FILE_NAME = slice(1, 2)
# Random, although TensorFlow does not call them stateful.
_RANDOM = frozenset({"FractionalAvgPool", "FractionalMaxPool", "RiscRandomUniform", "SamplingDataset"})
# The same, where a glimpse reaches beyond the image, unless their noise is zero.
_NOISY = frozenset({"ExtractGlimpse", "ExtractGlimpseV2"})

# What TensorFlow calls stateful, and yet depends on nothing that changes. All other stateful ops are refused.
PURE = _SHUFFLES | frozenset(
    " ".join(
        [
            # They call functions, whose ops are looked at.
            "Case GeneratorDataset GroupByReducerDataset If ReduceDataset StatefulPartitionedCall While",
            # They fail or print.
            "Assert CheckNumerics CheckNumericsV2 Print PrintV2",
            # Tables that do not change once they are initialized.
            "AnonymousHashTable HashTable HashTableV2 InitializeTableFromTextFileV2 InitializeTableV2",
            "LookupTableExportV2 LookupTableFindV2 LookupTableImportV2 LookupTableSizeV2",
            # The same, of the library tensorflow-text. Its Sentencepiece ops may draw samples.
            "WordpieceTokenizeWithOffsets",
            # Memory of one run, in loops.
            "Stack StackCloseV2 StackPopV2 StackPushV2 StackV2",
            "TensorArray TensorArrayCloseV3 TensorArrayConcatV3 TensorArrayGatherV3 TensorArrayGrad TensorArrayGradV2",
            "TensorArrayGradV3 TensorArrayGradWithShape TensorArrayReadV3 TensorArrayScatterV3 TensorArraySizeV3",
            "TensorArraySplitV3 TensorArrayV2 TensorArrayV3 TensorArrayWriteV3",
            # Datasets of tensors and files, which each run makes anew.
            "CSVDataset CSVDatasetV2 CacheDatasetV2 DatasetToSingleElement DummyMemoryCache DummySeedGenerator",
            "FixedLengthRecordDataset FixedLengthRecordDatasetV2 ListDataset RangeDataset SparseTensorSliceDataset",
            "TFRecordDataset TFRecordDatasetV2 TensorDataset TensorSliceDataset TextLineDataset",
            # Functions of their inputs that must not be folded into constants.
            "DeepCopy GuaranteeConst StatelessRandomGetAlg",
        ]
    ).split()
)


class Impurity(NamedTuple):
    # "input", "python", "placeholder", "variable", "random", "shuffle", "order" or "state".
    kind: str
    # Its type and its name.
    op: str
    name: str
    # The graph in which it, or the function that has it, was made.
    graph: Any


def impurities(graph: Any, ops: Iterable[Any], in_function: bool) -> Iterator[Impurity]:
    """Yield what is impure among some ops of a graph, and in all functions that they call.

    Args:
      graph: the graph of the ops.
      in_function: whether they are ops of the user's function of a batch. A Python function that it calls gets the
        batch, so it is the user's promise that it returns the same for the same batch. One outside gives what it likes.
        A placeholder with a default has it there, where no run can feed it.
    """
    for body in bodies_of(graph, [op.node_def for op in ops]):
        nodes = {node.name: node for node in body}
        for node in body:
            kind = _kind(node, nodes, in_function)
            if kind:
                yield Impurity(kind, node.op, node.name, graph)


def _kind(node: Any, body: Mapping[str, Any], in_function: bool) -> str:
    op = node.op
    if op in PYTHON_OPS:
        return "python" if not in_function and is_stateful(op) else ""
    if op == "Placeholder" or (op == "PlaceholderWithDefault" and not in_function):
        return "placeholder"
    if op in _VARIABLES:
        return "variable"
    if op in _RANDOM or (op in _NOISY and node.attr["noise"].s != b"zero"):
        return "random"
    if op in _SHUFFLES and _are_empty(node.input[_SEEDS], body):
        return "shuffle"
    if op in _CACHES and not _are_empty(node.input[_FILE_NAME], body):
        return "state"
    if allows_any_order(node):
        return "order"
    if not is_stateful(op) or op in PURE:
        return ""
    if _INPUTS.search(op):
        return "input"
    return "random" if "seed2" in node.attr or op.startswith(("Random", "NonDeterministic")) else "state"


def _are_empty(names: Iterable[str], body: Mapping[str, Any]) -> bool:
    """Whether inputs of a node are 0 or "". In functions, "seed:output:0" is an output of the node "seed"."""
    nodes = [body.get(name.split(":")[0]) for name in names]
    return all(
        node is not None and node.op == "Const" and not tf.make_ndarray(node.attr["value"].tensor).any()
        for node in nodes
    )
