"""What `tf.contrib.estimator` and `tf.contrib.tpu` had of Estimators, on the package `tensorflow-estimator`."""

from __future__ import annotations

import functools
import importlib
from typing import Any

from staging_tf1._tf import tf
from staging_tf1.errors import RemovedNameError
from staging_tf1.legacy.contrib.homes import ESTIMATOR_HEADS, MOVED_TO_ESTIMATOR
from staging_tf1.legacy.shim.estimator import names

_FORESTS = "Use the package tensorflow-decision-forests."
_RNN = "Write a model_fn with tf.nn.dynamic_rnn and tf.estimator.MultiClassHead."
_TOWERS = "Use RunConfig(train_distribute=tf.distribute.MirroredStrategy()), or average the gradients in the model_fn."
_MODES = "Use Estimator.experimental_export_all_saved_models, which takes a function for each mode."
# What to do about the other names that tf.contrib.estimator had in 1.15.
_CURES = {
    "DNNClassifierWithLayerAnnotations": "Use tf.estimator.DNNClassifier.",
    "DNNRegressorWithLayerAnnotations": "Use tf.estimator.DNNRegressor.",
    "RNNClassifier": _RNN,
    "RNNEstimator": _RNN,
    "SavedModelEstimator": "Load the model with tf.saved_model.load in a model_fn.",
    "TowerOptimizer": _TOWERS,
    "boosted_trees_classifier_train_in_memory": _FORESTS,
    "boosted_trees_regressor_train_in_memory": _FORESTS,
    "build_supervised_input_receiver_fn_from_input_fn": "Use build_raw_supervised_input_receiver_fn.",
    "export_saved_model_for_mode": _MODES,
    "forward_features": "Add the features to the predictions in the model_fn.",
    "multi_head": "Use tf.estimator.MultiHead, and heads of tf.estimator in it.",
    "multi_label_head": "Use tf.estimator.MultiLabelHead.",
    "replicate_model_fn": _TOWERS,
}


class _Names:
    """What `tf.contrib.<part>` had of Estimators."""

    def __init__(self, part: str) -> None:
        self._part = part

    def __getattr__(self, name: str) -> Any:
        """Return a name.

        Raises RemovedNameError if it is not restored, or if the package is not installed.
        """
        if name in MOVED_TO_ESTIMATOR[self._part]:
            return names.find(MOVED_TO_ESTIMATOR[self._part][name])
        if self._part == "tpu" or name.startswith("__"):
            raise AttributeError(name)
        if name in ESTIMATOR_HEADS:
            return _head(ESTIMATOR_HEADS[name])
        if name in _OWN:
            return _OWN[name]
        if name not in _CURES:
            raise AttributeError(name)
        raise RemovedNameError(
            f"tf.contrib.estimator.{name} was removed with tf.contrib, and the package tensorflow-estimator lacks it. "
            f"{_CURES[name]}"
        )

    def __dir__(self) -> list[str]:
        return sorted(
            {
                *MOVED_TO_ESTIMATOR[self._part],
                *({*ESTIMATOR_HEADS, *_OWN, *_CURES} if self._part == "estimator" else ()),
            }
        )


estimator = _Names("estimator")
tpu = _Names("tpu")


def logistic_regression_head(
    weight_column: Any = None,
    loss_reduction: str = tf.losses.Reduction.SUM_OVER_BATCH_SIZE,
    name: str | None = None,
) -> Any:
    """Return a head for labels between 0 and 1, with a sigmoid over the logits."""

    def loss_fn(labels: Any, logits: Any) -> Any:
        return tf.nn.sigmoid_cross_entropy_with_logits(labels=labels, logits=logits)

    return _head("_regression_head")(
        weight_column, loss_reduction=loss_reduction, loss_fn=loss_fn, inverse_link_fn=tf.sigmoid, name=name
    )


def poisson_regression_head(
    weight_column: Any = None,
    label_dimension: int = 1,
    loss_reduction: str = tf.losses.Reduction.SUM_OVER_BATCH_SIZE,
    compute_full_loss: bool = True,
    name: str | None = None,
) -> Any:
    """Return a head for counts, whose mean is the exponential of the logits."""

    def loss_fn(labels: Any, logits: Any) -> Any:
        return tf.nn.log_poisson_loss(labels, logits, compute_full_loss)

    return _head("_regression_head")(
        weight_column,
        label_dimension,
        loss_reduction=loss_reduction,
        loss_fn=loss_fn,
        inverse_link_fn=tf.exp,
        name=name,
    )


def clip_gradients_by_norm(optimizer: Any, clip_norm: Any) -> Any:
    """Return an optimizer that scales all gradients down to a global norm of `clip_norm`, and applies `optimizer`."""
    return _Clipping(optimizer, clip_norm)


class _Clipping(tf.train.Optimizer):  # type: ignore[misc]
    def __init__(self, optimizer: Any, clip_norm: Any) -> None:
        super().__init__(use_locking=False, name=f"{optimizer.get_name()}_clipped")
        self._optimizer = optimizer
        self._clip_norm = clip_norm

    def compute_gradients(self, *args: Any, **kwargs: Any) -> Any:
        return self._optimizer.compute_gradients(*args, **kwargs)

    def apply_gradients(self, grads_and_vars: Any, *args: Any, **kwargs: Any) -> Any:
        gradients, variables = zip(*grads_and_vars, strict=True)
        clipped, _ = tf.clip_by_global_norm(gradients, self._clip_norm)
        return self._optimizer.apply_gradients(list(zip(clipped, variables, strict=True)), *args, **kwargs)

    def get_slot(self, *args: Any, **kwargs: Any) -> Any:
        return self._optimizer.get_slot(*args, **kwargs)

    def get_slot_names(self, *args: Any, **kwargs: Any) -> Any:
        return self._optimizer.get_slot_names(*args, **kwargs)

    def variables(self) -> Any:
        return self._optimizer.variables()


_OWN = {
    function.__name__: function
    for function in (clip_gradients_by_norm, logistic_regression_head, poisson_regression_head)
}


def _head(private: str) -> Any:
    """Return the function of the package that makes a head of the kind that `tf.contrib.estimator` had."""
    names.find("Head")
    module = importlib.import_module(f"{names.PACKAGE}.python.estimator.canned.head")
    # The premade estimators sum the losses of a batch; tf.contrib.estimator took their mean.
    return functools.partial(getattr(module, private), loss_reduction=tf.losses.Reduction.SUM_OVER_BATCH_SIZE)
