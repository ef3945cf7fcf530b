"""`ServerWatch`: for how long each parameter server has been silent, and how long this task waits for one."""

from __future__ import annotations

from absl import logging

from staging_tf1.cluster.clock import Clock
from staging_tf1.cluster.layout import Layout, Task
from staging_tf1.cluster.reach import cut_off, is_listening, unreachable
from staging_tf1.cluster.signs import Pulse, Signs
from staging_tf1.cluster.waiting import FIRST_LOG_SECS, Patience
from staging_tf1.errors import ClusterError

# How long a task that stood still for too long tries a parameter server whose process is gone.
_LEFT_SECS = 1.0
_SERVER_CURE = "Start {server} again, and then {task}: the chief restores the last checkpoint."


class ServerWatch:
    """Knows which parameter servers do not answer, breaks with them, and says so. It needs the `pulse` to notice."""

    def __init__(
        self,
        layout: Layout,
        signs: Signs,
        clock: Clock,
        pulse: Pulse,
        silence_secs: float,
        start_secs: float,
        beat_secs: float,
    ) -> None:
        self._layout, self._signs, self._clock, self._pulse = layout, signs, clock, pulse
        self._silence_secs, self._start_secs, self._beat_secs = silence_secs, start_secs, beat_secs
        # When the ledger answered last, and for how long this process had stood still then.
        self._answered, self._still_secs = clock.now(), 0.0
        # The servers with which this task has broken, and for how long they had been silent then.
        self._cut_off: dict[Task, float] = {}

    def restart(self) -> None:
        """Begin again, as if all servers had just answered."""
        self._cut_off.clear()
        self.note_answer()

    def note_answer(self) -> None:
        """Record that the ledger has answered."""
        self._answered, self._still_secs = self._clock.now(), self._clock.stood_still_secs

    def check(self) -> None:
        """Raise ClusterError if a server has been silent for longer than this task waits."""
        task = self._layout.task
        for server in self._silent():
            silent = self._silent_secs(server)
            for problem in unreachable(self._layout, [server]):
                raise ClusterError(
                    f"{task}: {problem}, and has been silent for {silent:.0f} s. "
                    f"{self.patience().reason or _SERVER_CURE.format(server=server, task=task)}"
                )
            if server in self._cut_off:
                raise ClusterError(
                    f"{task}: {server} at {self._layout.address(server)} answers again, after it was silent for "
                    f"{silent:.0f} s. Start {task} again. The batch of the step that was broken off may be counted "
                    f"without its gradient."
                )

    def break_with_silent(self) -> None:
        """Break the connections to servers that are silent. Otherwise a run that needs one would wait forever."""
        for server in self._silent():
            if unreachable(self._layout, [server]):
                if server not in self._cut_off:
                    self._cut_off[server] = self._silent_secs(server)
                    logging.warning("%s breaks with %s, which does not answer.", self._layout.task, server)
                cut_off(self._layout, server)

    def patience(self) -> Patience:
        """Return how long this task waits for a server that does not answer."""
        still = self._clock.stood_still_secs - self._still_secs
        # Its last sign of life was older than the moment from which it stood still.
        if still <= self._silence_secs - self._beat_secs:
            return Patience(self._start_secs)
        reason = (
            f"This process stood still for {still:.0f} s before, and the others do not wait longer than "
            f"{self._silence_secs:g} s for a silent task: the run may have ended without it. Start the whole cluster "
            f"again to train what {self._layout.task} has left."
        )
        # A server that only stands still, too, may go on.
        gone = not all(is_listening(self._layout, server) for server in self._layout.servers)
        return Patience(
            min(self._silence_secs, _LEFT_SECS) if gone else max(self._silence_secs, FIRST_LOG_SECS), reason
        )

    def _silent(self) -> list[Task]:
        """Return the servers that have been silent for longer than this task waits."""
        most = self.patience().secs
        others = [task for task in self._layout.servers if task != self._layout.task and self._pulse.is_beating]
        return [task for task in others if task in self._cut_off or self._silent_secs(task) > most]

    def _silent_secs(self, server: Task) -> float:
        """Return for how long a server has been silent, as far as this task knows."""
        if server in self._cut_off:
            return self._cut_off[server]
        if server == self._layout.servers[0]:
            return self._clock.now() - self._answered
        # One that does not run this package gives no signs.
        return self._signs.silent_secs(server) if self._signs.knows(server) else 0.0
