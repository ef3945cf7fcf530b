"""What must hold after every session, whatever went wrong in it."""

from __future__ import annotations

import tensorflow.compat.v1 as tf
from soak.outcome import Outcome
from soak.plan import Plan
from soak.sources import BAD_RECORD, good_batches

from staging_tf1.errors import SourceError, SpecError


def check(plan: Plan, outcome: Outcome, begin: list[int]) -> None:
    """Raise AssertionError unless the session kept every promise.

    Args:
      plan: what was to happen.
      outcome: what happened.
      begin: for each tower the batches that earlier sessions have consumed, where this one goes on.
    """
    assert not outcome.threads_left, f"threads left: {outcome.threads_left}"
    check_error(plan, outcome)
    if outcome.ended and outcome.drained and outcome.error is None:
        check_drained(plan, outcome)
    if plan.by_records:
        check_records(plan, outcome)
        return
    good = good_batches(plan)
    complete = outcome.ended and not outcome.drained and outcome.error is None
    for tower, (got, batches) in enumerate(zip(outcome.got, good)):
        check_tower(plan, outcome, got, batches[begin[tower] :])
    if complete and plan.is_staged and outcome.stats:
        check_account(plan, outcome, [batches[at:] for batches, at in zip(good, begin)])
    if complete:
        missing = sum(map(len, good)) - sum(begin) - sum(map(len, outcome.got))
        assert 0 <= missing <= outcome.failed_steps * plan.towers, f"{missing} batches are missing"


def check_error(plan: Plan, outcome: Outcome) -> None:
    """Who gets which exception."""
    error = outcome.error
    if outcome.interrupted and error is not None:
        assert isinstance(error, KeyboardInterrupt) or is_the_sources(plan, outcome, error), f"got {error!r}"
    elif error is None:
        # One that came as the loop was ending has nothing left to end.
        assert outcome.ended or not outcome.interrupted, "Ctrl-C is gone"
        fatal = plan.fault in ("raise", "misfit") and outcome.ended and not outcome.drained
        assert not fatal, "the source failed, and nobody was told"
        assert outcome.user_error is None, "the loop's exception is gone"
    elif outcome.user_error is not None and plan.way in ("session", "step_fn", "callable"):
        assert error is outcome.user_error, f"got {error!r}"
    else:
        # While they are closed, a MonitoredSession and a coordinator raise what a thread has raised.
        assert error is outcome.user_error or is_the_sources(plan, outcome, error), f"got {error!r}"


def is_the_sources(plan: Plan, outcome: Outcome, error: BaseException | None) -> bool:
    """Whether the source was to blame, and `error` is its very own, or says what that was."""
    if plan.fault == "misfit":
        return isinstance(error, SpecError) and "'double' got float64" in str(error)
    fatal = plan.fault == "raise" or plan.max_ignored is not None
    if plan.from_dataset:
        return fatal and isinstance(error, tf.errors.InvalidArgumentError) and BAD_RECORD in error.message
    # A signal is raised as another error, by Python where a generator lets it through.
    raised = error if plan.error == "BrokenDiskError" else getattr(error, "__cause__", None)
    if plan.error != "BrokenDiskError" and not isinstance(error, SourceError):
        return fatal and plan.error == "StopIteration" and type(error) is RuntimeError
    return fatal and any(raised is each for each in outcome.raised)


def check_tower(plan: Plan, outcome: Outcome, got: list[list[int]], batches: list[list[int]]) -> None:
    """Each batch at most once, whole, and in order where that was promised."""
    losses = outcome.failed_steps > 0
    if not plan.in_order:
        assert len({tuple(ids) for ids in got}) == len(got) and all(ids in batches for ids in got), f"{got}"
    elif losses:
        rest = iter(batches)
        assert all(ids in rest for ids in got), f"got {got} of {batches}"
    else:
        assert got == batches[: len(got)], f"got {got} of {batches}"


def check_account(plan: Plan, outcome: Outcome, good: list[list[list[int]]]) -> None:
    """At the end of the data every batch has been in a step: one that returned, or one that failed."""
    # In the order of delivery, which is the order of the batches where that is promised.
    for batches, got, record in zip(good, outcome.got, outcome.stats[-plan.towers :]):
        assert record.batches == len(batches), f"{record.name} counts {record.batches} of {len(batches)}"
        assert record.failed == len(batches) - len(got), "an account of every batch"
        if plan.in_order:
            left = [ids for number, ids in enumerate(batches) if number not in record.failed_batches]
            assert got == left, "the right account"


def check_records(plan: Plan, outcome: Outcome) -> None:
    """The same for queues of records, which a step takes in batches of its own."""
    good = [n for ids in good_batches(plan)[0] for n in ids]
    got = [n for ids in outcome.got[0] for n in ids]
    assert len(set(got)) == len(got) and set(got) <= set(good), f"got {got} of {good}"
    partial = [n for n, ids in enumerate(outcome.got[0], 1) if len(ids) != plan.taken]
    assert len(partial) <= 1, "one batch may be a partial one"
    # Of several threads that stage what they have dequeued, another may be last.
    one_by_one = plan.consumers == 1 and (plan.kind != "classic-shuffle" or plan.threads == 1)
    assert not one_by_one or partial in ([], [len(outcome.got[0])]), "the last one"
    if not plan.shuffles and plan.in_order:
        assert got == sorted(got) and (outcome.failed_steps or got == good[: len(got)]), "in order"
    if outcome.ended and not outcome.drained and outcome.error is None:
        assert len(good) - len(got) <= outcome.failed_steps * plan.taken, f"{len(good) - len(got)} records are missing"


def check_drained(plan: Plan, outcome: Outcome) -> None:
    """What has been read from the source before it was drained has been in a step."""
    if plan.from_dataset or outcome.failed_steps:
        # Nobody counts what a dataset has read.
        return
    # Of `classic` the runner's, which come before those of the areas that it feeds.
    read = sum(record.records for record in outcome.stats[: 1 if "classic" in plan.kind else plan.towers])
    got = sum(len(ids) for batches in outcome.got for ids in batches)
    assert got == read, f"{read} records were read, {got} were in a step"
