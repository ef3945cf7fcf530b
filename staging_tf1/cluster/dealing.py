"""`Dealing`: which batches which worker gets next, when the workers share a source dynamically. Pure.

The dealer's round is: read the ledger, remove the fences of silent workers, read which batches have been acknowledged,
then write what `Dealing.round` returns. In this order, so that a batch is given to a second worker only after the first
one can no longer acknowledge it.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from staging_tf1.graph.acked import Acked


@dataclass
class Lease:
    """What one worker has been given, and has not wholly acknowledged."""

    # The worker's fence. With another one, it is another process, or has begun again. "" if nobody has it.
    fence_key: str
    # How many batches it has been given with this fence.
    given: int = 0
    # Each with the number of batches given before it, its first batch, and the batch after its last.
    spans: list[tuple[int, int, int]] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        """Return what the ledger holds."""
        return {"token": self.fence_key, "given": self.given, "spans": list(self.spans)}

    @classmethod
    def from_json(cls, entry: Mapping[str, Any]) -> Lease:
        """Read what `to_json` returned."""
        return cls(entry["token"], entry["given"], [tuple(span) for span in entry["spans"]])


class Names:
    """The names of the ledger's entries for one pipeline."""

    def __init__(self, pipeline: str) -> None:
        # Written by the chief, as are the leases: the run, and how dealing has ended.
        self.deal = f"deal/{pipeline}"
        self._pipeline = pipeline

    def ask(self, worker: str) -> str:
        """Written by the worker: its fence, and how many batches it wants to have been given with it."""
        return f"ask/{self._pipeline}/{worker}"

    def lease(self, worker: str) -> str:
        """Written by the chief: a `Lease`."""
        return f"lease/{self._pipeline}/{worker}"

    @staticmethod
    def fence(worker: str) -> str:
        """Written by the worker, removed by the chief: see `Member`."""
        return f"fence/{worker}"


class Dealing:
    """Deals out the batches of one source among the workers.

    Its whole state is in `acked`, which is read after the `entries` of the ledger, and in those. So another process can
    continue at any time.
    """

    def __init__(
        self, names: Names, workers: Iterable[str], entries: Mapping[str, Any], acked: Acked, num_batches: int | None
    ) -> None:
        self._names, self._workers = names, list(workers)
        self._num_batches, self._window = num_batches, int(acked.cells.size)
        self._leases: dict[str, Lease] = {}
        # By batch, the worker that has it: batches that are given and not acknowledged.
        self._holders: dict[int, str] = {}
        # Workers whose leases are given back in the next round.
        self._leaving: set[str] = set()
        for worker in self._workers:
            entry = entries.get(names.lease(worker))
            if entry is not None and entry["token"]:
                self._leases[worker] = Lease.from_json(entry)
        # The batches from here on have never been given.
        self._next = max([acked.end, *(end for lease in self._leases.values() for _, _, end in lease.spans)])
        unacked = set(acked.unacked(self._next))
        for worker, lease in self._leases.items():
            given = (batch for _, first, end in lease.spans for batch in range(first, end))
            self._holders |= dict.fromkeys(unacked.intersection(given), worker)
        free = unacked.difference(self._holders)
        # Batches that were given before, and are nobody's. Sorted, because it is a heap.
        self._free = sorted(batch for batch in free if num_batches is None or batch < num_batches)

    @property
    def held(self) -> list[int]:
        """The batches that are given and, as far as is known, not acknowledged."""
        return list(self._holders)

    @property
    def over(self) -> bool:
        """Whether every batch is acknowledged."""
        return (
            self._num_batches is not None and self._next >= self._num_batches and not self._free and not self._holders
        )

    def note(self, acked: Iterable[int]) -> None:
        """Record that those of `held` are acknowledged."""
        for worker in {self._holders.pop(batch) for batch in acked}:
            lease = self._leases[worker]
            lease.spans = [span for span in lease.spans if any(map(self._holders.__contains__, range(*span[1:])))]

    def leaving(self, entries: Mapping[str, Any], silent: Iterable[str]) -> list[str]:
        """Return the workers among `silent` whose steps must fail from now on: they have a lease and a fence."""
        return [worker for worker in silent if worker in self._leases and self._names.fence(worker) in entries]

    def round(self, entries: Mapping[str, Any]) -> dict[str, Any]:
        """Take leases back, and give what is asked for. Return the entries to write, all at once.

        Args:
          entries: of the ledger, without the fences that have been removed.
        """
        changed = set()
        for worker in list(self._leases):
            if worker in self._leaving:
                self._take_back(worker)
                changed.add(worker)
            elif self._is_over(worker, entries):
                # In the next round: a step that has passed the fence acknowledges its batch within milliseconds.
                self._leaving.add(worker)
        # Two batches of one cell must not be under way at once. Giving does not change which one is the first.
        end = min([*self._free[:1], *self._holders, self._next]) + self._window
        if self._num_batches is not None:
            end = min(end, self._num_batches)
        for worker in self._workers:
            if worker not in self._leaving and self._give(worker, entries, end):
                changed.add(worker)
        none = Lease("")
        return {self._names.lease(worker): self._leases.get(worker, none).to_json() for worker in changed}

    def _is_over(self, worker: str, entries: Mapping[str, Any]) -> bool:
        """Whether the worker can no longer acknowledge what it has been given."""
        fence_key = self._leases[worker].fence_key
        ask = entries.get(self._names.ask(worker), {})
        closed = ask.get("token") == fence_key and ask["closed"]
        return bool(closed or entries.get(self._names.fence(worker)) != fence_key)

    def _take_back(self, worker: str) -> None:
        for _, first, end in self._leases.pop(worker).spans:
            for batch in range(first, end):
                if self._holders.pop(batch, None) is not None:
                    heapq.heappush(self._free, batch)
        self._leaving.discard(worker)

    def _give(self, worker: str, entries: Mapping[str, Any], end: int) -> bool:
        ask = entries.get(self._names.ask(worker))
        if ask is None or ask["closed"] or entries.get(self._names.fence(worker)) != ask["token"]:
            return False
        lease = self._leases.get(worker) or Lease(ask["token"])
        batches = self._draw(ask["total"] - lease.given, end)
        if not batches:
            return False
        self._leases[worker] = lease
        self._holders |= dict.fromkeys(batches, worker)
        for first, after in _spans(batches):
            lease.spans.append((lease.given, first, after))
            lease.given += after - first
        return True

    def _draw(self, most: int, end: int) -> list[int]:
        """Return up to `most` batches before `end` that are nobody's, those that were given before first."""
        drawn: list[int] = []
        while len(drawn) < most and self._free and self._free[0] < end:
            drawn.append(heapq.heappop(self._free))
        new = max(0, min(most - len(drawn), end - self._next))
        drawn += range(self._next, self._next + new)
        self._next += new
        return drawn


def _spans(batches: Iterable[int]) -> list[tuple[int, int]]:
    """Return the unbroken parts of an ascending sequence.

    >>> _spans([2, 3, 7])
    [(2, 4), (7, 8)]
    """
    spans: list[tuple[int, int]] = []
    for batch in batches:
        if spans and spans[-1][1] == batch:
            spans[-1] = (spans[-1][0], batch + 1)
        else:
            spans.append((batch, batch + 1))
    return spans
