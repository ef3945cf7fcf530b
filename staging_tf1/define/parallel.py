"""What `num_threads` and `num_processes` of `staged()` and `CustomRunner` may be, and the feed threads that follow."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any, NoReturn

from staging_tf1.arguments import AUTOTUNE, MOST_THREADS, NAMED_AUTOTUNE, as_int, in_range, refuse, whole
from staging_tf1.errors import StagingWarning, warn
from staging_tf1.feed.autotune import most_threads
from staging_tf1.sources import Source, StreamSource
from staging_tf1.workers.pool import LANES_EACH
from staging_tf1.workers.shipping import check_picklable

# Two feed threads wait for each process.
_MOST_PROCESSES = MOST_THREADS // LANES_EACH


def check_threads(what: str, num_threads: Any, most: int) -> int:
    """Return the number of feed threads, or AUTOTUNE.

    Raises:
      TypeError, ValueError: it is neither a number from 1 to `most` nor AUTOTUNE.
    """
    number = as_int(num_threads)
    if number == AUTOTUNE:
        return AUTOTUNE
    if number is None:
        refuse(what, "num_threads", num_threads, f"a whole number {in_range(1, most)}, or AUTOTUNE")
    return whole(what, "num_threads", num_threads, 1, most)


def check_processes(what: str, num_processes: Any, num_threads: int, towers: int = 1) -> int:
    """Return the number of worker processes for each tower; 0 for none.

    Raises:
      TypeError, ValueError: the number is invalid, or cannot be combined with another argument or used on this system.
    """
    if as_int(num_processes) == AUTOTUNE:
        raise ValueError(
            f"{what} got num_processes={NAMED_AUTOTUNE}. The processes start once, so their number "
            f"cannot follow the load. Measure with some numbers (docs/performance.md), or use num_threads=AUTOTUNE."
        )
    meaning = "worker processes for each tower; 0 makes the batches in threads"
    number = whole(what, "num_processes", num_processes, 0, _MOST_PROCESSES // towers, meaning)
    if number and num_threads != 1:
        threads = NAMED_AUTOTUNE if num_threads == AUTOTUNE else num_threads
        raise ValueError(
            f"{what} got num_threads={threads} and num_processes={number}. Each worker process has feed threads of "
            f"its own. Leave num_threads out."
        )
    if number and not hasattr(os, "memfd_create"):
        raise ValueError(f"{what} got num_processes={number}, which needs Linux. Use num_threads instead.")
    return number


def check_in_processes(what: str, sources: Iterable[Any]) -> None:
    """Check that worker processes can read the sources. Warn of random generators that each of them would copy.

    Raises:
      TypeError: they have no random access, or cannot be moved to another process.
    """
    warning = None
    for source in sources:
        if not isinstance(source, Source):
            raise TypeError(
                f"{what} got num_processes= with {_named(source)}, which can only be read in order: no process could "
                f"make batch 7 without the batches before it. Pass a source with random access, such as ArraySource, "
                f"TFRecordSource or MapSource, or use num_threads= instead."
            )
        warning = check_picklable(what, source) or warning
    if warning is not None:
        warn(warning, StagingWarning)


def num_feed_threads(num_processes: int, num_threads: int, source: object, most: int = MOST_THREADS) -> int:
    """Return how many feed threads to make: enough to keep all worker processes busy, or for AUTOTUNE to park some."""
    if num_processes:
        return num_processes * LANES_EACH
    return most_threads(source, most) if num_threads == AUTOTUNE else num_threads


def refuse_computed(what: str) -> NoReturn:
    """Raise the error for AUTOTUNE with values that the graph computes."""
    raise ValueError(
        f"{what} got num_threads={NAMED_AUTOTUNE} with values that the graph computes, whose order depends on "
        f"the number of threads. Use num_threads=1 and parallel ops (tf.data: num_parallel_calls=tf.data.AUTOTUNE), or "
        f"pass a source (staging_tf1.sources), whose batches keep their order."
    )


def _named(source: Any) -> str:
    if source is None:
        return "values that the graph computes"
    return f"a {type(source).__name__}" if isinstance(source, StreamSource) else f"{source!r}"
