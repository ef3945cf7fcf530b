"""Where a session's feeding begins: at the position that its checkpoint holds, in the same order as before."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from absl import logging

from staging_tf1.errors import ResumeError
from staging_tf1.feed.lane import Lane
from staging_tf1.graph.pipeline import Pipeline
from staging_tf1.graph.position import Position
from staging_tf1.sources import Source

# What to do when a checkpoint was saved with another source.
RESUME_MODES = ("exact", "ignore", "restart")


def resume_points(pipeline: Pipeline, lanes: tuple[Lane, ...], session: Any) -> list[tuple[Lane, int]]:
    """Each lane, with the source as it was when the checkpoint was saved, and the batch to begin with.

    Raises:
      ResumeError: the checkpoint was saved with another source; the message has both values.
    """
    return [
        _resume_point(pipeline, lane, tower.position, session)
        for lane, tower in zip(lanes, pipeline.towers, strict=True)
    ]


def _resume_point(pipeline: Pipeline, lane: Lane, position: Position | None, session: Any) -> tuple[Lane, int]:
    if position is None:
        return lane, 0
    if not session.run(position.has_value):
        session.run(position.initializer)
    batches, saved = position.load(session)
    if pipeline.resume == "restart" or (batches == 0 and saved == position.fingerprint):
        position.store(session, 0)
        return lane, 0
    source = _as_saved(lane.source, saved)
    present = position.fingerprint if source is lane.source or source is None else source.fingerprint()
    if present != saved and batches:
        if pipeline.resume == "exact":
            raise ResumeError(_difference(lane.name, batches, saved, present))
        logging.warning("%s resume='ignore' goes on all the same.", _difference(lane.name, batches, saved, present))
        position.store(session, batches)
    return replace(lane, source=source), batches


def _as_saved(source: Any, saved: dict[str, int | str]) -> Any:
    """The source with the seed of the checkpoint, if its own was drawn and not given."""
    if isinstance(source, Source) and getattr(source, "seed_was_drawn", False):
        seed = saved.get("seed", -1)
        if isinstance(seed, int) and seed >= 0:
            return source.with_seed(seed)
    return source


def _difference(name: str, batches: int, saved: dict[str, int | str], present: dict[str, int | str]) -> str:
    parts = [
        f"{key} was {saved.get(key, 'not saved')!r}, is {present.get(key, 'not there')!r}"
        for key in sorted({*saved, *present})
        if saved.get(key) != present.get(key)
    ]
    return (
        f"'{name}': the checkpoint holds position {batches} in another order of batches: {'; '.join(parts)}. Give the "
        f"source the same arguments as before, or staged(..., resume='ignore') to go on at that position in the new "
        f"order, or resume='restart' to begin with the first batch.{_cost_of_shards(batches, saved, present)}"
    )


def _cost_of_shards(batches: int, saved: dict[str, int | str], present: dict[str, int | str]) -> str:
    """What going on costs where the shards are others: records that all of them together had read at the position."""
    differ = {key for key in {*saved, *present} if saved.get(key) != present.get(key)}
    if "shard_count" not in differ or differ - {"shard_count", "shard_index", "batch_size"}:
        return ""
    if not all({"shard_count", "batch_size"} <= set(each) for each in (saved, present)):
        return ""
    had, now = (batches * int(each["shard_count"]) * int(each["batch_size"]) for each in (saved, present))
    cost = "" if had == now else f" {abs(now - had)} records {'are left out' if now > had else 'come twice'}"
    return (
        f" At position {batches} all shards before had read {had} records, those now would have read {now}: with "
        f"resume='ignore'{cost or ' none is left out or comes twice'} as long as all batches were full."
    )
