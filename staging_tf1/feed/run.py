"""`FeedRun`: the threads of one feed in one session, from their start until the last has been joined."""

from __future__ import annotations

import threading
import time
import warnings
from collections.abc import Callable, Sequence
from typing import Any

from absl import logging

from staging_tf1._tf import is_closed, tf
from staging_tf1.errors import LeftoverWarning, SourceError
from staging_tf1.feed import thread_state
from staging_tf1.feed.inputs import Inputs
from staging_tf1.feed.lane import Lane
from staging_tf1.feed.lane_run import LaneRun
from staging_tf1.feed.repair import repair
from staging_tf1.feed.rounds import Rounds
from staging_tf1.feed.sink_run import Canceller, SinkRun
from staging_tf1.feed.source_errors import text_of
from staging_tf1.feed.thread_state import ThreadState
from staging_tf1.feed.turnstile import Stopped
from staging_tf1.fork import has_lost_tensorflow
from staging_tf1.graph.meter import Meter


class FeedRun:
    """Threads that carry batches from a feed's lanes to its sinks.

    Attributes:
      error: the first exception of a feed thread, or None.
      states: one record a feed thread.
    """

    def __init__(
        self, name: str, points: list[tuple[Lane, int]], session: Any, coord: Any | None, canceller: Canceller
    ) -> None:
        lanes = [lane for lane, _ in points]
        self.name = name
        self.session = session
        self.error: BaseException | None = None
        self._coord = coord
        self._stopping = threading.Event()
        self._lock = threading.Lock()
        self._rounds_lock = threading.Lock()
        sinks: dict[int, SinkRun] = {}
        for lane in lanes:
            if id(lane.sink) not in sinks:
                count = sum(other.sink is lane.sink for other in lanes)
                sinks[id(lane.sink)] = SinkRun(lane.sink, session, count)
        self.sinks = tuple(sinks.values())
        self.rounds = Rounds(len(self.sinks)) if len(self.sinks) > 1 else None
        inputs = Inputs(points)
        self.lanes = tuple(LaneRun(lane, sinks[id(lane.sink)], self, inputs, start) for lane, start in points)
        self.states = [state for lane in self.lanes for state in lane.states]
        self.threads = self._make_threads()
        self._canceller = canceller
        canceller.runs.append(self)

    def _make_threads(self) -> list[threading.Thread]:
        threads = []
        for lane in self.lanes:
            for state in lane.states:
                state.thread = threading.Thread(target=self._guarded, args=(lane, state), name=state.name)
                threads.append(state.thread)
        if self._coord is not None:
            threads.append(threading.Thread(target=self._stop_with_coordinator, name=f"feed:{self.name}:stop"))
        return threads

    @property
    def stopping(self) -> bool:
        """Whether the threads have been told to stop."""
        return self._stopping.is_set()

    def stop(self) -> None:
        """Wakes all threads that wait, and lets none of them deliver any more; what is staged can still be taken.

        Does not join them.
        """
        stop_all([self])

    def _begin_to_stop(self) -> bool:
        """Lets no thread begin a put or a release; False if that has been done before."""
        if self._stopping.is_set():
            return False
        self._stopping.set()
        for lane in self.lanes:
            lane.stop()
        # A release under way ends first, which would else leave one tower with more batches than another.
        with self._rounds_lock:
            return True

    def join(self, deadline_secs: float) -> list[ThreadState]:
        """Joins the feed threads; returns those that are still running after `deadline_secs`."""
        end = time.perf_counter() + deadline_secs
        for state in self.states:
            # One whose start a Ctrl-C has cut short cannot be joined yet; it ends as soon as it begins.
            if state.thread is not None and state.thread.is_alive():
                state.thread.join(max(0.0, end - time.perf_counter()))
        return [state for state in self.states if state.thread is not None and state.thread.is_alive()]

    def drain(self) -> None:
        """Stops reading from the sources; what has been read can still be taken, tower by tower."""
        for lane in self.lanes:
            lane.finish()
        if self.rounds is not None:
            # The towers do not go alone yet: a common step that not all have a batch for would take from the others.
            self.rounds.drain()

    def ask(self, towers: set[int]) -> None:
        """Notes which towers the step that begins takes from; some of them only may go on without the others.

        Raises:
          tf.errors.OutOfRangeError: one of several has no batch for a common step any more.
        """
        if towers:
            self._settle_rounds(lambda rounds: rounds.ask(len(towers) < len(self.sinks)))
            self._refuse_beyond_the_end(towers)

    def _refuse_beyond_the_end(self, towers: set[int]) -> None:
        """Refuses a common step that not all of `towers` have a batch for; nothing is taken.

        Where failed steps have taken from some towers and not from others, the one that has ended may have a batch
        left that the others cannot match: the step would take it, and wait for the others for ever.

        Raises:
          tf.errors.OutOfRangeError: one of the towers has no batch for a common step any more.
        """
        if self.rounds is None or len(towers) < 2:
            return
        final = towers if self.stopping else towers & self.rounds.final
        if not final:
            return
        ready = self.session.run({tower: self.sinks[tower].sink.size for tower in final})
        empty = [self.sinks[tower].sink.name for tower in sorted(final) if not ready[tower]]
        if empty:
            raise tf.errors.OutOfRangeError(
                None,
                None,
                f"End of data for common steps: {', '.join(empty)}. What the others have left, they give alone.",
            )

    def warn_of_leftovers(self) -> None:
        """Says which towers have staged batches that no whole round could use."""
        withheld = self.rounds.withheld() if self.rounds is not None else []
        if not (any(withheld) and self.rounds is not None and self.rounds.over):
            return
        left = ", ".join(f"{sink.sink.name}: {count}" for sink, count in zip(self.sinks, withheld, strict=True))
        warnings.warn(
            f"'{self.name}': the towers had unequal numbers of batches, and these are staged but were never taken: "
            f"{left}. After the OutOfRangeError of the common step, run each tower's own fetches until it ends.",
            LeftoverWarning,
            stacklevel=2,
        )

    def repair(self) -> None:
        """Puts right what a step that failed has left; call it between two steps."""
        repair_all([self])

    # Called by the lanes.

    def staged_one(self, tower: int) -> None:
        """Counts a staged batch, and releases the round that it completes."""
        self._settle_rounds(lambda rounds: rounds.staged_one(tower))

    def lane_ended(self, lane: Lane, sink: SinkRun) -> None:
        """Closes the sink behind its last lane, or leaves that to the rounds."""
        if not sink.lane_ended():
            return
        if self.rounds is None:
            sink.close()
        self._settle_rounds(lambda rounds: rounds.end(lane.tower))

    def _settle_rounds(self, event: Callable[[Rounds], list[tuple[int, int]]]) -> None:
        """Tells the rounds of an event, releases what is due then, and closes what is finished."""
        if self.rounds is None:
            return
        # One at a time: a tower must not be closed between the decision to release its last batch and the release.
        # Nothing in here waits for a taker.
        with self._rounds_lock:
            if self.stopping:
                return
            # What is closed before the rescue ends the steps that have nothing of that tower, and need none.
            for due in (event, Rounds.rescue):
                for tower, batches in due(self.rounds):
                    self.sinks[tower].release(batches)
                for tower in self.rounds.to_close():
                    self.sinks[tower].close()

    def _guarded(self, lane: LaneRun, state: ThreadState) -> None:
        try:
            lane.feed(state)
        except Stopped:
            pass
        except BaseException as error:
            if has_lost_tensorflow():
                # What would have to be stopped is the parent's.
                raise
            if not (self.stopping or self._session_is_gone(error)):
                self._failed(error, state)
        finally:
            state.now(thread_state.ENDED)

    def _failed(self, error: BaseException, state: ThreadState) -> None:
        with self._lock:
            if self.error is None:
                self.error = error
        logging.error("feed thread '%s' failed: %s: %s", state.name, type(error).__name__, text_of(error))
        if self._coord is not None:
            self._tell(self._coord, error)
        self._stop_with_others()

    def _tell(self, coord: Any, error: BaseException) -> None:
        """Asks for the stop because of `error`."""
        try:
            # As a tuple: outside an `except` block of its own the coordinator cannot find the traceback.
            coord.request_stop((type(error), error, error.__traceback__))
        except Exception:
            # The coordinator asks the exception for its text, which may raise.
            named = SourceError(f"'{self.name}': the source raised {type(error).__name__} {text_of(error)}")
            named.__cause__ = error
            coord.request_stop((SourceError, named, error.__traceback__))

    def _stop_with_coordinator(self) -> None:
        assert self._coord is not None
        self._coord.wait_for_stop()
        self._stop_with_others()

    def _stop_with_others(self) -> None:
        """Stops all that the coordinator stops; only itself, if there is none."""
        stop_all([run for run in self._canceller.runs if run is self or run._coord is self._coord is not None])

    def _session_is_gone(self, error: BaseException) -> bool:
        """Whether `error` only says that the user has closed the session under the thread."""
        return isinstance(error, (tf.errors.CancelledError, RuntimeError)) and is_closed(self.session)


def stop_all(runs: Sequence[FeedRun]) -> None:
    """Stops several runs; those that were started together by one run of the session."""
    for canceller in {id(run._canceller): run._canceller for run in runs}.values():
        # Of two threads that stop the same runs, one stops all of them.
        with canceller.stopping:
            begun = [run for run in runs if run._canceller is canceller and run._begin_to_stop()]
            try:
                canceller.cancel([sink for run in begun for sink in run.sinks])
            except (tf.errors.OpError, RuntimeError) as error:
                # The session is gone already, and with it everything that could wait.
                logging.vlog(1, "feed '%s': could not cancel: %s", begun[0].name, error)


def repair_all(runs: Sequence[FeedRun]) -> None:
    """Puts right what a step that failed has left in all `runs`, of one session; call it between two steps."""
    # Where a run is stopping, nobody waits for a place any more.
    runs = [run for run in runs if not run.stopping]
    if not runs:
        return
    session = runs[0].session
    repair([(sink.sink, sink.puts) for run in runs for sink in run.sinks], session)
    in_rounds = [run for run in runs if run.rounds is not None]
    meters = [[sink.sink.meter.value for sink in run.sinks] for run in in_rounds]
    for run, sums in zip(in_rounds, session.run(meters) if meters else (), strict=True):
        assert run.rounds is not None
        run.rounds.note_taken([Meter.reading(each).batches for each in sums])
    for run in runs:
        for lane in run.lanes:
            lane.wake()
