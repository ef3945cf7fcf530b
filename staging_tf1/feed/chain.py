"""`Chain`: the runs of one session go through an ordered list of handlers, compiled once for each set of fetches."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Generic, NamedTuple, TypeVar

from staging_tf1._tf import in_queue_runner
from staging_tf1.feed.compiled_runs import compile_runs
from staging_tf1.feed.pipeline import Pipeline, areas_taken, pipelines_of
from staging_tf1.fork import refuse_if_forked
from staging_tf1.graph.dependencies import held_in, leaves_of, ops_of_run
from staging_tf1.graph.sink import Sink
from staging_tf1.graph.state import session_state_of

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
        """Return the towers of `pipeline` that the run takes from."""
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
      plan: the plan.
      fetches: what the user fetches.
      feeds: what is fed: the user's feeds, and those of the puts.
      puts: the puts that are added to the run.
      call: called with the puts and feeds; makes the run, and returns the values of the fetches.
      profile: its event in TensorFlow's profile.
      counts: after a failed run, what the graph counts of the sinks; empty if the session is gone.
    """

    __slots__ = ("call", "counts", "feeds", "fetches", "plan", "profile", "puts")

    def __init__(self, plan: RunPlan, fetches: Any, feeds: Any, call: Callable[[list[Any], Any], Any]) -> None:
        self.plan, self.fetches, self.feeds, self.call = plan, fetches, feeds, call
        self.puts: list[Any] = []
        self.profile: Any = None
        self.counts: Mapping[Sink, Any] = {}

    def add(self, puts: Sequence[Any], feeds: Mapping[Any, Any]) -> None:
        """Add puts and feeds to the run."""
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
        # By identity: hashing a tensor costs more, and comparing two can make an op.
        key = (_identity(fetches), _identity(fed))
        known = self._answers.get(key)
        if known is None:
            if len(self._answers) >= _MOST_ANSWERS:
                self._answers.clear()
            known = self._answers[key] = (self._question(fetches, fed), list(leaves_of([fetches, fed])))
        return known[0]


def _identity(fetches: Any) -> Any:
    # The type() of a proxy, such as a dict in a tf.Module, would be that of the proxy.
    kind = fetches.__class__
    if kind is list or kind is tuple:
        return tuple([_identity(fetch) for fetch in fetches])
    if kind is dict:
        # Marked as a dict, because a list may hold pairs, too.
        return dict, tuple(fetches), tuple([_identity(fetch) for fetch in fetches.values()])
    if kind is str:
        return fetches
    held = held_in(kind)
    return id(fetches) if held is None else (dict, *[(name, _identity(value)) for name, value in held(fetches)])


class ForkGuard(Handler):
    """Refuses runs in a forked process, before anything is read for them."""

    def stage(self, look: Look) -> Stage:
        """See base class."""
        return Stage(before=lambda run: refuse_if_forked("A session"))


class Chain:
    """Wraps `run` and `make_callable` of one session, as attributes of that session, until it is closed.

    The package's own runs are no steps, and go past it (`_tf.run_unwrapped`).

    Args:
      session: a `tf.Session`.

    Attributes:
      handlers: the handlers, outermost first.
      raise_cause: called with the error of a run, before the handlers are told. Raises what has ended the run in place
        of TensorFlow's error; returns if that is the error itself.
    """

    def __init__(self, session: Any) -> None:
        self.session = session
        self._run_before: Callable[..., Any] = session.run
        self._make_before: Callable[..., Any] = session.make_callable
        self.handlers: tuple[Handler, ...] = ()
        self.raise_cause: Callable[[BaseException], None] = lambda error: None
        session.run, session.make_callable = self.run, self.make_callable

    def install(self, handlers: Sequence[Handler]) -> None:
        """Let the runs go through `handlers`, outermost first."""
        self.handlers = tuple(handlers)
        self._pipelines = pipelines_of(self.session.graph)
        self._sinks = areas_taken(self._pipelines)
        self._plans = ByFetches(self._compile)

    def close_handlers(self) -> None:
        """Close the handlers, the innermost first. May be called twice."""
        for handler in reversed(self.handlers):
            handler.close()

    def close(self) -> None:
        """The same; the session then runs unwrapped."""
        self.session.run, self.session.make_callable = self._run_before, self._make_before
        self.close_handlers()

    def plan(self, fetches: Any, feed_dict: Any | None) -> RunPlan:
        """Return what is done for a run of `fetches`."""
        return self._plans.of(fetches, feed_dict)

    def _compile(self, fetches: Any, fed: list[Any]) -> RunPlan:
        try:
            ops = ops_of_run(self.session.graph, fetches, fed)
        except (KeyError, TypeError, ValueError):
            # Only Session.run understands these fetches, or can say what is wrong.
            ops = {}
        sinks = frozenset(sink for name, sink in self._sinks.items() if name in ops)
        pipelines = tuple(pipeline for pipeline in self._pipelines if not sinks.isdisjoint(pipeline.sinks))
        look = Look(self.session.graph, fetches, fed, ops, sinks, pipelines)
        stages = [stage for handler in self.handlers if (stage := handler.stage(look)) is not None]
        event = " ".join(["step", *(pipeline.name for pipeline in pipelines)]) if sinks else _RUN
        return RunPlan(event, sinks, pipelines, tuple(stages))

    def run(
        self, fetches: Any, feed_dict: Any | None = None, options: Any | None = None, run_metadata: Any | None = None
    ) -> Any:
        """Run `fetches`, in place of the session's own `run`."""
        call = partial(self.run_session, fetches, options=options, run_metadata=run_metadata)
        return self.execute(self.plan(fetches, feed_dict), fetches, feed_dict, call)

    def make_callable(self, fetches: Any, feed_list: Sequence[Any] | None = None, accept_options: bool = False) -> Any:
        """Make a callable that runs `fetches`, in place of the session's own `make_callable`."""
        plain = self.plain_callable(fetches, feed_list, accept_options)
        # With a feed list, it goes through `run`. A queue runner is no step: it may wait for room.
        if feed_list is not None or in_queue_runner():
            return plain

        def step(*options: Any, **named: Any) -> Any:
            def call(puts: Sequence[Any], feeds: Any) -> Any:
                if puts or feeds:
                    return self.run_session(fetches, puts, feeds, *options, **named)
                return plain(*options, **named)

            return self.execute(self.plan(fetches, None), fetches, None, call)

        return step

    def plain_callable(self, *arguments: Any) -> Callable[..., Any]:
        """Return what the session's own `make_callable` returns for these arguments."""
        made: Callable[..., Any] = self._make_before(*arguments)
        return made

    def run_session(
        self, fetches: Any, puts: Sequence[Any], feeds: Any, options: Any = None, run_metadata: Any = None
    ) -> Any:
        """Return the values of `fetches`, from the session's own `run` together with `puts`."""
        if not puts:
            return self._run_before(fetches, feeds, options, run_metadata)
        return self._run_before([fetches, puts], feeds, options, run_metadata)[0]

    def execute(self, plan: RunPlan, fetches: Any, feeds: Any, call: Callable[[list[Any], Any], Any]) -> Any:
        """Make one run.

        Args:
          plan: what is done for it.
          fetches: what it fetches.
          feeds: what the user feeds.
          call: called with the puts to add to the run, and all feeds. Returns the values of `fetches`.
        """
        run, stages, entered = Run(plan, fetches, feeds, call), plan.stages, 0
        try:
            for before, _, _ in stages:
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
            self.raise_cause(error)
        except BaseException as named:
            cause = named
        for stage in reversed(stages):
            try:
                if stage.failed is not None:
                    stage.failed(run, cause)
            except BaseException as raised:
                cause = raised
        return cause


def chain_of(session: Any) -> Chain:
    """Return the chain of `session`; the first call installs it."""
    state = session_state_of(session)
    if state.chain is None:
        state.chain = Chain(session)
        compile_runs(session)
    return state.chain
