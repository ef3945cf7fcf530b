"""Memory of the area and time per step when staging float32, float16 (`cast=`), or bytes that the step converts.

    python benchmarks/cast.py [--rounds 7] [--json out.json]

Uses the batches and the model of W2, in one process, in turns. `docs/sources.md` says when to choose which.
"""

from __future__ import annotations

import tempfile
from contextlib import ExitStack
from typing import Any

import tensorflow.compat.v1 as tf
from common import Step, finish, flags, in_turn, ratio, turns

import staging_tf1 as staging
from staging_tf1.bench.workloads import FACTS, load_workload

# Batches in the area.
CAPACITY = 2
WAYS = ("float32", "cast=float16", "uint8, converted after the area")


def main(argv: list[str] | None = None) -> dict[str, dict[str, Any]]:
    """Print and return, for each way, the bytes of a full area and the time per step relative to float32."""
    options = flags(__doc__).parse_args(argv)
    records = FACTS["W2"].quick_records if options.quick else FACTS["W2"].records
    with ExitStack() as stack:
        made = {way: staged_step(way, records, stack) for way in WAYS}
        found = in_turn({way: step for way, (step, _) in made.items()}, **turns(options, 1.0))
    held = {way: nbytes for way, (_, nbytes) in made.items()}
    result = {}
    for way in WAYS:
        result[way] = {"bytes": held[way], "of float32": ratio(found, way, "float32"), "us a step": found[way]}
        time_ = "{:.3f} ({:.3f} to {:.3f})".format(*result[way]["of float32"])
        print(f"{way:34} {held[way] / 2**20:6.1f} MiB in the area; time per step, float32 = 1: {time_}")
    finish(options, {"ways": result})
    return result


def staged_step(way: str, records: int, stack: ExitStack) -> tuple[Step, int]:
    """A step of W2 whose batches are staged in that way, and the bytes of its full area."""
    workload = load_workload("W2")
    data = workload.open(records, tempfile.gettempdir())
    with tf.Graph().as_default():
        if way.startswith("uint8"):
            batch = staging.staged(workload.compact_source(data, seed=1), capacity=CAPACITY)
            converted = workload.expand(batch)
        elif way.startswith("cast"):
            batch = staging.staged(workload.source(data, seed=1), capacity=CAPACITY, cast={"image": tf.float16})
            converted = batch | {"image": tf.cast(batch["image"], tf.float32)}
        else:
            batch = converted = staging.staged(workload.source(data, seed=1), capacity=CAPACITY)
        fetches = workload.model(converted)
        records_held = CAPACITY * workload.batch_size
        nbytes = sum(records_held * bytes_of_a_record(tensor) for tensor in batch.values())
        return stack.enter_context(staging.StagingSession()).make_callable(fetches), nbytes


def bytes_of_a_record(tensor: Any) -> int:
    """The bytes of one row of a batch."""
    return int(tensor.shape[1:].num_elements()) * int(tensor.dtype.size)


if __name__ == "__main__":
    main()
