"""`python -m staging_tf1.bench.worker`: answers the requests on standard input.

A request is a line with one JSON object (`Request`). The answer is also one line: `{"measured": {...}}`,
`{"skipped": "why"}` or `{"failed": "why"}`. Other lines of standard output come from libraries and are ignored. Any
other error prints a traceback and exits with 1. A process that measures gets one request. With `--quick` one process
gets all requests, because most of the time would be spent loading TensorFlow.
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict, dataclass
from typing import Any

from staging_tf1.bench import BenchError, NotApplicable
from staging_tf1.quiet import import_quietly

__all__ = ["Request", "answer", "config_of", "main"]


@dataclass(frozen=True)
class Request:
    """A measurement for a worker to make."""

    # A name such as "W1", or "module:function" for the user's own training step.
    workload: str
    system: str
    # The cache folder for data that takes long to make.
    folder: str
    threads: int = 1
    records: int = 0
    secs: float = 1.5
    # Measure exactly this number of steps, regardless of `secs`.
    steps: int | None = None
    seed: int = 1
    # The sizes of TensorFlow's thread pools; 0 leaves the choice to TensorFlow.
    intra_op: int = 0
    inter_op: int = 0
    # Whether idle threads of the pools sleep immediately instead of spinning for a while.
    no_spinning: bool = False
    input_device: str | None = None
    # Seconds after which the measurement counts as hung; 0 is the usual limit.
    limit_secs: float = 0.0


def answer(request: Request) -> dict[str, Any]:
    """Measure, and return the answer to print."""
    import_quietly()
    from staging_tf1._tf import tf
    from staging_tf1.bench.case import Case
    from staging_tf1.bench.measure import measure
    from staging_tf1.bench.systems import load_system
    from staging_tf1.bench.workloads import load_workload

    tf.logging.set_verbosity(tf.logging.ERROR)
    measured = None
    try:
        workload = load_workload(request.workload)
        case = Case(
            workload=workload,
            data=workload.open(request.records, request.folder),
            model=workload.model,
            threads=request.threads,
            seed=request.seed,
            config=config_of(request),
            input_device=request.input_device,
        )
        with tf.Graph().as_default():
            tf.set_random_seed(request.seed)
            with load_system(request.system)(case) as step:
                measured = measure(step, request.secs, request.steps)
    except NotApplicable as reason:
        return {"skipped": str(reason)}
    except BenchError as error:
        return {"failed": str(error)}
    except tf.errors.OutOfRangeError:
        pass
    if measured is None:  # at the end of the data, a StagingSession ends its block without an exception
        return {"failed": f"{request.workload} ran out of data during the measurement. Set epochs=None in its source."}
    return {"measured": {**asdict(measured), "batch_size": workload.batch_size}}


def config_of(request: Request) -> Any:
    """Return the `tf.ConfigProto` for the sessions of a request."""
    from staging_tf1._tf import tf

    config = tf.ConfigProto(
        intra_op_parallelism_threads=request.intra_op, inter_op_parallelism_threads=request.inter_op
    )
    config.experimental.disable_thread_spinning = request.no_spinning
    return config


def main() -> None:
    """Answer the requests on standard input, one per line."""
    for line in sys.stdin:
        print("\n" + json.dumps(answer(Request(**json.loads(line)))), flush=True)


if __name__ == "__main__":
    main()
