"""`Chain`: the runs of one session go through an ordered list of handlers, compiled once for each set of fetches."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Generic, NamedTuple, TypeVar

from staging_tf1._tf import enter_runs
from staging_tf1.feed.compiled_runs import identity_of
from staging_tf1.feed.pipeline import Pipeline, areas_taken, pipelines_of
from staging_tf1.fork import refuse_if_forked
from staging_tf1.graph.dependencies import leaves_of, ops_of_run
from staging_tf1.graph.sink import Sink

# In TensorFlow's profile: a run that takes no batch, as far as is known.
_RUN = "run"

# A loop repeats a few sets of fetches. If there are more than this, each run has new ones, which are not worth keeping.
_MOST_ANSWERS = 1000

Answer = TypeVar("Answer")


class Look(NamedTuple):
    """What handlers look at when a plan is compiled."""

    graph: Any
    fetches: Any
    fed: Sequence[Any]
    # The ops that the run executes, by name. Empty if only `Session.run` understands the fetches.
    ops: Mapping[str, Any]
    # The sinks that the run takes an element from.
    sinks: frozenset[Sink]
    # The pipelines of these sinks.
    pipelines: tuple[Pipeline, ...]

    def towers_of(self, pipeline: Pipeline) -> tuple[int, ...]:
        return tuple(tower for tower, sink in enumerate(pipeline.sinks) if sink in self.sinks)


class RunPlan(NamedTuple):
    """What is done for one set of fetches and feeds. Compiled once in a session."""

    # Its name in TensorFlow's profile.
    event: str
    # The sinks that it takes an element from.
    sinks: frozenset[Sink]
    # The pipelines of these sinks.
    pipelines: tuple[Pipeline, ...]
    # What acts around it, the outermost first.
    stages: tuple[Stage, ...]


class Run:
    """One run on its way through the chain.

    Attributes:
      fetches: what the user fetches.
      feeds: what is fed: the user's feeds, and those of the puts.
      puts: the puts that are added to the run.
      call: called with the puts and feeds; makes the run, and returns the values of the fetches.
      profile: its event in TensorFlow's profile; None if none is made.
      counts: after a failed run, what the graph counts of the sinks; empty if the session is gone.
      is_part: whether it is a part of a partial run.
    """

    __slots__ = ("call", "counts", "feeds", "fetches", "is_part", "plan", "profile", "puts")

    def __init__(
        self,
        plan: RunPlan,
        fetches: Any,
        feeds: Any,
        call: Callable[[list[Any], Any], Any],
        is_part: bool = False,
    ) -> None:
        self.plan, self.fetches, self.feeds, self.call, self.is_part = plan, fetches, feeds, call, is_part
        self.puts: list[Any] = []
        self.profile: Any = None
        self.counts: Mapping[Sink, Any] = {}

    def add(self, puts: Sequence[Any], feeds: Mapping[Any, Any]) -> None:
        self.puts += puts
        if feeds:
            self.feeds = {**(self.feeds or {}), **feeds}


class Stage(NamedTuple):
    """What one handler does around the runs of one set of fetches."""

    # Called before the run, from the outermost handler inwards. If it raises, the run is not made.
    before: Callable[[Run], None] | None = None
    # Called after a run that has succeeded, from the innermost handler outwards. If it raises, the run has failed.
    after: Callable[[Run], None] | None = None
    # Called, from the innermost handler outwards, if `before` has returned and the run has failed since.
    failed: Callable[[Run, BaseException], None] | None = None
    # Why a partial run cannot do these fetches, for messages; "" if it can.
    whole: str = ""


class Handler:
    """Acts around the runs of one session. Several threads may make runs at once."""

    def stage(self, look: Look) -> Stage | None:
        """Return what it does around the runs of one set of fetches; None if they do not need it."""
        raise NotImplementedError

    def close(self) -> None:
        """Called at the end of the session, from the innermost handler outwards. May be called twice."""


class ByFetches(Generic[Answer]):
    """Caches the answer to a question about a run's fetches and feeds.

    Args:
      question: called with the fetches and the list of fed tensors.
    """

    def __init__(self, question: Callable[[Any, list[Any]], Answer]) -> None:
        self._question = question
        # By id, so fetches and feeds are kept with the answer. Also the tensors themselves, because the caller may
        # remove them from a list.
        self._answers: dict[Any, tuple[Answer, list[Any]]] = {}

    def of(self, fetches: Any, feed_dict: Any | None) -> Answer:
        """The answer for a run of `fetches` that feeds the keys of `feed_dict`."""
        fed = list(feed_dict) if feed_dict else []
        key = identity_of(fetches), identity_of(fed)
        known = self._answers.get(key)
        if known is None:
            if len(self._answers) >= _MOST_ANSWERS:
                self._answers.clear()
            known = self._answers[key] = (self._question(fetches, fed), list(leaves_of([fetches, fed])))
        return known[0]


class Chain:
    """What the runs of one session enter, until it is closed (`_tf.enter_runs`).

    The package's own runs are no steps, and go past it (`_tf.run_unwrapped`).

    Attributes:
      handlers: the handlers, outermost first.
      raise_cause: called with a run and its error, before the handlers are told. Raises what has ended the run in place
        of TensorFlow's error; returns if that is the error itself.
    """

    def __init__(self, session: Any) -> None:
        self.session = session
        self.raise_cause: Callable[[Run, BaseException], None] = lambda run, error: None
        # The sinks that each partial run has yet to take from, by its handle. Without an entry, there are none.
        self._parts: dict[str, frozenset[Sink]] = {}
        self.install(())
        enter_runs(session, self)

    def install(self, handlers: Sequence[Handler]) -> None:
        """Let the runs go through `handlers`, outermost first."""
        self.handlers = tuple(handlers)
        self._pipelines = pipelines_of(self.session.graph)
        self._sinks = areas_taken(self._pipelines)
        self._plans = ByFetches(partial(self._compile, frozenset(self._sinks.values())))
        # The same for the parts of partial runs, by the sinks that they may take from.
        self._plans_of_parts: dict[frozenset[Sink], ByFetches[RunPlan]] = {}

    def knows(self, pipeline: Pipeline) -> bool:
        """Whether the handlers look at `pipeline`: it was built before they were installed."""
        return bool(self.handlers) and pipeline in self._pipelines

    def close_handlers(self) -> None:
        for handler in reversed(self.handlers):
            handler.close()

    def close(self) -> None:
        """The same; the session's runs then enter nothing."""
        enter_runs(self.session, None)
        self.close_handlers()

    def plan(self, fetches: Any, feed_dict: Any | None) -> RunPlan:
        return self._plans.of(fetches, feed_dict)

    def _compile(self, takes_from: frozenset[Sink], fetches: Any, fed: list[Any]) -> RunPlan:
        try:
            ops = ops_of_run(self.session.graph, fetches, fed)
        except (KeyError, TypeError, ValueError):
            # Only Session.run understands these fetches, or can say what is wrong.
            ops = {}
        sinks = takes_from & {sink for name, sink in self._sinks.items() if name in ops}
        pipelines = tuple(pipeline for pipeline in self._pipelines if not sinks.isdisjoint(pipeline.sinks))
        look = Look(self.session.graph, fetches, fed, ops, sinks, pipelines)
        stages = [stage for handler in self.handlers if (stage := handler.stage(look)) is not None]
        event = " ".join(["step", *(pipeline.name for pipeline in pipelines)]) if sinks else _RUN
        return RunPlan(event, sinks, pipelines, tuple(stages))

    def run(self, fetches: Any, feed_dict: Any, call: Callable[[Any, Any], Any]) -> Any:
        """Do a run of the program's: `Session.run`, or a callable of `Session.make_callable`.

        Args:
          fetches: what it fetches.
          feed_dict: what it feeds.
          call: called with fetches and feeds, these or more. Returns the values of the fetches.
        """

        def with_puts(puts: Sequence[Any], feeds: Any) -> Any:
            return call([fetches, puts], feeds)[0] if puts else call(fetches, feeds)

        return self.execute(self.plan(fetches, feed_dict), fetches, feed_dict, with_puts)

    def set_up_parts(self, fetches: Any, feeds: Any, call: Callable[[], str]) -> str:
        """Begin a partial run. TensorFlow takes its batch now.

        Raises:
          RuntimeError: a handler has more to do around the run than a partial run allows.
        """
        plan = self.plan(fetches, feeds)
        for stage in plan.stages:
            if stage.whole:
                raise RuntimeError(f"partial_run_setup() got fetches that only a whole run can do: {stage.whole}")
        handle = call()
        if plan.sinks:
            self._parts[handle] = plan.sinks
        return handle

    def run_part(self, handle: str, fetches: Any, feed_dict: Any, call: Callable[[Any, Any], Any]) -> Any:
        """Do a part of a partial run. The first one that needs the batch of a sink counts as the step that takes it."""
        left = self._parts.pop(handle, frozenset())
        plans = self._plans_of_parts.get(left)
        if plans is None:
            plans = self._plans_of_parts[left] = ByFetches(partial(self._compile, left))
        plan = plans.of(fetches, feed_dict)
        result = self.execute(plan, fetches, feed_dict, lambda puts, feeds: call(fetches, feeds), is_part=True)
        if left - plan.sinks:
            self._parts[handle] = left - plan.sinks
        return result

    def execute(
        self,
        plan: RunPlan,
        fetches: Any,
        feeds: Any,
        call: Callable[[list[Any], Any], Any],
        is_part: bool = False,
    ) -> Any:
        """Make one run.

        Args:
          plan: what is done for it.
          fetches: what it fetches.
          feeds: what the user feeds.
          call: called with the puts to add to the run, and all feeds. Returns the values of `fetches`.
          is_part: whether it is a part of a partial run.
        """
        refuse_if_forked("A session")
        run, stages, entered = Run(plan, fetches, feeds, call, is_part), plan.stages, 0
        try:
            for before, _, _, _ in stages:
                if before is not None:
                    before(run)
                entered += 1
            result = run.call(run.puts, run.feeds)
            while entered:
                entered -= 1
                after = stages[entered].after
                if after is not None:
                    after(run)
            return result
        except BaseException as error:
            cause = self._failed(run, error, stages[:entered])
            try:
                if cause is error:
                    raise
                raise cause
            finally:
                # An error whose traceback holds itself would keep the graph alive.
                del cause

    def _failed(self, run: Run, error: BaseException, stages: Sequence[Stage]) -> BaseException:
        """Tell `stages`, from the last to the first, that `run` has failed. Return what to raise."""
        cause = error
        try:
            self.raise_cause(run, error)
        except BaseException as named:
            cause = named
        for stage in reversed(stages):
            try:
                if stage.failed is not None:
                    stage.failed(run, cause)
            except BaseException as raised:
                cause = raised
        return cause
