"""The order in which handlers act around a run, whatever raises."""

from __future__ import annotations

import gc
import itertools
import re
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

import staging_tf1 as staging
from staging_tf1.feed.chain import Chain, Handler, Look, Stage
from staging_tf1.feed.feeding import feeding_of
from staging_tf1.sources import ArraySource

NAMES = ("outer", "middle", "inner")


class Planned(Exception):
    """Raised by a handler or by the run."""


class Noted(Handler):
    """Writes down what it is told, and raises where it is told to."""

    def __init__(self, name: str, told: list[Any], raises: set[Any]) -> None:
        self._name, self._told, self._raises = name, told, raises

    def stage(self, look: Look) -> Stage:
        return Stage(*(self._at(when) for when in ("before", "after", "failed")))

    def _at(self, when: str) -> Any:
        def called(run: Any, error: BaseException | None = None) -> None:
            self._told.append((when, self._name) if error is None else (when, self._name, str(error)))
            if (when, self._name) in self._raises:
                raise Planned(f"{when} {self._name}")

        return called

    def close(self) -> None:
        self._told.append(("close", self._name))


def expected(raises: set[Any]) -> tuple[list[Any], str]:
    """What is told in which order, and what is raised: written down without a chain."""
    told: list[Any] = []
    entered: list[str] = []
    error = ""
    for name in NAMES:
        told.append(("before", name))
        if ("before", name) in raises:
            error = f"before {name}"
            break
        entered.insert(0, name)
    if not error:
        error = "the run" if "the run" in raises else ""
    while entered:
        name = entered.pop(0)
        if not error:
            told.append(("after", name))
            error = f"after {name}" if ("after", name) in raises else ""
        else:
            told.append(("failed", name, error))
            error = f"failed {name}" if ("failed", name) in raises else error
    return told, error


PLACES = ["the run", *itertools.product(("before", "after", "failed"), NAMES)]
CASES = [set(), *({place} for place in PLACES), *(set(pair) for pair in itertools.combinations(PLACES, 2))]


@pytest.mark.parametrize("raises", CASES, ids=str)
def test_who_has_begun_hears_of_the_end_in_reverse(graph: Any, raises: set[Any]) -> None:
    tf.constant(1, name="one")
    told: list[Any] = []
    with tf.Session() as sess:
        chain = Chain(sess)
        chain.install([Noted(name, told, raises) for name in NAMES])

        def call(puts: Any, feeds: Any) -> str:
            if "the run" in raises:
                raise Planned("the run")
            return "done"

        wanted, error = expected(raises)
        plan = chain.plan("one:0", None)
        if error:
            with pytest.raises(Planned) as caught:
                chain.execute(plan, "one:0", None, call)
            assert str(caught.value) == error
        else:
            assert chain.execute(plan, "one:0", None, call) == "done"
        assert told == wanted
        told.clear()
        chain.close()
        assert told == [("close", name) for name in reversed(NAMES)] and sess.run("one:0") == 1


def test_all_handlers_are_told_the_cause(graph: Any) -> None:
    told: list[Any] = []
    with tf.Session() as sess:
        chain = Chain(sess)
        chain.install([Noted(name, told, set()) for name in NAMES])

        def raise_cause(run: Any, error: BaseException) -> None:
            raise Planned("the cause") from error

        def call(puts: Any, feeds: Any) -> None:
            raise tf.errors.CancelledError(None, None, "what TensorFlow made of it")

        chain.raise_cause = raise_cause
        with pytest.raises(Planned, match="the cause") as caught:
            chain.execute(chain.plan([], None), [], None, call)
        assert isinstance(caught.value.__cause__, tf.errors.CancelledError)
        assert told[3:] == [("failed", name, "the cause") for name in reversed(NAMES)]


def test_an_error_does_not_keep_its_run_alive(graph: Any) -> None:
    class Fetched:
        pass

    with tf.Session() as sess:
        chain = Chain(sess)
        chain.install([Noted("a", [], set())])

        def fails(puts: Any, feeds: Any) -> None:
            raise Planned("the run")

        def made() -> weakref.ref[Any]:
            fetched = Fetched()
            with pytest.raises(Planned):
                chain.execute(chain.plan([], None), fetched, None, fails)
            return weakref.ref(fetched)

        gc.disable()
        try:
            assert made()() is None, "only the garbage collector would free it"
        finally:
            gc.enable()


def test_a_session_has_one_chain_and_each_run_the_stages_that_it_needs(graph: Any) -> None:
    x = staging.staged(ArraySource(np.arange(8), batch_size=1), name="x")
    y = staging.staged(ArraySource(np.arange(8), batch_size=1), lockstep=True, name="y")
    other = tf.constant(1.0)
    with staging.StagingSession() as sess:
        raw, chain = sess._hook.runtime.session, sess._hook.runtime.steps.chain
        assert chain is feeding_of(raw).chain
        told: list[Any] = []
        chain.run = lambda fetches, *_: told.append(fetches)  # type: ignore[method-assign]
        raw.run(other)
        del chain.run
        assert told == [other]
        for fetches, fed, event, count in [
            (other, None, "run", 1),
            (x, None, "step x", 4),
            ([x, y], None, "step x y", 6),
            ([x, y], {y: [1]}, "step x", 4),
            ("no such op", None, "run", 1),
        ]:
            plan = chain.plan(fetches, fed)
            assert (plan.event, len(plan.stages)) == (event, count)
            assert chain.plan(fetches, fed) is plan


def test_the_page_of_the_design_shows_the_list(graph: Any) -> None:
    page = Path(__file__).parents[2].joinpath("docs", "design.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(\w+)` \| `([\w/]+)\.py` \|", page.partition("### A step from the list")[2], re.MULTILINE)
    in_clusters = {"InStep", "SharedEnd", "GatedRuns"}
    staging.staged(ArraySource(np.arange(8), batch_size=1))
    with staging.StagingSession() as sess:
        handlers = [type(handler) for handler in sess._hook.runtime.steps.chain.handlers]
    shown = [(each.__name__, each.__module__.partition(".")[2].replace(".", "/")) for each in handlers]
    assert [row for row in rows if row[0] not in in_clusters] == shown
    assert in_clusters < {name for name, _ in rows}
