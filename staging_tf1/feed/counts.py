"""`counts_of`: what the graph says of its sinks at one moment. Every reader of these numbers reads them here."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from staging_tf1._tf import run_unwrapped, tf
from staging_tf1.graph.get_stats import GetFigures
from staging_tf1.graph.sink import Sink


class Count(NamedTuple):
    """The numbers of one sink."""

    gets: GetFigures
    # Elements that can be taken.
    ready: int
    # Free slots, and elements that are staged, also without a token. 0 for a `FeedQueue`.
    free: int = 0
    held: int = 0

    @property
    def taken(self) -> int:
        """How many batches have been taken."""
        return self.gets.batches


def read_counts(sinks: Iterable[Sink], session: Any) -> dict[Sink, Count]:
    """Return the counts of `sinks`. Costs one run.

    Raises:
      tf.errors.OpError, RuntimeError: one of them is not started in `session`, or the session is gone.
    """
    sinks = list(sinks)
    wanted = [
        (sink.stats.value, sink.size, *(() if sink.repair is None else (sink.repair.free, sink.repair.held)))
        for sink in sinks
    ]
    values = run_unwrapped(session, wanted) if wanted else ()
    return {sink: Count(sink.stats.figures(sums), *map(int, more)) for sink, (sums, *more) in zip(sinks, values)}


def counts_of(sinks: Iterable[Sink], session: Any) -> dict[Sink, Count]:
    """Return the counts of those of `sinks` that are started in `session`; none if it is gone."""
    sinks = list(sinks)
    try:
        return read_counts(sinks, session)
    except (tf.errors.OpError, RuntimeError):
        each = [counts_of([sink], session) for sink in sinks] if len(sinks) > 1 else []
        return {sink: count for counts in each for sink, count in counts.items()}
