"""Pipelines in the sessions that an Estimator creates: their hook, and which positions its checkpoints hold.

An Estimator builds a new graph for each training, evaluation and prediction, and creates the session itself. After the
`model_fn` the graph is complete and not yet finalized.
"""

from __future__ import annotations

import functools
import sys
from types import ModuleType
from typing import Any

_HOOKS_OF_MODES = {"train": "training_hooks", "eval": "evaluation_hooks", "infer": "prediction_hooks"}
# An attribute of the graph: the Estimator's own hooks that initialize the iterators of the `input_fn`.
_INITIALIZERS = "_staging_tf1_iterator_hooks"


def serve(estimator: ModuleType) -> None:
    """Make all Estimators run the pipelines of their graphs, as a `StagingHook` in their ``hooks=`` does.

    `estimator` is the module of the package that defines `Estimator`.
    """
    _add_hook(estimator.Estimator)
    _note_iterators(estimator.estimator_util._DatasetInitializerHook)


def iterator_hooks(graph: Any) -> list[Any]:
    """Return the hooks that initialize the iterators of datasets that the `input_fn` returned."""
    return list(getattr(graph, _INITIALIZERS, ()))


def _add_hook(estimator_class: Any) -> None:
    kept = estimator_class._call_model_fn

    @functools.wraps(kept)
    def call_model_fn(self: Any, features: Any, labels: Any, mode: str, config: Any) -> Any:
        spec = kept(self, features, labels, mode, config)
        # Where this module is not loaded, there is no pipeline.
        if "staging_tf1.feed.pipeline" not in sys.modules:
            return spec
        from staging_tf1.legacy.shim.estimator import pipelines

        hook = pipelines.hook_for_graph(saves_positions=mode == "train" and config.is_chief)
        if hook is None:
            return spec
        field = _HOOKS_OF_MODES[mode]
        return spec._replace(**{field: (*(getattr(spec, field) or ()), hook)})

    estimator_class._call_model_fn = call_model_fn


def _note_iterators(hook_class: Any) -> None:
    kept = hook_class.__init__

    @functools.wraps(kept)
    def init(self: Any, iterator: Any) -> None:
        kept(self, iterator)
        graph = iterator.initializer.graph
        setattr(graph, _INITIALIZERS, [*iterator_hooks(graph), self])

    hook_class.__init__ = init
