"""Everything that a rule may ask about one file. Each part is computed when a rule first asks for it."""

from __future__ import annotations

import functools
from dataclasses import dataclass

from staging_tf1.legacy.lint.flow.calls import CallGraph
from staging_tf1.legacy.lint.flow.escapes import Escapes
from staging_tf1.legacy.lint.flow.graph import bit, numbers
from staging_tf1.legacy.lint.flow.marks import Marks
from staging_tf1.legacy.lint.flow.program import Area, Program
from staging_tf1.legacy.lint.flow.sessions import Run, Sessions
from staging_tf1.legacy.lint.flow.threads import Threads
from staging_tf1.legacy.lint.flow.training import TrainingLoops
from staging_tf1.legacy.lint.model.reading import Reading


@dataclass(frozen=True, slots=True)
class Moves:
    """Whether a run puts into an area and takes from it: perhaps, and certainly."""

    may_put: bool
    puts: bool
    may_get: bool
    gets: bool

    @property
    def is_certain(self) -> bool:
        """Whether there is no doubt about either."""
        return self.may_put == self.puts and self.may_get == self.gets


class Analysis:
    """The model of one file, and what flows through it."""

    def __init__(self, path: str, lines: list[str], reading: Reading) -> None:
        self.program = Program(path, lines, reading)
        self.values = self.program.values
        self.marks = Marks(self.program)
        self.sessions = Sessions(self.program, self.marks)
        self.calls = CallGraph(self.program)
        self.training = TrainingLoops(self.program, self.sessions, self.calls)
        self.threads = Threads(self.program, self.sessions, self.calls)

    @functools.cached_property
    def escapes(self) -> Escapes:
        """What other code may take hold of."""
        return Escapes(self.program, self.marks, self.sessions, self.calls)

    def runs_of(self, area: Area) -> list[tuple[Run, Moves]]:
        """Return the runs that may touch an area, with what they do."""
        return [(run, self._moves(run, area)) for run in self._runs_of.get(area.number, ())]

    @functools.cached_property
    def _runs_of(self) -> dict[int, list[Run]]:
        runs: dict[int, list[Run]] = {}
        for run in self.sessions.runs:
            for number in numbers(run.may):
                runs.setdefault(number, []).append(run)
        return runs

    def _moves(self, run: Run, area: Area) -> Moves:
        put, get = bit(area, "put"), bit(area, "get")
        fed = self._feeds_the_get(run, get)
        return Moves(bool(run.may & put), bool(run.must & put), bool(run.may & get), bool(run.must & get) and not fed)

    def _feeds_the_get(self, run: Run, get: int) -> bool:
        """Whether a run may feed the tensors of the get, which then takes nothing from the area."""
        node = run.call.node
        feed = next((one.value for one in node.keywords if one.arg == "feed_dict"), None)
        if feed is None and len(node.args) > 1:
            feed = node.args[1]
        if feed is None:
            return False
        keys = getattr(feed, "keys", None)
        if keys is None or None in keys:
            return True  # what is fed is decided elsewhere
        return any(self.marks.may(key, run.call.scope) & get for key in keys)

    @functools.cached_property
    def clears_by_itself(self) -> bool:
        """Whether a StagingSession or StagingHook clears the areas."""
        ours = (name for name in self.program.names if name.startswith("staging_tf1.Staging"))
        return any("Area" not in name for name in ours)
