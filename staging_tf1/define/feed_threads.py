"""What `num_threads` of `staged()` and `CustomRunner` may be: a number, or AUTOTUNE."""

from __future__ import annotations

from typing import Any, NoReturn

from staging_tf1.arguments import AUTOTUNE, NAMED_AUTOTUNE, as_int, in_range, refuse, whole
from staging_tf1.feed.autotune import most_threads


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


def threads_of(num_threads: int, source: object, most: int) -> int:
    """Return how many feed threads to make for a source. With AUTOTUNE, some of them are parked."""
    return most_threads(source, most) if num_threads == AUTOTUNE else num_threads


def refuse_computed(what: str) -> NoReturn:
    """Raise the error for AUTOTUNE with values that the graph computes."""
    raise ValueError(
        f"{what} got num_threads={NAMED_AUTOTUNE} with values that the graph computes, whose order depends on "
        f"the number of threads. Use num_threads=1 and parallel ops (tf.data: num_parallel_calls=tf.data.AUTOTUNE), or "
        f"pass a source (staging_tf1.sources), whose batches keep their order."
    )
