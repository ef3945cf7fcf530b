"""What has to be done around the runs of a plain `tf.Session`, which has no hooks."""

from __future__ import annotations

import threading
from typing import Any

from staging_tf1._tf import tf
from staging_tf1.feed.feed import Feed
from staging_tf1.feed.run import FeedRun, repair_all
from staging_tf1.fork import refuse_if_forked
from staging_tf1.lifecycle.classic import ClassicLoops
from staging_tf1.lifecycle.clock import StepClock
from staging_tf1.lifecycle.needs import Needs


class PlainSteps:
    """Lets towers go on alone, keeps classic loops from losing a batch, gives back what a failed run has kept.

    The session's own `run` is wrapped, until it is closed. Several threads may run the session at once.
    """

    def __init__(self, session: Any, feeds: list[Feed], clock: StepClock) -> None:
        pipelines = [feed.pipeline for feed in feeds if feed.pipeline is not None]
        runs = [feed.run_in(session) for feed in feeds]
        self._runs: list[FeedRun] = [run for run in runs if run is not None]
        self._towers = [run for run in self._runs if run.rounds is not None]
        self._needs = Needs(session.graph, pipelines)
        self._loops = ClassicLoops(session, feeds, clock)
        clock.on_close.append(self._loops.warn_of_leftovers)
        self._here = threading.local()
        self._inner = session.run
        session.run = self._run

    def _run(
        self, fetches: Any, feed_dict: Any | None = None, options: Any | None = None, run_metadata: Any | None = None
    ) -> Any:
        refuse_if_forked("A session")
        for run in self._towers:
            run.ask({tower for name, tower in self._needs.of(fetches, feed_dict) if name == run.name})
        more = self._loops.before(self._loops.plan(fetches, feed_dict))
        fed = {**(feed_dict or {}), **more} if more else feed_dict
        try:
            return self._inner(fetches, fed, options, run_metadata)
        except tf.errors.OpError:
            self._repair()
            raise

    def _repair(self) -> None:
        if getattr(self._here, "repairing", False):
            # It runs the session itself; what fails there must not begin another one.
            return
        self._here.repairing = True
        try:
            repair_all(self._runs)
        except (tf.errors.OpError, RuntimeError):
            # Stopped or closed: nobody waits for a place any more.
            return
        finally:
            self._here.repairing = False
