"""Makes feeds ready to start in a session, all at once.

TensorFlow goes through the whole graph for each new set of ops that a session runs. If each feed ran ops of its own at
the start, a graph with twice as many feeds would take four times as long.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from staging_tf1.feed.dropping import drop
from staging_tf1.feed.lane import Lane
from staging_tf1.feed.resuming import resume_points, say_where_it_begins
from staging_tf1.feed.sink_run import Canceller

if TYPE_CHECKING:
    from staging_tf1.feed.feed import Feed

# An attribute of the session, so that it goes with it.
_READY = "_staging_tf1_ready"


@dataclass(frozen=True)
class Ready:
    """What a feed needs to know when it starts."""

    # Each lane, with the number of its first batch.
    points: list[tuple[Lane, int]]
    # Shared by all feeds that were made ready with it.
    canceller: Canceller


@dataclass
class _Session:
    """The feeds that are ready in one session, and have not been started yet; by their id."""

    ready: dict[int, Ready] = field(default_factory=dict)
    lock: threading.RLock = field(default_factory=threading.RLock)


def make_ready(feeds: Sequence[Feed], session: Any) -> None:
    """Makes those of `feeds` ready that neither run in `session` nor are ready there; all must start right after."""
    of_session = _of(session)
    with of_session.lock:
        new = [feed for feed in feeds if feed.run_in(session) is None and id(feed) not in of_session.ready]
        if not new:
            return
        for feed in new:
            if feed.pipeline is None or feed.pipeline.resume != "restart":
                say_where_it_begins(feed.name, [lane.source for lane in feed.lanes], session)
        points = resume_points([(feed.pipeline, feed.lanes) for feed in new], session)
        inits = [feed.pipeline.init for feed in new if feed.pipeline is not None and feed.pipeline.init is not None]
        if inits:
            session.run(inits)
        for feed, of_feed in zip(new, points, strict=True):
            _drop(feed, of_feed, session)
        sinks = list({id(lane.sink): lane.sink for feed in new for lane in feed.lanes}.values())
        session.run([sink.reset for sink in sinks])
        threaded = [lane.sink for feed in new if not _in_lockstep(feed) for lane in feed.lanes]
        canceller = Canceller(session, list({id(sink): sink for sink in threaded}.values()))
        of_session.ready.update((id(feed), Ready(each, canceller)) for feed, each in zip(new, points, strict=True))


def is_ready(feed: Feed, session: Any) -> bool:
    """Whether `feed` has been made ready in `session`, and not been started since."""
    return id(feed) in _of(session).ready


def take_ready(feed: Feed, session: Any) -> Ready:
    """What `feed`, which starts now, needs to know. It may start once."""
    return _of(session).ready.pop(id(feed))


def _in_lockstep(feed: Feed) -> bool:
    return feed.pipeline is not None and feed.pipeline.lockstep


def _drop(feed: Feed, points: Sequence[tuple[Lane, int]], session: Any) -> None:
    if feed.pipeline is not None and feed.pipeline.drops:
        consumed = min(start * len(points) + tower for tower, (_, start) in enumerate(points))
        drop(session, feed.pipeline.drops, consumed, points[0][0])


def _of(session: Any) -> _Session:
    found: _Session = vars(session).setdefault(_READY, _Session())
    return found
