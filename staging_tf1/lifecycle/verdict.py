"""Whether a loop waits for its input or for itself, and what to do about it."""

from __future__ import annotations

# Below this share of the time more input would not make a loop much faster; a get that finds its batch ready takes
# 7 us, which is 2 % of the shortest steps there are.
_BOUND = 0.1

_CURES = {
    "source": "add feed threads (num_threads={more}), or make the source faster",
    "stream": "make the source faster, or give one that several threads can read (an ArraySource, for one)",
    "graph": "make the ops that compute it faster (tf.data in parallel), or add feed threads (num_threads={more})",
    "lockstep": "let a thread read ahead: lockstep=False",
}


def verdict(waited_share: float, kind: str, threads: int) -> str:
    """The verdict on a pipeline, with a suggestion.

    Args:
      waited_share: of the loop's time, spent in waiting for input; from 0 to 1.
      kind: "source" (several threads can read it), "stream" (one at a time), "graph" (tensors), "lockstep".
      threads: feed threads.

    >>> verdict(0.612, "source", threads=1)
    'input-bound: steps waited 61 % of the time; add feed threads (num_threads=2), or make the source faster'
    >>> verdict(0.02, "source", threads=1)
    'compute-bound: steps waited 2 % of the time, the input keeps up'
    """
    share = f"steps waited {waited_share:.0%}".replace("%", " %") + " of the time"
    if waited_share < _BOUND:
        return f"compute-bound: {share}, the input keeps up"
    return f"input-bound: {share}; {_CURES[kind].format(more=2 * max(1, threads))}"
