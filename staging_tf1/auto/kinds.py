"""What the types of ops mean for staging."""

from __future__ import annotations

import re
from functools import cache
from typing import Any

from staging_tf1._tf import tf

# Takes a batch from its first input, a handle.
TAKING = re.compile(r"IteratorGetNext(Sync)?$|QueueDequeue(Many|UpTo)?V2$|ReaderRead(UpTo)?V2$")
# Takes what another thread has computed.
DEQUEUES = re.compile(r"QueueDequeue(Many|UpTo)?V2$")
ITERATOR_READS = re.compile(r"IteratorGetNext(Sync)?$")
PREFETCHES = re.compile(r"PrefetchDataset$")
DATASET_WRAPPERS = re.compile(r"(Options|Model|MaxIntraOpParallelism|PrivateThreadPool|AssertCardinality)Dataset$")
PYTHON = frozenset({"PyFunc", "PyFuncStateless", "EagerPyFunc"})
# Makes features and labels, which a program often fetches by name.
PARSING = re.compile(r"DecodeCSV|Parse(Single|Sequence|SingleSequence)?Example(V2)?$")
# Names something that the session keeps. May run on both sides.
HANDLES = re.compile(
    r"(IteratorV2|OneShotIterator|(HashTable|MutableHashTable|MutableDenseHashTable|MutableHashTableOfTensors)V2"
    r"|AnonymousHashTable|(FIFO|PaddingFIFO|RandomShuffle|Priority)QueueV2|\w+ReaderV2)$"
)
PLACEHOLDERS = frozenset({"Placeholder", "PlaceholderV2", "PlaceholderWithDefault"})
# Stateful, but their results depend on nothing, or only on the order of their own runs.
_MOVABLE = re.compile(
    r"(Random\w+|Truncated(Normal)|ParameterizedTruncatedNormal|Multinomial|SampleDistortedBoundingBox(V2)?"
    r"|\w+CandidateSampler|Assert|Print|PrintV2|TensorArray\w*V3|LookupTable(Find|Size|Export)V2|PyFunc|EagerPyFunc"
    r"|StackV2|StackPushV2|StackPopV2|StackCloseV2|ReadFile|Stateless\w+)$"
)
# Those that read a table through a handle.
TABLE_READERS = re.compile(r"LookupTable(Find|Size|Export)V2$")
TABLE_WRITERS = re.compile(r"LookupTable(Insert|Import|Remove)V2$|InitializeTable\w*$")
# May take a resource that is not a variable.
_OF_HANDLES = re.compile(r"(LookupTable\w+|TensorArray\w*V3|Stack(Push|Pop|Close)V2)$")
# Run functions of the graph.
CALLING = frozenset(
    {"If", "StatelessIf", "Case", "StatelessCase", "While", "StatelessWhile", "PartitionedCall"}
    | {"StatefulPartitionedCall"}
)
AREAS = re.compile(r"(Ordered)?(Map)?(Stage|Unstage)(NoKey|Peek)?$")
ENQUEUES = re.compile(r"QueueEnqueue(Many)?V2$")
ITERATOR_STATE = frozenset({"SerializeIterator", "DeserializeIterator"})
INITIALIZERS = frozenset({"MakeIterator"})


@cache
def may_move(kind: str, *, stateful: bool, has_resource: bool) -> bool:
    """Whether an op of that kind computes the same ahead of the step as in it."""
    if has_resource and not _OF_HANDLES.match(kind):
        return False
    return not stateful or bool(_MOVABLE.match(kind))


def can_be_carried(tensor: Any) -> bool:
    """Whether an area can hold a tensor."""
    return tensor.dtype not in (tf.resource, tf.variant)
