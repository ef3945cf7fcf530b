"""Lets Keras 2 make the graphs that TF1 made: names of variables, numbers of ops, shapes and what models accept.

See `graphs.py` for why the numbers of ops matter.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable
from types import ModuleType
from typing import Any

from staging_tf1.legacy.shim import keras_two
from staging_tf1.legacy.shim.graphs import Changes, count_more
from staging_tf1.legacy.shim.keras_images import change_images

_CHANGES = Changes()
_CHANGES.after("preprocessing.image")(change_images)
# The attribute of a layer that has been called.
_CALLED = "_staging_tf1_called"


@_CHANGES.instead_of("layers.convolutional.base_conv", "Conv.convolution_op")
def _convolution(inside: Any, genuine: Any, self: Any, *arguments: Any, **how: Any) -> Any:
    """Let convolutional layers make the constant of a dilation of 1 once."""
    tf = inside["tf"]
    result = genuine(self, *arguments, **how)
    is_first = not self.__dict__.get(_CALLED)
    self.__dict__[_CALLED] = True
    if is_first and not tf.executing_eagerly() and all(rate == 1 for rate in self.dilation_rate):
        tf.constant(self.dilation_rate, tf.int32, name="dilation_rate")
    return result


@_CHANGES.instead_of("layers.convolutional.base_conv", "Conv.__init__")
def _filters(inside: Any, genuine: Any, self: Any, *arguments: Any, **how: Any) -> Any:
    filters = how.get("filters", arguments[1] if len(arguments) > 1 else None)
    if isinstance(filters, float) and not filters.is_integer():
        raise ValueError(f"Ambiguous dimension: {filters}")  # Keras 2 rounds it
    return genuine(self, *arguments, **how)


@_CHANGES.instead_of("layers.normalization.batch_normalization", "BatchNormalizationBase._fused_batch_norm")
def _normalization(inside: Any, genuine: Any, self: Any, *arguments: Any, training: Any, **how: Any) -> Any:
    """Let fused batch normalization make its constants."""
    tf = inside["tf"]
    result = genuine(self, *arguments, training=training, **how)
    constant = tf.get_static_value(training)
    if constant is None and hasattr(self.moving_mean, "handle") and not tf.executing_eagerly():
        count_more(-2)
    if constant is not None and not tf.executing_eagerly():
        # With resource variables, the means and variances are read instead.
        are_read = constant and hasattr(self.moving_mean, "handle")
        for _ in range(0 if are_read else 2 if constant else 1):
            tf.constant([], tf.float32)
    return result


@_CHANGES.after("engine.functional")
def _inputs(inside: Any) -> None:
    """Let models take inputs of another rank, size and dtype than they declare, and leave them as they are.

    TF1 asked each layer only. Keras 2 also asks the model, and adds or removes a last axis of 1 to make ranks equal. It
    casts the numbers of words to float32, which is not exact beyond 2 ** 24.
    """
    declared = inside["Functional"].input_spec

    def number_of_inputs(self: Any) -> Any:
        specs = declared.fget(self)
        if not hasattr(self, "_manual_input_spec"):
            for spec in specs or ():  # made for this call
                spec.shape = None
        return specs

    inside["Functional"].input_spec = property(number_of_inputs, declared.fset)


@_CHANGES.instead_of("engine.functional", "Functional._conform_to_reference_input")
def _input(inside: Any, genuine: Any, self: Any, tensor: Any, ref_input: Any) -> Any:
    # Its fit() relies on it for vectors, when it runs eagerly.
    is_eager = inside["tf"].compat.v1.executing_eagerly_outside_functions()
    return genuine(self, tensor, ref_input) if is_eager else tensor


@_CHANGES.instead_of("layers.reshaping.flatten", "Flatten.call")
def _flattening(inside: Any, genuine: Any, self: Any, inputs: Any) -> Any:
    """Let `Flatten` keep the batch size of its input, known or not."""
    tf = inside["tf"]
    if tf.executing_eagerly() or self._channels_first or inputs.shape.rank in (None, 1):
        return genuine(self, inputs)
    rows = tf.compat.dimension_value(inputs.shape[0]) or tf.shape(inputs)[0]
    flat = tf.reshape(inputs, (rows, -1))
    flat.set_shape(self.compute_output_shape(inputs.shape))
    return flat


@_CHANGES.instead_of("layers.convolutional.conv2d_transpose", "Conv2DTranspose.call")
def _transposed_layer(inside: Any, genuine: Any, self: Any, inputs: Any) -> Any:
    """Let ops compute the size of the result of `Conv2DTranspose`, also from a size that is known."""
    tf = inside["tf"]
    backend, lengths = inside["backend"], inside["conv_utils"]
    if tf.executing_eagerly() or not inputs.shape.rank:
        return genuine(self, inputs)
    sizes, has_channels_last = tf.shape(inputs), self.data_format != "channels_first"
    batch, *shape = [sizes[axis] for axis in ((0, 1, 2) if has_channels_last else (0, 2, 3))]
    sides = zip(shape, self.kernel_size, self.output_padding or (None, None), self.strides, self.dilation_rate)
    shape = [
        lengths.deconv_output_length(size, kernel, self.padding, padding, stride, dilation)
        for size, kernel, padding, stride, dilation in sides
    ]
    shape = [batch, *shape, self.filters] if has_channels_last else [batch, self.filters, *shape]
    result = backend.conv2d_transpose(
        inputs, self.kernel, tf.stack(shape), self.strides, self.padding, self.data_format, self.dilation_rate
    )
    result.set_shape(self.compute_output_shape(inputs.shape))
    if self.use_bias:
        result = tf.nn.bias_add(result, self.bias, lengths.convert_data_format(self.data_format, ndim=4))
    return result if self.activation is None else self.activation(result)


@_CHANGES.after("engine.base_layer")
def _layers(inside: Any) -> None:
    """Let layers of Keras have `apply`."""
    inside["Layer"].apply = lambda self, inputs, *arguments, **how: self(inputs, *arguments, **how)


@_CHANGES.after("engine.sequential")
def _sequential(inside: Any) -> None:
    """Let sequential models of Keras predict classes and probabilities."""

    def predict_proba(self: Any, x: Any, batch_size: int = 32, verbose: int = 0) -> Any:
        return self.predict(x, batch_size=batch_size, verbose=verbose)

    def predict_classes(self: Any, x: Any, batch_size: int = 32, verbose: int = 0) -> Any:
        found = self.predict(x, batch_size=batch_size, verbose=verbose)
        return found.argmax(axis=-1) if found.shape[-1] > 1 else (found > 0.5).astype("int32")

    kind = inside["Sequential"]
    kind.predict_proba, kind.predict_classes = predict_proba, predict_classes


@_CHANGES.after("layers.rnn.base_rnn")
@_CHANGES.after("layers.rnn.stacked_rnn_cells")
def _cells(inside: Any) -> None:
    """Let the variables of recurrent layers have names without that of the cell: ``lstm/kernel``."""
    names = {"name_scope": lambda name: contextlib.nullcontext()}  # used for cells only
    inside["backend"] = keras_two.Covered(inside["backend"], names)


@_CHANGES.after("regularizers")
def _regularizers(inside: Any) -> None:
    """Let the losses of weights be made of the ops of one class for both kinds."""
    tf = inside["tf"]

    def __call__(self: Any, x: Any) -> Any:
        loss, l1, l2 = 0.0, getattr(self, "l1", None), getattr(self, "l2", None)
        if l1:
            loss += l1 * tf.reduce_sum(tf.abs(x))
        if l2:
            loss += l2 * tf.reduce_sum(tf.square(x))
        return loss if l1 or l2 else inside["backend"].constant(0.0)

    for kind in ("L1", "L2", "L1L2"):
        inside[kind].__call__ = __call__


def _of_resizing(x: Any, height: Any, width: Any, data_format: str, *_: Any, **how: Any) -> int:
    sizes = x.shape[2:4] if data_format == "channels_first" else x.shape[1:3]
    return 4 if sizes.is_fully_defined() else 0  # the sizes of `UpSampling2D` count as computed by ops


def _of_distribution(self: Any, inputs: Any, *_: Any, **how: Any) -> int:
    # As without restoring the shape of its inputs.
    return -2 if self._always_use_reshape or not getattr(inputs, "shape", [None])[0] else 0


_CHANGES.counts("backend", "resize_images", _of_resizing)
_CHANGES.counts("layers.rnn.time_distributed", "TimeDistributed.call", _of_distribution)


@_CHANGES.instead_of("utils.generic_utils", "to_snake_case")
def _snake_case(inside: Any, genuine: Any, name: str) -> str:
    """Let a digit end a word in the names of layers: ``conv_lst_m2d``, ``vg_g16``."""
    words = re.sub("([a-z])([A-Z])", r"\1_\2", re.sub("(.)([A-Z][a-z0-9]+)", r"\1_\2", name)).lower()
    return f"private{words}" if words.startswith("_") else words


@_CHANGES.after("optimizers.legacy.adagrad")
def _adagrad(inside: Any) -> None:
    """Let Adagrad begin at 0 where its configuration does not say at what, as for `compile("adagrad")`."""
    genuine = inside["Adagrad"].from_config.__func__

    def from_config(cls: Any, config: dict[str, Any], custom_objects: Any = None) -> Any:
        return genuine(cls, {"initial_accumulator_value": 0.0, **config}, custom_objects)

    inside["Adagrad"].from_config = classmethod(from_config)


@_CHANGES.instead_of("utils.losses_utils", "apply_valid_mask")
def _mask(inside: Any, genuine: Any, losses: Any, sw: Any, mask: Any, reduction: Any) -> Any:
    """Let Keras divide a masked loss by the number of all entries, also of those that the mask leaves out."""
    # The weights are scaled for one kind of reduction only.
    return genuine(losses, sw, mask, None)


def _unless_keras_three(change: Callable[[ModuleType], None]) -> Callable[[ModuleType], None]:
    # Some of its modules have the same names.
    return lambda module: change(module) if keras_two.has_keras_two(of_tensorflow=True) else None


# As `graphs.CHANGES`.
CHANGES: dict[str, Callable[[ModuleType], None]] = {
    **{f"tf_keras.src.{module}": change for module, change in _CHANGES.by_module().items()},
    **{f"keras.src.{module}": _unless_keras_three(change) for module, change in _CHANGES.by_module().items()},
}
