"""Iterators that the program initializes while their pipelines run: the pipelines begin anew, with the new data.

A TensorFlow 1 program runs `iterator.initializer` for each epoch, or for each pass over a validation set, and may do so
in the middle of one.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from staging_tf1.errors import BuildError
from staging_tf1.feed.chain import Handler, Look, Run, Stage
from staging_tf1.feed.pipeline import Pipeline
from staging_tf1.feed.pipeline_run import PipelineRun, end_run, runs_in
from staging_tf1.feed.queue_runner import runner_of
from staging_tf1.graph.dependencies import iterators_behind
from staging_tf1.lifecycle.lockstep import Lockstep


class Renewals(Handler):
    """The pipelines of one session whose batches come from iterators of the program.

    Args:
      session: the session.
      pipelines: its pipelines.
      lockstep: those in lockstep.
    """

    def __init__(self, session: Any, pipelines: Sequence[Pipeline], lockstep: Mapping[Pipeline, Lockstep]) -> None:
        self._session, self._lockstep = session, lockstep
        # The names of the iterators' ops.
        self._iterators = {
            pipeline: names
            for pipeline in pipelines
            if pipeline.is_computed and (names := iterators_behind([sink.put.op for sink in pipeline.sinks]))
        }
        self._one_at_a_time = threading.Lock()
        self._ended: list[PipelineRun] = []

    def stage(self, look: Look) -> Stage | None:
        """See base class."""
        # The second input of an initializer is the iterator.
        initialized = {op.inputs[1].op.name for op in look.ops.values() if op.type == "MakeIterator"}
        renewed = [pipeline for pipeline, iterators in self._iterators.items() if not initialized.isdisjoint(iterators)]
        if not renewed:
            return None
        end = partial(self._make_anew, renewed)
        whole = f"{renewed[0]}: they initialize its iterator, whose threads begin anew after it. Run it in a run()."
        return Stage(partial(self._before, renewed, look.pipelines), end, end, whole)

    def need_initializers(self, pipelines: Sequence[Pipeline]) -> list[Pipeline]:
        """Return those of `pipelines` whose iterators must be initialized before a step takes from them."""
        return [pipeline for pipeline in pipelines if pipeline in self._iterators and not pipeline.lockstep]

    def _before(self, renewed: Sequence[Pipeline], taken: Sequence[Pipeline], run: Run) -> None:
        for pipeline in renewed:
            if pipeline in taken:
                raise BuildError(
                    f"{pipeline}: one run initializes its iterator and takes a batch of it. Run the initializer first, "
                    f"and then the step."
                )
        self._one_at_a_time.acquire()
        self._ended = []
        try:
            for pipeline_run in runs_in(self._session, renewed):
                if self._end(pipeline_run):
                    self._ended.append(pipeline_run)
        except BaseException as error:
            self._make_anew((), run, error)
            raise

    def _make_anew(self, renewed: Sequence[Pipeline], run: Run, error: BaseException | None = None) -> None:
        """Begin anew; after an error, too: the iterator is then what it was."""
        try:
            for pipeline_run in self._ended:
                runner = runner_of(self._session.graph, pipeline_run.pipeline)
                runner.create_threads(self._session, pipeline_run.coord, daemon=True, start=True)
            for pipeline in renewed:
                if pipeline in self._lockstep:
                    self._lockstep[pipeline].begin_anew()
        finally:
            self._one_at_a_time.release()

    def _end(self, run: PipelineRun) -> bool:
        """End a run, unless the program has stopped it: then the next `start()` begins anew."""
        run.begins_anew = True
        if run.error is not None or (run.coord is not None and run.coord.should_stop()):
            return False
        end_run(run)
        return True
