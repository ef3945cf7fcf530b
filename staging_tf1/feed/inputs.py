"""The sources of one feed in one session: which lane reads what, and in which rotation."""

from __future__ import annotations

from collections.abc import Sequence

from staging_tf1.feed.lane import Lane
from staging_tf1.feed.reading import DealtReader, IndexReader, Reader, StreamReader
from staging_tf1.feed.turnstile import Turnstile
from staging_tf1.sources import Source, StreamSource


class Inputs:
    """Makes one reader a lane; lanes that share a stream share its reader."""

    def __init__(self, lanes: Sequence[Lane]) -> None:
        self.towers = len({lane.tower for lane in lanes})
        self.rotation = Turnstile()
        self._streams: dict[int, StreamReader] = {}

    def reader(self, lane: Lane, start: int = 0) -> Reader | None:
        """What the threads of `lane` take from, from batch `start` on; None where the graph computes the batches."""
        if lane.source is None:
            return None
        if isinstance(lane.source, Source):
            return IndexReader(lane.source, lane.ignored, start)
        stream = self._stream(lane, lane.source, start)
        return DealtReader(stream, self.rotation, lane.tower, self.towers) if lane.rotates else stream

    def stop(self) -> None:
        """Wakes the towers that wait for each other."""
        self.rotation.stop()

    def _stream(self, lane: Lane, source: StreamSource, start: int) -> StreamReader:
        return self._streams.setdefault(id(source), StreamReader(source, lane.ignored, start))
