"""What a run does with an area."""

from __future__ import annotations

from dataclasses import dataclass


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
