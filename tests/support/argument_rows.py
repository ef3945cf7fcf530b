"""The table of `test_arguments.py`: how each public function is called, and which hostile values its arguments accept.

What an argument accepts is read from its annotation, and from a range or a list of values where that says too little.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from argument_calls import CALLS
from hostile import HOSTILE
from public_arguments import public_arguments
from slow import with_slow

from staging_tf1.arguments import MOST_QUEUED, MOST_STAGED, MOST_THREADS

INT32, INT64 = 2**31 - 1, 2**63 - 1
FLAGS = {"true", "false", "np_true", "zero", "one"}
NUMPY_SCALARS = {"np_true", "np_int", "np_negative", "np_half", "np_nan", "np_inf", "np_uint64"}
SECS = {"zero", "one", "three", "half", "fraction", "two_point_zero", "np_int", "np_half"}
NONE = {"none"}
STRINGS = {"digit", "word", "blank", "nul", "surrogate"}


def ints(least: int, most: int) -> set[str]:
    names = ["zero", "one", "three", "minus_one", "2**31", "2**63", "2**70", "-2**70", "np_int", "np_negative", "np_0d"]
    return {name for name in names if least <= int(HOSTILE[name]) <= most}


@dataclass(frozen=True)
class Row:
    """One argument: how to call its function with a value, and which hostile values it accepts."""

    call: Callable[[Any], Any]
    takes: set[str]
    # Other names by which the message may name the argument.
    says: tuple[str, ...] = ()
    # Values that are not tried: they would change this process, or TensorFlow cannot show them.
    untried: frozenset[str] = frozenset()
    # Whether the message shows the value itself or describes it.
    shows: bool = True


def _by_name(table: dict[str, Any]) -> dict[str, Any]:
    """Give each of the names of a row, which blanks separate, a row of its own."""
    return {name: row for names, row in table.items() for name in names.split()}


# The range of a whole number, by its argument, or by the function and the argument; from 0 on if it is not here.
RANGES: dict[str, tuple[int, int]] = _by_name(
    {
        "batch_size group block length": (1, INT32),
        "epochs limit num_records count save_steps": (1, INT64),
        "threads num_threads processes": (1, MOST_THREADS),
        "nice": (0, 19),
        "num_processes": (0, MOST_THREADS // 2),
        "max_batches": (1, 2**20),
        "ragged_rank": (1, 31),
        "shards": (1, 4),
        "n": (1, 10),
        "min_after_dequeue": (0, MOST_QUEUED),
        "Composable.skip(count)": (0, 9),
        "CustomRunner(capacity)": (1, MOST_QUEUED),
        "CustomRunner(seed)": (-(2**63), INT64),
        "GrainIterSource.state(position)": (1, 0),
        "GrainMapSource.batch(index)": (0, 2),
        "GrainMapSource.shard(index)": (0, 2),
        "RecordSource.shard(index)": (0, 3),
        "staged(capacity)": (1, MOST_STAGED),
    }
)
# What does not fit the components is refused with the first record.
_FILLERS = {
    kind for kind, value in HOSTILE.items() if isinstance(value, (int, float, complex, str, bytes, np.generic, dict))
}
_KEYS = ints(-(2**63), INT64)
_ELEMENTS = ints(-INT64, INT64) - {"np_negative"} | {"np_1d"}
_NUMBERS = {"np_1d", "np_empty", "list", "empty_list", "set"}
_KINDS = NUMPY_SCALARS | {"none", "empty_list", "datetime", "class"}
_LISTS = {"none", "empty_list", "np_empty"}
# The values of all other arguments whose annotation does not tell them: more than None, where it may be that.
VALUES: dict[str, set[str]] = _by_name(
    {
        "shapes names cast spec features config": NONE,
        "hooks feed_list": _LISTS,
        "fetches ignored_exception_types": {"empty_list"},
        "RaggedValue(flat_values) RaggedValue(nested_row_splits)": {*HOSTILE},
        "SparseValue(indices) SparseValue(values) SparseValue(dense_shape)": {*HOSTILE},
        "MapStagingArea.put(key) MapStagingArea.peek(key)": _KEYS,
        "staged(name) CustomRunner(name)": {"none", "digit"},
        "local_cache out path output_dir": {"digit", "word"},
        "CachedSource(path) load_images(path) job_name map_fn GeneratorSource.with_spec(spec)": set(),
        "ArraySource(arrays)": {"np_1d", "list"},
        "BaseStagingArea.from_tensors(memory_limit)": ints(8, INT64) | {"zero"},
        "BaseStagingArea.from_tensors(tensors)": NUMPY_SCALARS | {"np_0d", "np_1d", "np_empty"},
        "Composable.pad(to)": NONE | {"dict"} | ints(0, INT32),
        "Composable.ragged(rank)": {"dict"} | ints(1, 31),
        "Composable.select(records)": {"np_1d", "list"},
        "Composable.split(fraction)": {"fraction"},
        "Composable.without(records)": _NUMBERS,
        "CustomRunner(source)": {"list", "set", "tuple"},
        "MapSource(dataset)": {"list", "tuple", "np_1d"},
        "MapStagingArea.get(key)": _KEYS | NONE,
        "MapStagingArea.put(vals)": _ELEMENTS,
        "RaggedValue.from_rows(rows)": {"empty_list", "np_empty"},
        "Source.is_left_out(index)": {*HOSTILE},  # a source that leaves out nothing does not look at the number
        "StagingArea.peek(index)": ints(0, INT32),
        "StagingArea.put(values)": _ELEMENTS,
        "aligned_empty(shape)": ints(0, 2**31) | {"list", "empty_list"},
        "arrays": {"empty_list", "np_empty"},
        "as_source(value)": {"list", "empty_list", "tuple", "set", "class"},
        "cached(data)": {"list", "set", "np_1d"},
        "cached(files)": NONE,
        "cached(version)": NONE | STRINGS | ints(-INT64, INT64),
        "checkpoint_dir": {"blank", "digit", "word"},
        "collate": {"class"},
        "device": {"blank"},
        "dtype": _KINDS,
        "generator_fn": _NUMBERS | {"tuple", "class"},
        "mix(weights)": {"list", "np_1d"},
        "name": {"digit", "blank"},
        "num_threads": ints(1, MOST_THREADS) | ints(-1, -1),
        "only": {"empty_list", "np_empty"},
        "packages": {"empty_list", "np_empty"},
        "sequence": {"list", "tuple"},
        "shard": {"list"},
        "shared_name": STRINGS - {"blank"},
        "staged(memory_limit)": ints(16, INT64) | {"zero"},
        "staged(skip)": _NUMBERS,
        "staged(values)": {"list", "set"},
        "state": {"bytes"},
        "task_index": {"zero", "digit_zero"},
        "timeout_secs": SECS - {"zero"},
        "value": _FILLERS,
        "GeneratorSource(name)": STRINGS,
    }
)
# These have to be given in some other way when they are None.
NEVER_NONE = {"Cluster(job_name)", "StagingSummaryHook(output_dir)", "start(sess)", "stats(sess)"}
# Other words by which a message names an argument.
SAYS: dict[str, tuple[str, ...]] = _by_name(
    {
        "RecordSource.batch RecordSource.epoch_of RecordSource.is_left_out": ("batch",),
        "RecordSource.record_ids GrainMapSource.batch": ("batch",),
        "staged(values) CustomRunner(source)": ("generator",),
        "start(sess) stats(sess)": ("session",),
        "concatenate mix(sources) zip_records": ("source",),
        "write_tfrecords(arrays) write_array_records(arrays)": ("record", "array"),
        "ArraySource(arrays)": ("array", "component"),
        "Composable.select(records)": ("record",),
        "MapSource(dataset)": ("column", "batch"),
        "MapStagingArea.put(vals)": ("component", "put got"),
        "RaggedValue.from_rows(rows)": ("row",),
        "StagingArea.put(values)": ("component",),
        "assert_shards_partition(n)": ("shard",),
        "cached(data)": ("data", "record", "component", "array"),
        "devices": ("device",),
        "dtypes": ("dtype",),
        "feed_list": ("feed",),
        "fetches": ("fetch", "Fetch"),
        "files": ("file",),
        "job_name": ("task type",),
        "jobs": ("cluster", "job"),
        "load_images(path)": ("data file",),
        "task_index": ("task index",),
    }
)
# Arguments whose value a message describes.
DESCRIBED = {
    *("ArraySource(arrays)", "BaseStagingArea.from_tensors(tensors)", "Composable.select(records)"),
    *("Composable.split(key)", "Composable.without(records)", "CustomRunner(source)", "MapSource(dataset)"),
    *("MapStagingArea.put(vals)", "RaggedValue.from_rows(rows)", "StagingArea.put(values)", "as_source(value)"),
    *("cached(data)", "concatenate", "jobs", "labels", "lengths", "mix(sources)", "sequence", "staged(skip)"),
    *("staged(values)", "start(sess)", "stats(sess)", "Composable.weighted(weights)", "zip_records"),
    *("feed_dict", "feed_list", "options", "run_metadata", "step_fn"),
    *("write_array_records(arrays)", "write_tfrecords(arrays)"),
}
# Values whose sessions the default run does not open: others of the same kind are accepted there.
_ALIKE = set() if with_slow() else {"one", "three", "np_int", "np_half", "np_true", "word"}
UNTRIED: dict[str, set[str]] = _by_name(
    {
        "StagingSession.run StagingSession.make_callable": {"unprintable", "10**5000"},
        "ArraySource(arrays) staged(values)": {"surrogate"},
    }
)


def _names(function: str, argument: str) -> tuple[str, ...]:
    """Return the names of an argument in the tables: of its function, of any function, or of all of its function's."""
    return f"{function}({argument})", argument, function


def _found(table: Any, names: tuple[str, ...], otherwise: Any) -> Any:
    return next((table[name] for name in names if name in table), otherwise)


def _taken(names: tuple[str, ...], annotation: str) -> set[str]:
    none = NONE if annotation.endswith("| None") and names[0] not in NEVER_NONE else set()
    if annotation == "bool":
        return FLAGS
    if (values := _found(VALUES, names, None)) is not None:
        return none | values
    if annotation.startswith("int"):
        return none | ints(*_found(RANGES, names, (0, INT64)))
    if annotation.startswith("float"):
        return none | SECS
    return none | ({"class"} if annotation.startswith("Callable[[") else set())


def table() -> dict[str, Row]:
    """Return a row for each argument of each public function."""
    rows = {}
    for function, argument, annotation in public_arguments():
        names = _names(function, argument)
        takes, untried = _taken(names, annotation), _found(UNTRIED, names, set())
        if function in ("assert_works_in_processes", "install"):
            # Valid values start processes (see test_testing.py), or change this one.
            takes, untried = set(), takes
        elif function == "StagingSession":
            untried = _ALIKE & takes
        call, says = CALLS.get(names[0]) or CALLS[function], _found(SAYS, names, ())
        rows[names[0]] = Row(
            lambda value, call=call, argument=argument: call(**{argument: value}),
            takes,
            says,
            frozenset(untried),
            shows=DESCRIBED.isdisjoint(names),
        )
    return rows
