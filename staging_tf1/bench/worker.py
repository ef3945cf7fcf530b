"""`python -m staging_tf1.bench.worker`: measures what standard input asks for.

A request is a line with one JSON object (`Request`), and so is the answer: `{"measured": {...}}`, `{"skipped": "why"}`
or `{"failed": "why"}`. Other lines of standard output are somebody else's. Whatever else goes wrong is a traceback and
exit code 1. A process that measures gets one request; the quick form sends many, because loading TensorFlow is then
all the time that it takes.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from typing import Any

from staging_tf1.bench.errors import BenchError, NotApplicable

__all__ = ["Request", "answer", "config_of", "main"]


@dataclass(frozen=True)
class Request:
    """What a worker is to measure."""

    # "W1" and so on, or "module:function" for a training step of the user's own.
    workload: str
    system: str
    # Where data that takes long to make is kept.
    folder: str
    threads: int = 1
    records: int = 0
    secs: float = 1.5
    # Measure exactly so many, whatever they take.
    steps: int | None = None
    seed: int = 1
    # Sizes of TensorFlow's thread pools; 0 is its own choice.
    intra_op: int = 0
    inter_op: int = 0
    # Whether idle threads of those pools sleep at once, instead of looking for work for a while.
    no_spinning: bool = False
    input_device: str | None = None


def answer(request: Request) -> dict[str, Any]:
    """Measures, and gives what the worker prints."""
    from staging_tf1._tf import tf
    from staging_tf1.bench.measure import measure
    from staging_tf1.bench.systems import load_system
    from staging_tf1.bench.task import Task
    from staging_tf1.bench.workloads import load_workload

    tf.logging.set_verbosity(tf.logging.ERROR)
    measured = None
    try:
        workload = load_workload(request.workload)
        task = Task(
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
            with load_system(request.system)(task) as step:
                measured = measure(step, request.secs, request.steps)
    except NotApplicable as reason:
        return {"skipped": str(reason)}
    except BenchError as error:
        return {"failed": str(error)}
    except tf.errors.OutOfRangeError:
        pass
    if measured is None:  # a StagingSession takes the end of the data for a normal end of its block
        return {"failed": f"{request.workload} ran out of data while it was measured. Give its source epochs=None."}
    return {"measured": {**measured.as_dict(), "batch_size": workload.batch_size}}


def config_of(request: Request) -> Any:
    """The `tf.ConfigProto` of its sessions."""
    from staging_tf1._tf import tf

    config = tf.ConfigProto(
        intra_op_parallelism_threads=request.intra_op, inter_op_parallelism_threads=request.inter_op
    )
    config.experimental.disable_thread_spinning = request.no_spinning
    return config


def main() -> None:
    """Answers the requests on standard input, one a line."""
    for line in sys.stdin:
        print("\n" + json.dumps(answer(Request(**json.loads(line)))), flush=True)


if __name__ == "__main__":
    main()
