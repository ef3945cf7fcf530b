"""`bottleneck`: what a loop waits for, and what would help."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

from staging_tf1.cores import usable_cores

NOT_TAKEN = "no step has taken a batch from this pipeline"
NOT_MEASURED = "TensorFlow does not measure how long steps wait for input while deterministic ops are enabled"

# Below this share of the time, more input would not make a loop much faster. A get that finds its batch ready takes
# 7 us, which is 2 % of the shortest steps there are.
BOUND = 0.1
# Of fewer measurements, the median is not better than the mean of the run.
_LEAST_MEASURED = 4
# Above this number of cores, the threads compute. Below it, they wait for a disk or a network.
_COMPUTES = 0.25
# Threads that compute for more than this share of the loop's time may keep the GIL from steps whose batch is ready.
_STARVES = 0.5

_CURES = {
    "source": "add feed threads (num_threads={more}), or make the source faster",
    "autotuned": "make the source faster: AUTOTUNE adds feed threads while they help ({now} at present)",
    "stream": "make the source faster, or use one that several threads can read, such as ArraySource",
    "graph": "make the ops that compute it faster (tf.data in parallel), or pass a source, whose batches keep their "
    "order with several feed threads",
    "seeded": "shuffle in the source (shuffle=True, seed=) and use queue='fifo': the feeder and the taker of a seeded "
    "shuffle queue take turns",
    "lockstep": "let a thread read ahead: lockstep=False",
}
# For a source that computes. What the threads hold meanwhile, the GIL or not, is not known.
_PYTHON_CURES = {
    "source": "use processes (num_processes={enough})",
    "autotuned": "use processes (num_processes={enough}) without num_threads",
    "stream": "use a source with random access, such as MapSource, with processes (num_processes={enough})",
}


def typical_share(measured: Sequence[float], of_run: float) -> float:
    """Return the share of the time that steps wait for input: the median of the measurements.

    Half of them must move to move it. With under four, it is the mean of the run.

    >>> typical_share([0.02, 0.03, 0.9, 0.02, 0.02], of_run=0.2)
    0.02
    """
    return statistics.median(measured) if len(measured) >= _LEAST_MEASURED else of_run


def bottleneck(waited_share: float, kind: str, threads: int, cores: float = 0.0, of_loop: float = 0.0) -> str:
    """Return what the loop waits for, with a suggestion that changes neither the order nor the records.

    Args:
      waited_share: the share of the loop's time spent waiting for input, from 0 to 1.
      kind: "source" (several threads can read it), "autotuned" (as many as AUTOTUNE decides), "processes" (worker
        processes do), "stream" (one thread at a time), "graph" (tensors), "seeded" (a
        shuffle queue whose order can be repeated), "lockstep".
      threads: feed threads, or worker processes.
      cores: the mean number of cores that the threads use while they are in the source.
      of_loop: their CPU seconds there over the seconds of the loop.

    >>> bottleneck(0.612, "source", threads=1)
    'input-bound: steps waited 61 % of the time; add feed threads (num_threads=2), or make the source faster'
    >>> bottleneck(0.02, "source", threads=1)
    'compute-bound: steps waited 2 % of the time, the input keeps up'
    """
    python_cure = ""
    if kind in _PYTHON_CURES and cores > _COMPUTES and usable_cores() > 1:
        # As many as keep up with the step.
        enough = max(2, math.ceil(min(of_loop / max(1 - waited_share, 1e-6), usable_cores())))
        cure = _PYTHON_CURES[kind].format(enough=enough)
        python_cure = f"; if the source computes in Python, which holds the GIL, {cure}"
    share = f"steps waited {_percent(waited_share)} of the time"
    if waited_share < BOUND:
        return f"compute-bound: {share}, the input keeps up{python_cure if of_loop > _STARVES else ''}"
    if kind == "processes":
        return f"input-bound: {share}; {_more_processes(threads)}"
    return f"input-bound: {share}; {_CURES[kind].format(more=2 * max(1, threads), now=threads)}{python_cure}"


def _more_processes(processes: int) -> str:
    cores = usable_cores()
    if processes < cores:
        return f"add worker processes (num_processes={min(2 * processes, cores)}), or make the source faster"
    return f"make the source faster: its {processes} worker processes already have all {cores} cores"


def _percent(share: float) -> str:
    return f"{share:.0%}".replace("%", " %")
