"""Runs that change what feed threads read: their pipelines begin anew, with the new data or at the new position.

A TensorFlow 1 program runs `iterator.initializer` for each epoch, or for each pass over a validation set, and may do so
in the middle of one. It may also restore a checkpoint, or run `tf.global_variables_initializer()`, after the feed
threads have started. Then what the run sets decides, as if it had come before the start.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from absl import logging

from staging_tf1._tf import run_unwrapped, tf
from staging_tf1.errors import BuildError, ClusterError, StagingError
from staging_tf1.feed.chain import Handler, Look, Run, Stage
from staging_tf1.feed.pipeline import Pipeline, areas_taken, pipelines_of
from staging_tf1.feed.pipeline_run import LAST_BATCH_SECS, SILENT_SECS, PipelineRun
from staging_tf1.graph.dependencies import ancestors, iterators_behind, writers_of

if TYPE_CHECKING:
    from staging_tf1.feed.feeding import Feeding


class Renewals(Handler):
    """Lets the pipelines of one session begin anew when a run initializes their iterator or sets their position.

    Such a run waits for the steps under way that take from these pipelines, and holds back later ones.

    Args:
      feeding: what runs in the session.

    Attributes:
      lockstep: the pipelines in lockstep, each with its `Lockstep`.
    """

    def __init__(self, feeding: Feeding) -> None:
        self._feeding, self._session = feeding, feeding.session
        self.lockstep: Mapping[Pipeline, Any] = {}
        self._changed = threading.Condition()
        # The steps under way, the pipelines that they take from, and their thread. Steps write it without the lock.
        self._under_way: dict[Run, tuple[tuple[Pipeline, ...], int]] = {}
        # What may begin anew in the run that renews, of which there is one at a time; and that run.
        self._renewed: Sequence[Pipeline] = ()
        self._run: Run | None = None
        # What it has ended, and the positions before it.
        self._ended: list[PipelineRun] = []
        self._before: dict[Pipeline, Any] = {}
        # The names of the program's iterators behind each pipeline that was asked about.
        self._iterators: dict[Pipeline, frozenset[str]] = {}

    def stage(self, look: Look) -> Stage | None:
        # The second input of an initializer is the iterator.
        initialized = {op.inputs[1].op.name for op in look.ops.values() if op.type == "MakeIterator"}
        pipelines, taken = pipelines_of(look.graph), look.pipelines
        read = [pipeline for pipeline in pipelines if initialized and not initialized.isdisjoint(self._names(pipeline))]
        placed = [pipeline for pipeline in pipelines if _is_placed_by(look.ops, pipeline)]
        if read or placed:
            end = partial(self._end, read)
            does = "initialize its iterator" if read else "set its position"
            whole = f"{(*read, *placed)[0]}: they {does}, and its threads begin anew after it. Run them in a run()."
            return Stage(partial(self._begin, read, placed, taken), end, end, whole)
        return Stage(partial(self._enter, taken), self._leave, self._leave) if taken else None

    def need_initializers(self, pipelines: Sequence[Pipeline]) -> list[Pipeline]:
        """Return those of `pipelines` whose iterators must be initialized before a step takes from them."""
        return [pipeline for pipeline in pipelines if self._names(pipeline) and not pipeline.lockstep]

    def _names(self, pipeline: Pipeline) -> frozenset[str]:
        if pipeline not in self._iterators:
            puts = [sink.put.op for sink in pipeline.sinks] if pipeline.is_computed else []
            self._iterators[pipeline] = iterators_behind(puts)
        return self._iterators[pipeline]

    def _enter(self, taken: tuple[Pipeline, ...], run: Run) -> None:
        # First: either the step sees the renewal, or the renewal sees the step.
        self._under_way[run] = taken, threading.get_ident()
        if self._renewed:
            self._wait_for_renewal(taken, run)

    def _wait_for_renewal(self, taken: tuple[Pipeline, ...], run: Run) -> None:
        with self._changed:
            del self._under_way[run]
            self._changed.notify_all()
            self._changed.wait_for(lambda: set(taken).isdisjoint(self._renewed))
            self._under_way[run] = taken, threading.get_ident()

    def _leave(self, run: Run, error: BaseException | None = None) -> None:
        del self._under_way[run]
        if self._renewed:
            with self._changed:
                self._changed.notify_all()

    def _begin(
        self, read: Sequence[Pipeline], placed: Sequence[Pipeline], taken: tuple[Pipeline, ...], run: Run
    ) -> None:
        """Wait for the steps that take from the pipelines, and end the threads that read the iterators."""
        graph = self._feeding.graph
        placed = [pipeline for pipeline in placed if pipeline in self._feeding.started]
        if not (read or placed):
            # It comes before the start.
            self._enter(taken, run)
            return
        _check(_with_readers(read, graph), _with_readers(placed, graph), taken)
        self._hold_back(_with_readers([*read, *placed], graph), run)
        try:
            # A pipeline that stages what `placed` gives would count a batch before the new positions are read.
            self._end_runs([*_with_readers(read, graph), *_readers_of(placed, graph)])
            self._before = self._positions(placed)
            self._enter(taken, run)
        except BaseException:
            self._let_go((), ())
            raise

    def _end(self, read: Sequence[Pipeline], run: Run, error: BaseException | None = None) -> None:
        """Begin anew; after an error, too: it may have set some positions, and the iterators are what they were."""
        self._leave(run)
        if self._run is not run:
            return
        placed: list[Pipeline] = []
        try:
            placed = self._moved(error)
            self._end_runs(_with_readers(placed, self._feeding.graph))
        finally:
            self._let_go(_with_readers([*read, *placed], self._feeding.graph), placed)

    def _hold_back(self, renewed: Sequence[Pipeline], run: Run) -> None:
        """Hold back steps that take from these pipelines, and wait for those under way."""
        with self._changed:
            self._changed.wait_for(lambda: not self._renewed)
            self._renewed, self._run = renewed, run
            try:
                if not self._changed.wait_for(self._is_at_rest, SILENT_SECS):
                    self._say_what_it_waits_for()
                    if not self._changed.wait_for(self._is_at_rest, LAST_BATCH_SECS - SILENT_SECS):
                        raise StagingError(
                            f"{renewed[0]}: cannot begin anew, because a step that takes from it is still running "
                            f"after {LAST_BATCH_SECS:.0f} s, in {self._threads_under_way()}."
                        )
            except BaseException:
                self._renewed, self._run = (), None
                self._changed.notify_all()
                raise

    def _is_at_rest(self) -> bool:
        return all(set(taken).isdisjoint(self._renewed) for taken, _ in list(self._under_way.values()))

    def _threads_under_way(self) -> str:
        """Return the names of the threads whose steps a renewal waits for."""
        names = {thread.ident: f"thread '{thread.name}'" for thread in threading.enumerate()}
        idents = [ident for taken, ident in list(self._under_way.values()) if not set(taken).isdisjoint(self._renewed)]
        return ", ".join(names.get(ident, f"thread {ident}") for ident in idents)

    def _say_what_it_waits_for(self) -> None:
        here = threading.current_thread().name
        logging.warning(
            "%s: thread '%s' sets its position or initializes its iterator, and waits for a step that takes from it, "
            "in %s, for at most %.0f s. If that step waits for what thread '%s' does next, neither goes on: run the "
            "restore or the initializer between two steps, in the thread that runs them.",
            self._renewed[0],
            here,
            self._threads_under_way(),
            LAST_BATCH_SECS,
            here,
        )

    def _let_go(self, anew: Sequence[Pipeline], placed: Sequence[Pipeline]) -> None:
        try:
            self._begin_anew(anew, placed)
        finally:
            with self._changed:
                self._renewed, self._run, self._ended, self._before = (), None, [], {}
                self._changed.notify_all()

    def _positions(self, pipelines: Iterable[Pipeline]) -> dict[Pipeline, Any]:
        saved = {pipeline: pipeline.position.saved for pipeline in pipelines if pipeline.position is not None}
        return dict(run_unwrapped(self._session, saved)) if saved else {}

    def _moved(self, error: BaseException | None) -> list[Pipeline]:
        """Return the pipelines whose positions the run has changed."""
        try:
            after = self._positions(self._before)
        except (tf.errors.OpError, RuntimeError):
            if error is None:
                raise
            # The session is gone.
            return []
        return [pipeline for pipeline, before in self._before.items() if not _are_equal(before, after[pipeline])]

    def _end_runs(self, pipelines: Iterable[Pipeline]) -> None:
        """End the runs of `pipelines`. Where the program has stopped one, the next `start()` begins anew."""
        for run in self._feeding.runs_of(pipelines):
            run.begins_anew = True
            if not _has_stopped(run):
                self._feeding.end_run(run)
                self._ended.append(run)

    def _begin_anew(self, anew: Sequence[Pipeline], placed: Sequence[Pipeline]) -> None:
        """Let the pipelines `anew` begin anew, and what has been ended; those of `placed` as at a first start.

        Raises:
          ResumeError, CheckpointError: one of `placed` cannot begin at its position. It goes on at the one before.
        """
        # A hook may set it between the queue runners and the warm-up of lockstep, which prepares it again.
        self._feeding.forget_prepared(anew)
        self._feeding.renewed |= {*placed}
        self._discard(placed)
        going = [*(run.pipeline for run in self._ended), *(each for each in anew if each in self.lockstep)]
        try:
            self._feeding.prepare(going)
            now = self._positions(placed)
        except StagingError:
            self._put_back(placed)
            self._feeding.prepare(going)
            self._start(going)
            raise
        self._start(going)
        for pipeline in placed:
            _say_where_it_continues(pipeline, self._before[pipeline], now[pipeline])

    def _discard(self, pipelines: Sequence[Pipeline]) -> None:
        """Discard what is staged of pipelines that the program has stopped: it is before or after their positions."""
        for run in self._feeding.runs_of(pipelines):
            run.join_last_batch()
            sinks = run.pipeline.sinks
            run_unwrapped(self._session, [sink.renew for sink in sinks])
            run_unwrapped(self._session, [(sink.fill, sink.close) for sink in sinks])

    def _put_back(self, pipelines: Sequence[Pipeline]) -> None:
        for pipeline in pipelines:
            assert pipeline.position is not None
            run_unwrapped(self._session, *pipeline.position.to_write(self._before[pipeline]))

    def _start(self, pipelines: Sequence[Pipeline]) -> None:
        coords = {run.pipeline: run.coord for run in self._ended}
        for pipeline in pipelines:
            if pipeline in self.lockstep:
                self.lockstep[pipeline].begin_anew()
            else:
                self._feeding.start(pipeline, coords[pipeline])


def _check(read: Sequence[Pipeline], placed: Sequence[Pipeline], taken: Sequence[Pipeline]) -> None:
    for pipeline in placed:
        if pipeline.cluster is not None:
            raise ClusterError(
                f"{pipeline}: a run sets its position after the workers of the cluster have started. Restore and "
                f"initialize before the start, as StagingSession(cluster=..., checkpoint_dir=...) does. To restore the "
                f"rest only, {_how_to_leave_out(pipeline)}."
            )
    for pipeline in taken:
        if pipeline in read:
            raise BuildError(
                f"{pipeline}: one run initializes its iterator and takes a batch of it. Run the initializer first, "
                f"and then the step."
            )
        if pipeline in placed:
            raise BuildError(
                f"{pipeline}: one run sets its position and takes a batch of it. Run the restore or the initializer "
                f"first, and then the step."
            )


def _is_placed_by(ops: Mapping[str, Any], pipeline: Pipeline) -> bool:
    """Whether a run of `ops` may set the position, other than by the step that takes a batch."""
    position = pipeline.position
    if position is None:
        return False
    writers = {op.name for variable in position.variables for op in writers_of(variable.handle)}
    return not (writers - position.counting).isdisjoint(ops)


def _with_readers(pipelines: Sequence[Pipeline], graph: Any) -> list[Pipeline]:
    """Return `pipelines`, and those that stage what these give."""
    return list(dict.fromkeys([*pipelines, *_readers_of(pipelines, graph)]))


def _readers_of(pipelines: Sequence[Pipeline], graph: Any) -> list[Pipeline]:
    """Return the pipelines that stage what `pipelines` give, or what such a pipeline gives."""
    found: list[Pipeline] = []
    for pipeline in pipelines_of(graph) if pipelines else ():
        if any(producer.chained for producer in pipeline.producers):
            behind = {op.name for op in ancestors([sink.put.op for sink in pipeline.sinks])}
            if not behind.isdisjoint(areas_taken([*pipelines, *found])):
                found.append(pipeline)
    return found


def _has_stopped(run: PipelineRun) -> bool:
    return run.error is not None or (run.coord is not None and run.coord.should_stop())


def _are_equal(before: Sequence[Any], after: Sequence[Any]) -> bool:
    return all(np.array_equal(was, now) for was, now in zip(before, after, strict=True))


def _how_to_leave_out(pipeline: Pipeline) -> str:
    names = [variable.op.name for variable in pipeline.position_variables]
    return f"use tf.train.Saver([v for v in tf.global_variables() if v.op.name not in {names}])"


def _say_where_it_continues(pipeline: Pipeline, before: Sequence[Any], now: Sequence[Any]) -> None:
    """Say which position counts: a program may only have wished for the weights of a checkpoint."""
    position = pipeline.position
    assert position is not None
    was, is_now = (", ".join(map(str, position.consumed(values[0]))) for values in (before, now))
    logging.warning(
        "'%s': a restore or an initializer has set its position after the start. Its steps had consumed %s batches; "
        "they continue at batch %s. To keep its own position, %s.",
        pipeline.name,
        was,
        is_now,
        _how_to_leave_out(pipeline),
    )
