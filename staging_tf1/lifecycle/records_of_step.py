"""`records_of_step()`: which records were in a step, from what a checkpoint holds."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from staging_tf1._tf import tf
from staging_tf1.arguments import INT64_MAX, refuse, shown, whole
from staging_tf1.errors import CheckpointError, ResumeError, StagingWarning, warn
from staging_tf1.feed.resume import differences
from staging_tf1.graph.position import DYNAMIC, SHARE, Fingerprint, Saved, parsed_position
from staging_tf1.lifecycle.export import last_checkpoint
from staging_tf1.sources.records import RecordOrigin, RecordSource
from staging_tf1.sources.reshard import completed
from staging_tf1.sources.spans import Spans, next_kept

_CALLER = "records_of_step()"
_STEP = "global_step"


class StepRecords(NamedTuple):
    """The records of one tower in one step.

    Attributes:
      batch: the number of the batch in the tower's shard of the source.
      record_ids: the numbers of its records, as `without` takes them: int64 [records].
      origins: where each record comes from. See `RecordSource.record_origins`.
    """

    batch: int
    record_ids: np.ndarray[Any, Any]
    origins: list[tuple[RecordOrigin, ...]]


def records_of_step(
    source: RecordSource, checkpoint: str | os.PathLike[str] | Mapping[str, Any], step: int, *, name: str | None = None
) -> list[StepRecords]:
    """Return which records a step of a run had, for each tower.

    Step 1 is the first. A step before the checkpoint is counted back from its position, a later one forward. This is
    exact if each of the steps in between took a batch from each tower and added 1 to the global step. So of several
    checkpoints, take the one next to the step. A `StagingWarning` says if the run as a whole has not counted so: after
    bad batches, failed steps that the program caught, or a change of what is left out.

    Args:
      source: the source of the run, as it was given to `staged()`. A seed that it drew is taken from the checkpoint.
      checkpoint: the path of a checkpoint (`model.ckpt-100`) or of one of its files, or a folder, for the last
        checkpoint in it; or the values that a checkpoint holds, by name: `NAME/position`, `NAME/fingerprint` and
        `global_step`.
      step: the global step after the step, from 1 on.
      name: the name of the pipeline; None if the checkpoint has only one.

    Returns:
      For each tower, in a cluster for those of all workers, a named tuple: `batch`, the number of its batch in its
      shard; `record_ids`, the numbers of the records, as `without` takes them; and `origins`, where each comes from, as
      in `RecordSource.record_origins`.

    Raises:
      CheckpointError: the checkpoint has no such pipeline, or no global step, or is damaged.
      IndexError: the data end before the step, or the run began after it.
      ResumeError: the checkpoint was saved with another source.
      TypeError, ValueError: an argument is invalid; or the workers have taken their batches in an order that no
        checkpoint has: with `share="dynamic"`, or in an asynchronous cluster.

    >>> import tempfile
    >>> source = ArraySource(np.arange(100) * 10, batch_size=4, shuffle=True, seed=1)
    >>> folder = tempfile.mkdtemp()
    >>> with tf.Graph().as_default():
    ...     batch = staged(source, name="train")
    ...     train = tf.group(batch, tf.train.get_or_create_global_step().assign_add(1))
    ...     with StagingSession(checkpoint_dir=folder) as sess:
    ...         seen = [sess.run([batch, train])[0].tolist() for _ in range(5)]
    >>> (third,) = records_of_step(source, folder, 3)
    >>> third.batch, (third.record_ids * 10).tolist() == seen[2]
    (2, True)
    >>> source.without(third.record_ids).record_ids(2)
    array([], dtype=int64)
    """
    if not isinstance(source, RecordSource):
        refuse(_CALLER, "source", source, "a source with numbered records, such as ArraySource")
    step = whole(_CALLER, "step", step, 1, INT64_MAX, "the global step after the step")
    held = _Held(checkpoint)
    name = held.pipeline(name)
    saved, global_step = held.position(name), held.global_step()
    source = _as_saved(source, saved, name)
    towers = len(saved.positions)
    shards = [source.shard(tower, towers) for tower in range(towers)] if towers > 1 else [source]
    runs = [_Run(shard, _skipped(saved), position) for shard, position in zip(shards, saved.positions, strict=True)]
    _check_counts(name, global_step, runs)
    batches = [run.batch_of(step - global_step, step) for run in runs]
    return [
        StepRecords(batch, shard.record_ids(batch), shard.record_origins(batch))
        for shard, batch in zip(shards, batches, strict=True)
    ]


class _Held:
    """What a checkpoint holds."""

    def __init__(self, checkpoint: Any) -> None:
        if isinstance(checkpoint, Mapping):
            self._shown, self._names, self._get = "the checkpoint", set(checkpoint), checkpoint.__getitem__
            return
        saved = last_checkpoint(checkpoint, _CALLER)
        reader = tf.train.load_checkpoint(saved)
        self._shown, self._names = f"checkpoint '{saved}'", set(reader.get_variable_to_shape_map())
        self._get = reader.get_tensor

    def pipeline(self, name: Any) -> str:
        """Return the name of the pipeline."""
        if name is not None and not isinstance(name, str):
            refuse(_CALLER, "name", name, "the name of a pipeline, a string, or None")
        there = sorted(
            each.removesuffix("/position")
            for each in self._names
            if isinstance(each, str) and each.endswith("/position") and f"{each[:-8]}fingerprint" in self._names
        )
        listed = ", ".join(map(repr, there))
        if name is None and len(there) > 1:
            raise ValueError(f"{_CALLER}: {self._shown} has several pipelines: {listed}. Pass name=.")
        if not there:
            raise CheckpointError(
                f"{_CALLER}: {self._shown} has no position of a pipeline, expected NAME/position and NAME/fingerprint. "
                f"Only a pipeline of staged() with a source has one, and only savers made after staged() save it."
            )
        if name is not None and name not in there:
            raise CheckpointError(f"{_CALLER} got name={shown(name)}, expected a pipeline of {self._shown}: {listed}.")
        return there[0] if name is None else name

    def position(self, name: str) -> Saved:
        """Return the position of a pipeline."""
        values = [np.asarray(self._get(f"{name}/{part}")) for part in ("position", "fingerprint")]
        return parsed_position(name, (values[0], values[1].item()))

    def global_step(self) -> int:
        """Return the global step."""
        if _STEP not in self._names:
            raise CheckpointError(
                f"{_CALLER}: {self._shown} has no '{_STEP}'. Make one with tf.train.get_or_create_global_step(), and "
                f"add 1 to it in each step."
            )
        return int(self._get(_STEP))


def _as_saved(source: RecordSource, saved: Saved, name: str) -> RecordSource:
    """Return the source with the saved seed. Raises unless the position is one in its order."""
    share = saved.fingerprint.get(SHARE)
    if share is not None:
        order = "take batches out of order" if share == DYNAMIC else "have inputs of their own"
        raise ValueError(
            f"{_CALLER}: '{name}' was saved with share='{share}', whose workers {order}: no step number tells which "
            f"batch a step had. The error of a failed step and sess.stats() name it."
        )
    seed = saved.fingerprint.get("seed")
    if source.seed_was_drawn and isinstance(seed, int) and seed >= 0:
        source = source.with_seed(seed)
    present: Fingerprint = source.fingerprint()
    before = completed(saved.fingerprint, present, saved.positions)
    before.pop("skip", None)
    different = differences(before, present)
    if different:
        raise ResumeError(
            f"{_CALLER}: '{name}' was saved with another source than {source!r}: {'; '.join(different)}. Pass the "
            f"source as it was in that run."
        )
    return source


def _skipped(saved: Saved) -> Spans:
    try:
        return Spans.parsed(str(saved.fingerprint.get("skip", "")))
    except ValueError as error:
        raise CheckpointError(f"{_CALLER}: the saved skip= is damaged: {saved.fingerprint['skip']!r}") from error


class _Run:
    """What a tower has consumed: the batches of its `shard` before `position`, except those that are left out."""

    def __init__(self, shard: RecordSource, skip: Spans, position: int) -> None:
        self._shard, self._skip, self._position = shard, skip, position

    def consumed(self) -> int:
        """Return how many batches steps have had."""
        if not self._shard.leaves_out:
            return self._skip.outside_before(self._position)
        return sum(1 for _ in self._backwards())

    def batch_of(self, offset: int, step: int) -> int:
        """Return the batch of the step that is `offset` steps after the last one; `step` is its number."""
        if self._shard.leaves_out:
            batch = self._walked(offset)
        else:
            place = self._skip.outside_before(self._position) - 1 + offset
            batch = self._skip.outside(place) if place >= 0 else None
        end = self._shard.num_batches
        if batch is None or (end is not None and batch >= end):
            why = "the data end before" if offset > 0 else "the run began after"
            raise IndexError(f"{_CALLER}: step {step} had no batch of {self._shard!r}: {why} it.")
        return batch

    def _walked(self, offset: int) -> int | None:
        """The same, batch by batch: which of them have no record is not known before."""
        if offset <= 0:
            return next(itertools.islice(self._backwards(), -offset, None), None)
        batch: int | None = self._position - 1
        for _ in range(offset):
            batch = None if batch is None else next_kept(self._shard, self._skip, batch + 1, self._shard.num_batches)
        return batch

    def _backwards(self) -> Iterator[int]:
        """Yield the batches that steps have had, the last one first."""
        for batch in range(self._position - 1, -1, -1):
            if batch not in self._skip and not self._shard.is_left_out(batch):
                yield batch


def _check_counts(name: str, global_step: int, runs: list[_Run]) -> None:
    """Check that each step took a batch from each tower."""
    consumed = [run.consumed() for run in runs]
    if all(count == global_step for count in consumed):
        return
    if len(runs) > 1 and sum(consumed) == global_step:
        raise ValueError(
            f"{_CALLER}: each of {global_step} steps had a batch of one tower of '{name}' only, as in an asynchronous "
            f"cluster: the towers had {', '.join(map(str, consumed))}. No step number tells which. The error of a "
            f"failed step and sess.stats() name its batch."
        )
    warn(
        f"{_CALLER}: the checkpoint is at step {global_step}, and {', '.join(map(str, consumed))} batches of '{name}' "
        f"have been consumed. The batch is counted from the checkpoint on, as if each step between had one.",
        StagingWarning,
    )
