"""Batches that depend on a placeholder: nothing feeds it, because the package runs the ops behind them by itself."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from staging_tf1._tf import tf
from staging_tf1.errors import BuildError
from staging_tf1.feed.pipeline import Pipeline
from staging_tf1.graph.callsite import site_of_op
from staging_tf1.graph.dependencies import ancestors

_UNFED = re.compile(r"must feed a value for placeholder tensor '([^']+)'")


@contextmanager
def naming_unfed(pipelines: Sequence[Pipeline]) -> Iterator[None]:
    """Raise BuildError if a run of the block fails because one of `pipelines` depends on a placeholder."""
    try:
        yield
    except tf.errors.InvalidArgumentError as error:
        refuse_unfed(error, pipelines)
        raise


def refuse_unfed(error: BaseException, pipelines: Sequence[Pipeline]) -> None:
    """Raise BuildError if `error` says that a placeholder is not fed. Only the text tells.

    Args:
      error: of a run without the program's feeds.
      pipelines: whose ops the run has run.
    """
    found = _UNFED.search(str(error)) if isinstance(error, tf.errors.InvalidArgumentError) else None
    if found is None:
        return
    computed = {pipeline: {op.name: op for op in ancestors(_ops_of(pipeline))} for pipeline in pipelines}
    # One inside a function of the graph is in none.
    pipeline = next((pipeline for pipeline in pipelines if found[1] in computed[pipeline]), pipelines[0])
    placeholder = computed[pipeline].get(found[1])
    site = None if placeholder is None else site_of_op(placeholder)
    at = "" if site is None else f" (made at {site})"
    raise BuildError(
        f"{pipeline}: its batches depend on placeholder '{found[1]}'{at}, which nothing feeds: they are computed ahead "
        f"of the steps, without the feeds of a step. {_cure(pipeline, placeholder)}"
    ) from error


def _ops_of(pipeline: Pipeline) -> list[Any]:
    init = [] if pipeline.init is None else [pipeline.init]
    return [*init, *(sink.put.op for sink in pipeline.sinks)]


def _cure(pipeline: Pipeline, placeholder: Any) -> str:
    consumers = [] if placeholder is None else placeholder.outputs[0].consumers()
    if any(op.type.startswith("IteratorFromStringHandle") for op in consumers):
        return (
            "It is the handle of an iterator. Pass the dataset itself to staged(), each dataset to its own, and build "
            "the model on each of them."
        )
    if pipeline.init is not None:
        return (
            "Make the iterator yourself: iterator = tf.data.make_initializable_iterator(dataset), "
            "staged(iterator.get_next()), and feed its initializer in the init_fn of a tf.train.Scaffold, or before "
            "staging.start()."
        )
    return (
        "Apply the placeholder to the staged tensors instead, or replace it by a variable or a "
        "tf.placeholder_with_default()."
    )
