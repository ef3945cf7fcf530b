"""Warns of a step that combines staged tensors with tensors that they were made of, which belong to another batch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from staging_tf1._tf import tf
from staging_tf1.errors import StagingWarning, warn
from staging_tf1.feed.chain import Handler, Look, Stage
from staging_tf1.feed.pipeline import Pipeline
from staging_tf1.graph.callsite import site_of_op
from staging_tf1.graph.dependencies import ancestors, can_end


class Mispaired(Handler):
    """Looks at each set of fetches once, and does nothing around their runs."""

    def __init__(self) -> None:
        self._warned: set[Pipeline] = set()

    def stage(self, look: Look) -> Stage | None:
        """See base class."""
        for pipeline in set(look.pipelines) - self._warned:
            for op in _taken_twice(look, pipeline):
                self._warned.add(pipeline)
                site = site_of_op(op)
                made = "" if site is None else f" (made at {site})"
                warn(
                    f"the step takes from {op.name!r}{made} itself, and also uses '{pipeline.name}' (made at "
                    f"{pipeline.plan.made_at}), which stages what another run has taken from it. So the step combines "
                    f"records of two batches. Stage all that the step uses: staged((images, labels)).",
                    StagingWarning,
                )
                break
        return None


def _taken_twice(look: Look, pipeline: Pipeline) -> Iterator[Any]:
    """The ops that take the next batch, of those that both the step and what `pipeline` stages depend on."""
    values = [entry.values for entry in pipeline.plan.inputs if entry.is_computed]
    leaves = tf.nest.flatten(values, expand_composites=True)
    computed = ancestors(leaf for leaf in leaves if isinstance(leaf, tf.Tensor))
    return (op for op in computed if op.name in look.ops and can_end(op))
