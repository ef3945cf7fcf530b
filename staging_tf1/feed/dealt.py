"""Where a pipeline gets its batches in one session, if the workers share them dynamically."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from staging_tf1._tf import run_unwrapped
from staging_tf1.cluster.dealer import Dealer
from staging_tf1.feed.pipeline import Pipeline
from staging_tf1.feed.resume import Start
from staging_tf1.feed.supply import LeasedSupply, LocalSupply, Supply
from staging_tf1.graph.acked import Acked
from staging_tf1.graph.position import Position
from staging_tf1.sources import Source


@dataclass(frozen=True)
class _InTask:
    """What feeds a pipeline in this task."""

    supply: LeasedSupply
    # On the chief.
    dealer: Dealer | None

    def stop(self) -> None:
        if self.dealer is not None:
            self.dealer.stop()

    def give_back(self) -> None:
        self.supply.give_back()


def supplied(pipeline: Pipeline, starts: Sequence[Start], session: Any) -> list[Start]:
    """Return `starts` with a supply, if the workers share the batches dynamically. The chief begins to deal."""
    position = pipeline.position
    if position is None or position.skip is None:
        return list(starts)
    ((producer, first),) = starts
    assert isinstance(producer.source, Source)
    supply = _supply(pipeline, position, position.skip, producer.source.num_batches, session)
    return [(replace(producer, supply=supply), first)]


def _supply(
    pipeline: Pipeline, position: Position, skips: tuple[Any, Any], num_batches: int | None, session: Any
) -> Supply:
    sink, cluster, variable = pipeline.sinks[0], pipeline.cluster, position.saved[0]

    def skip(batch: int) -> None:
        run_unwrapped(session, skips[0], {skips[1]: batch})

    def look() -> tuple[int, Acked]:
        staged, cells = run_unwrapped(session, (sink.size, variable))
        return int(staged), Acked(cells)

    if cluster is None:
        return LocalSupply(Acked(run_unwrapped(session, variable)), num_batches, skip)
    supply = LeasedSupply(cluster, pipeline.name, look, skip)
    dealer = Dealer(cluster.member, pipeline.name, position.name, num_batches) if cluster.is_chief else None
    cluster.member.register(pipeline.name, _InTask(supply, dealer))
    if dealer is not None:
        dealer.start()
    return supply
