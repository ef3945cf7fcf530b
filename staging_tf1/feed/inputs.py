"""The sources of one feed in one session: which lane reads what, and in which rotation."""

from __future__ import annotations

from collections.abc import Sequence

from staging_tf1.feed.lane import Lane
from staging_tf1.feed.reading import DealtReader, IndexReader, Reader, StreamReader
from staging_tf1.feed.turnstile import Turnstile
from staging_tf1.sources import Source, StreamSource


class Inputs:
    """Makes one reader a lane; lanes that share a stream share its reader.

    Args:
      points: each lane, with the number of the batch that it begins with.

    Attributes:
      first_turn: of the rotation in which towers share an input: round * towers + tower.
    """

    def __init__(self, points: Sequence[tuple[Lane, int]]) -> None:
        self.towers = len({lane.tower for lane, _ in points})
        self.first_turn = min(start * self.towers + lane.tower for lane, start in points)
        self.rotation = Turnstile(self.first_turn)
        self._streams: dict[int, StreamReader] = {}

    def reader(self, lane: Lane, start: int = 0, *, dealt: bool = True) -> Reader | None:
        """What the threads of `lane` take from, from batch `start` on; None where the graph computes the batches.

        Of an input that towers share it gives only the lane's own batches, and waits for its turn; not `dealt`, it
        gives all, to a caller who deals them out.
        """
        if lane.source is None:
            return None
        if isinstance(lane.source, Source):
            return IndexReader(lane.source, lane.ignored, start)
        if not lane.rotates:
            return self._stream(lane, lane.source, start)
        stream = self._stream(lane, lane.source, self.first_turn)
        if not dealt:
            return stream
        return DealtReader(stream, self.rotation, lane.tower, self.towers, start, lane.arrays, lane.ignored)

    def stop(self) -> None:
        """Wakes the towers that wait for each other."""
        self.rotation.stop()

    def _stream(self, lane: Lane, source: StreamSource, start: int) -> StreamReader:
        return self._streams.setdefault(id(source), StreamReader(source, lane.ignored, start))
