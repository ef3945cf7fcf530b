"""What one session of a soak case did."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


class UserError(Exception):
    """What the training loop raises."""


@dataclass
class Outcome:
    """Noted by the loop; judged by the invariants."""

    # For each tower the ids of each batch that a step returned.
    got: list[list[list[int]]]
    # Exceptions that sources have raised, in all sessions of the graph.
    raised: list[Exception]
    steps: int = 0
    failed_steps: int = 0
    # Whether every tower came to its end of data.
    ended: bool = False
    drained: bool = False
    # Whether Ctrl-C came, and whether the session was lost and made anew.
    interrupted: bool = False
    recovered: bool = False
    user_error: UserError | None = None
    # What left the session.
    error: BaseException | None = None
    stats: list[Any] = field(default_factory=list)
    threads_left: list[str] = field(default_factory=list)

    def begin_again(self) -> None:
        """Forget the steps of a session that is lost: the next one takes them again."""
        self.recovered = True
        self.failed_steps = 0
        for got in self.got:
            got.clear()
