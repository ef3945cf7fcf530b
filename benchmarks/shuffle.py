"""The cost of a full-epoch shuffle over reading in order, on W1 and W2: at most 5 %.

    python benchmarks/shuffle.py [--rounds 71] [--json out.json]

Both run `staged()` on the source of the workload, in one process, in turns. The one that waits has a full area and an
idle feed thread.
"""

from __future__ import annotations

import tempfile
from contextlib import ExitStack

import tensorflow.compat.v1 as tf
from common import Step, finish, flags, in_turn, ratio, turns

import staging_tf1 as staging
from staging_tf1.bench.workloads import FACTS, load_workload


def main(argv: list[str] | None = None) -> dict[str, tuple[float, float, float]]:
    """Print the ratio of shuffled to in-order time for each workload; return its median, minimum and maximum."""
    options = flags(__doc__, rounds=71).parse_args(argv)
    over, found = {}, {}
    for name in ("W1", "W2"):
        with ExitStack() as stack:
            records = FACTS[name].quick_records if options.quick else FACTS[name].records
            steps = {
                order: staged_step(name, records, order == "shuffled", stack) for order in ("shuffled", "in order")
            }
            found[name] = in_turn(steps, **turns(options, 0.2))
        over[name] = ratio(found[name], "shuffled", "in order")
        print("{}: shuffled takes {:.3f} ({:.3f} to {:.3f}) of the time in order".format(name, *over[name]))
    finish(options, {"us a step": found, "shuffled over in order": over})
    return over


def staged_step(name: str, records: int, shuffle: bool, stack: ExitStack) -> Step:
    """A step of the workload, fed by `staged()`."""
    workload = load_workload(name)
    data = workload.open(records, tempfile.gettempdir())
    with tf.Graph().as_default():
        batch = staging.staged(workload.source(data, seed=1, shuffle=shuffle))
        fetches = workload.model(batch)
        return stack.enter_context(staging.StagingSession()).make_callable(fetches)


if __name__ == "__main__":
    main()
