"""Lets TensorFlow and Keras 2 make the graphs that TF1 made: seeds, numbers of ops, sizes, shapes and attributes.

A random op without a seed of its own gets one from the graph's. TF1 used the number of ops that the graph had.
TensorFlow 2 counts the random ops instead, so after ``tf.set_random_seed(1)`` it draws other numbers than TF1. Several
functions also make fewer or more ops than in TF1. The most usual of them make the same ops again, so that random ops
behind them have the same seed.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any

from staging_tf1.legacy.shim import keras_two
from staging_tf1.legacy.shim.keras_images import change_images
from staging_tf1.legacy.shim.tensorflow_names import ATTRIBUTES

# Ops whose unused outputs have other shapes than in TF1, and the attribute of the shapes in saved graphs.
_OTHER_SHAPES = ("FusedBatchNormGrad", "FusedBatchNormGradV2", "FusedBatchNormGradV3")
_SAVED_SHAPES = "_output_shapes"


class _NumbersOfOps(dict[Any, int]):
    """Stands in for TensorFlow's dictionary of the next seed of each graph."""

    def setdefault(self, graph: Any, default: int = 0) -> int:
        return int(graph.version)

    def __getitem__(self, graph: Any) -> int:
        return 0

    def __setitem__(self, graph: Any, seed: int) -> None:
        pass  # the next seed depends on the graph only


def _change_seeds(module: ModuleType) -> None:
    module.__dict__["_graph_to_seed_dict"] = _NumbersOfOps()


def _change_uniform(module: ModuleType) -> None:
    """Let `random_uniform` scale numbers between 0 and 1, too."""
    to_dtype = module.__dict__["dtypes"].as_dtype

    def as_before(genuine: Any, shape: Any, minval: Any = 0, maxval: Any = None, dtype: Any = "float32", *more: Any,
                  **how: Any) -> Any:  # fmt: skip
        if to_dtype(dtype).is_floating:
            # Bounds of type int are left out of the graph.
            minval = float(minval) if isinstance(minval, int) else minval
            maxval = 1.0 if maxval is None else float(maxval) if isinstance(maxval, int) else maxval
        return genuine(shape, minval, maxval, dtype, *more, **how)

    _wrap(module, "random_uniform", as_before)


def _change_dropout(module: ModuleType) -> None:
    """Let dropout multiply with a mask, in graphs."""
    inside = module.__dict__

    def as_before(genuine: Any, x: Any, rate: Any, noise_shape: Any, uniform_sampler: Any, dummy_rng_step: Any,
                  name: Any, default_name: str) -> Any:  # fmt: skip
        if inside["context"].executing_eagerly() or default_name != "dropout":
            return genuine(x, rate, noise_shape, uniform_sampler, dummy_rng_step, name, default_name)
        with inside["ops"].name_scope(name, default_name, [x]):
            x = inside["ops"].convert_to_tensor(x, name="x")
            is_number = isinstance(rate, (int, float))
            if not x.dtype.is_floating or (is_number and not 0 < rate < 1):
                return genuine(x, rate, noise_shape, uniform_sampler, dummy_rng_step, name, default_name)
            rate = inside["ops"].convert_to_tensor(rate, dtype=x.dtype, name="rate")
            if inside["tensor_util"].constant_value(rate) == 0:
                return x
            numbers = uniform_sampler(shape=inside["_get_noise_shape"](x, noise_shape), dtype=x.dtype)
            scale = 1 / (1 - rate)
            kept = numbers >= rate
            result = x * scale * inside["math_ops"].cast(kept, x.dtype)
            result.set_shape(x.get_shape())
            return result

    _wrap(module, "_dropout", as_before)


def _change_split(module: ModuleType) -> None:
    """Let `tf.split` make the constant of the number of pieces.

    `tf.split` itself is registered for dispatch, by its identity.
    """
    ops, context = module.__dict__["_ops"], module.__dict__["_context"]

    def as_before(genuine: Any, axis: Any, value: Any, num_split: Any, name: Any = None) -> Any:
        if not context.context().executing_eagerly():
            ops.convert_to_tensor(num_split)
        return genuine(axis, value, num_split, name)

    _wrap(module, "split", as_before)


def _change_convolution(module: ModuleType) -> None:
    """Let convolutional layers make the constant of their dilation, and refuse a part of a filter."""
    tf = module.__dict__["tf"]

    def as_before(genuine: Any, self: Any, *arguments: Any, **how: Any) -> Any:
        result = genuine(self, *arguments, **how)
        if not tf.executing_eagerly():
            tf.constant(self.dilation_rate, tf.int32, name="dilation_rate")
        return result

    def with_filters(genuine: Any, self: Any, *arguments: Any, **how: Any) -> Any:
        filters = how.get("filters", arguments[1] if len(arguments) > 1 else None)
        if isinstance(filters, float) and not filters.is_integer():
            raise ValueError(f"Ambiguous dimension: {filters}")  # Keras 2 rounds it
        return genuine(self, *arguments, **how)

    _wrap(module.__dict__["Conv"], "convolution_op", as_before)
    _wrap(module.__dict__["Conv"], "__init__", with_filters)


def _change_normalization(module: ModuleType) -> None:
    """Let fused batch normalization make its constants."""
    tf = module.__dict__["tf"]

    def as_before(genuine: Any, self: Any, *arguments: Any, training: Any, **how: Any) -> Any:
        result = genuine(self, *arguments, training=training, **how)
        constant = tf.get_static_value(training)
        if constant is not None and not tf.executing_eagerly():
            for _ in range(2 if constant else 1):
                tf.constant([], tf.float32)
        return result

    _wrap(module.__dict__["BatchNormalizationBase"], "_fused_batch_norm", as_before)


def _change_models(module: ModuleType) -> None:
    """Let models take inputs of another rank and size than they declare, and leave their rank as it is.

    TF1 asked each layer only. Keras 2 also asks the model, and adds or removes a last axis of 1 to make ranks equal.
    """
    tf = module.__dict__["tf"]
    model = module.__dict__["Functional"]
    declared = model.input_spec

    def number_of_inputs(self: Any) -> Any:
        specs = declared.fget(self)
        if not hasattr(self, "_manual_input_spec"):
            for spec in specs or ():  # made for this call
                spec.shape = None
        return specs

    def as_before(genuine: Any, self: Any, tensor: Any, ref_input: Any) -> Any:
        if tf.compat.v1.executing_eagerly_outside_functions():
            return genuine(self, tensor, ref_input)  # its fit() relies on it for vectors
        return genuine(self, tensor, SimpleNamespace(shape=tf.TensorShape(None), dtype=ref_input.dtype))

    model.input_spec = property(number_of_inputs, declared.fset)
    _wrap(model, "_conform_to_reference_input", as_before)


def _change_transposed_convolution(module: ModuleType) -> None:
    """Give the result of `conv2d_transpose` the shape that the program names, if it is constant.

    TensorFlow 2 takes its batch size from the input instead, so a program with a placeholder of any batch size, and a
    constant one in `output_shape`, gets an unknown size.
    """

    def as_before(genuine: Any, *arguments: Any, **how: Any) -> Any:
        result = genuine(*arguments, **how)
        op = getattr(result, "op", None)  # None outside graphs
        if op is not None and op.type == "Conv2DBackpropInput":
            result.set_shape(module.__dict__["tensor_util"].constant_value_as_shape(op.inputs[0]))
        return result

    _wrap(module, "conv2d_transpose", as_before)


def _change_tensordot(module: ModuleType) -> None:
    """Let `tensordot` transpose and reshape each argument whose shape is known, also where nothing changes."""
    inside = module.__dict__

    def as_before(genuine: Any, a: Any, b: Any, axes: Any, name: Any = None) -> Any:
        if inside["context"].executing_eagerly():
            return genuine(a, b, axes, name)
        with inside["ops"].name_scope(name, "Tensordot", [a, b, axes]) as scope:
            a, b = (inside["ops"].convert_to_tensor(each) for each in (a, b))
            pair = [[*range(-axes, 0)], [*range(axes)]] if isinstance(axes, int) else axes
            if isinstance(pair, (list, tuple)) and len(pair) == 2:
                a, b = repeated(a, pair[0], False), repeated(b, pair[1], True)
            result = genuine(a, b, axes, scope)
            is_product = result.op.type == "MatMul"
            return inside["array_ops"].reshape(result, result.shape.as_list()) if is_product else result

    def repeated(tensor: Any, axes: Any, first: bool) -> Any:
        """Return the tensor, after the ops that TensorFlow 2 leaves out because they change nothing."""
        axes, rank = [axes] if isinstance(axes, int) else axes, tensor.shape.rank
        if not tensor.shape.is_fully_defined() or not isinstance(axes, (list, tuple)):
            return tensor
        if not all(isinstance(axis, int) and -rank <= axis < rank for axis in axes):
            return tensor  # TensorFlow says what is wrong with them
        shape, summed = tensor.shape.as_list(), [axis % rank for axis in axes]
        free = [axis for axis in range(rank) if axis not in summed]
        order = summed + free if first else free + summed
        parts = [math.prod(shape[axis] for axis in part) for part in ((summed, free) if first else (free, summed))]
        if [shape[axis] for axis in order] == parts:
            tensor = inside["array_ops"].reshape(tensor, shape)
        if order == [*range(rank)]:
            tensor = inside["array_ops"].transpose(tensor, order)
        return tensor

    _wrap(module, "tensordot", as_before)


def _change_arrays(module: ModuleType) -> None:
    """Let an op tell the size of a TensorArray, as in `dynamic_rnn`, even if Python knows it."""
    size = module.__dict__["gen_data_flow_ops"].tensor_array_size_v3

    def as_before(genuine: Any, self: Any, name: Any = None) -> Any:
        return size(handle=self._handle, flow_in=self.flow, name=name)

    _wrap(module.__dict__["_GraphTensorArray"], "size", as_before)


def _change_flattening(module: ModuleType) -> None:
    """Let `Flatten` keep the batch size of its input, known or not."""
    tf = module.__dict__["tf"]

    def as_before(genuine: Any, self: Any, inputs: Any) -> Any:
        if tf.executing_eagerly() or self._channels_first or inputs.shape.rank in (None, 1):
            return genuine(self, inputs)
        rows = tf.compat.dimension_value(inputs.shape[0]) or tf.shape(inputs)[0]
        flat = tf.reshape(inputs, (rows, -1))
        flat.set_shape(self.compute_output_shape(inputs.shape))
        return flat

    _wrap(module.__dict__["Flatten"], "call", as_before)


def _change_transposed_layer(module: ModuleType) -> None:
    """Let ops compute the size of the result of `Conv2DTranspose`, also from a size that is known."""
    tf = module.__dict__["tf"]
    backend, lengths = module.__dict__["backend"], module.__dict__["conv_utils"]

    def as_before(genuine: Any, self: Any, inputs: Any) -> Any:
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

    _wrap(module.__dict__["Conv2DTranspose"], "call", as_before)


def _change_regularization(module: ModuleType) -> None:
    """Compute the regularization loss of a variable once, when `tf.get_variable` makes it.

    TensorFlow 2 calls the regularizer twice, and again for each use of the loss, which is not a tensor.
    """
    ops = module.__dict__["ops"]

    def as_before(genuine: Any, self: Any, name: str, *arguments: Any, regularizer: Any = None, **how: Any) -> Any:
        if regularizer is None or ops.executing_eagerly_outside_functions():
            return genuine(self, name, *arguments, regularizer=regularizer, **how)
        is_new = name not in self._vars
        variable = genuine(self, name, *arguments, **how)
        if is_new:
            with ops.colocate_with(variable), ops.name_scope(f"{name}/Regularizer/"), ops.init_scope():
                loss = regularizer(variable)
            if loss is not None:
                ops.add_to_collection(ops.GraphKeys.REGULARIZATION_LOSSES, loss)
        return variable

    _wrap(module.__dict__["_VariableStore"], "_get_single_variable", as_before)


def _change_dimensions(module: ModuleType) -> None:
    """Let a size be a number that equals an integer, such as ``8 / 2``, which was an integer in Python 2."""
    import numpy as np  # the program is the first to import it

    no_integers = (float, np.floating, np.ndarray, str, bytes)

    def __init__(self: Any, value: Any) -> None:
        try:
            genuine(self, value)
        except TypeError:  # not asked first: there are many dimensions
            if not isinstance(value, no_integers):
                raise
            size = int(value)
            if not isinstance(value, (str, bytes)) and size != value:
                raise ValueError(f"Ambiguous dimension: {value}") from None
            genuine(self, size)

    genuine = module.__dict__["Dimension"].__init__
    module.__dict__["Dimension"].__init__ = __init__


def _change_imports(module: ModuleType) -> None:
    """Load graphs that TF1 saved with other shapes of empty outputs than TensorFlow 2 infers.

    Other ops keep the shapes that were saved: a program may have set them.
    """

    def as_before(genuine: Any, graph_def: Any) -> Any:
        graph_def = genuine(graph_def)
        for node in graph_def.node:
            if node.op in _OTHER_SHAPES and _SAVED_SHAPES in node.attr:
                del node.attr[_SAVED_SHAPES]
        return graph_def

    _wrap(module, "_ProcessGraphDefParam", as_before)


def _change_attributes(module: ModuleType) -> None:
    """Let graphs, operations and tensors have the private attributes of TF1 that programs use."""
    for kind, names in ATTRIBUTES.items():
        module.__dict__[kind].__getattr__ = _reading(names)
    _change_shapes(module)


def _change_shapes(module: ModuleType) -> None:
    """Let programs write the static shape of a tensor into its dictionary, as fid.py and its copies do."""
    tensor: Any = module.__dict__.get("SymbolicTensor")
    own: Any = getattr(tensor, "_shape_val", None)
    if not hasattr(own, "__set__"):
        return  # it is in the dictionary

    def shape(self: Any) -> Any:
        written = self.__dict__.get("_shape_val")
        return own.__get__(self) if written is None else written

    def set_shape(self: Any, shape: Any) -> None:
        self.__dict__.pop("_shape_val", None)
        own.__set__(self, shape)

    tensor._shape_val = property(shape, set_shape)


def _reading(names: dict[str, str]) -> Callable[[Any, str], Any]:
    def __getattr__(self: Any, name: str) -> Any:
        if name in names:
            return getattr(self, names[name])
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}", name=name, obj=self)

    return __getattr__


def _change_layers(module: ModuleType) -> None:
    """Let layers of Keras have `apply`."""

    def apply(self: Any, inputs: Any, *arguments: Any, **how: Any) -> Any:
        return self(inputs, *arguments, **how)

    module.__dict__["Layer"].apply = apply


def _change_sequential(module: ModuleType) -> None:
    """Let sequential models of Keras predict classes and probabilities."""

    def predict_proba(self: Any, x: Any, batch_size: int = 32, verbose: int = 0) -> Any:
        return self.predict(x, batch_size=batch_size, verbose=verbose)

    def predict_classes(self: Any, x: Any, batch_size: int = 32, verbose: int = 0) -> Any:
        found = self.predict(x, batch_size=batch_size, verbose=verbose)
        return found.argmax(axis=-1) if found.shape[-1] > 1 else (found > 0.5).astype("int32")

    kind = module.__dict__["Sequential"]
    kind.predict_proba, kind.predict_classes = predict_proba, predict_classes


def _change_adagrad(module: ModuleType) -> None:
    """Let Adagrad begin at 0 where its configuration does not say at what, as for `compile("adagrad")`."""
    kind = module.__dict__["Adagrad"]
    genuine = kind.from_config.__func__

    def from_config(cls: Any, config: dict[str, Any], custom_objects: Any = None) -> Any:
        return genuine(cls, {"initial_accumulator_value": 0.0, **config}, custom_objects)

    kind.from_config = classmethod(from_config)


def _change_masks(module: ModuleType) -> None:
    """Let Keras divide a masked loss by the number of all entries, also of those that the mask leaves out."""

    def as_before(genuine: Any, losses: Any, sw: Any, mask: Any, reduction: Any) -> Any:
        # The weights are scaled for one kind of reduction only.
        return genuine(losses, sw, mask, None)

    _wrap(module, "apply_valid_mask", as_before)


def _wrap(owner: Any, name: str, as_before: Callable[..., Any]) -> None:
    genuine = getattr(owner, name)

    @functools.wraps(genuine)
    def wrapped(*arguments: Any, **how: Any) -> Any:
        return as_before(genuine, *arguments, **how)

    setattr(owner, name, wrapped)


def _change_nn(module: ModuleType) -> None:
    _change_transposed_convolution(module)
    _change_dropout(module)


def _unless_keras_three(change: Callable[[ModuleType], None]) -> Callable[[ModuleType], None]:
    # Some of its modules have the same names.
    return lambda module: change(module) if keras_two.has_keras_two(of_tensorflow=True) else None


_OF_KERAS_TWO = {
    "src.engine.base_layer": _change_layers,
    "src.engine.functional": _change_models,
    "src.engine.sequential": _change_sequential,
    "src.layers.convolutional.base_conv": _change_convolution,
    "src.layers.convolutional.conv2d_transpose": _change_transposed_layer,
    "src.layers.normalization.batch_normalization": _change_normalization,
    "src.layers.reshaping.flatten": _change_flattening,
    "src.optimizers.legacy.adagrad": _change_adagrad,
    "src.preprocessing.image": change_images,
    "src.utils.losses_utils": _change_masks,
}
# The functions that change loaded modules, for all graphs of this process, by the full name of the module.
CHANGES: dict[str, Callable[[ModuleType], None]] = {
    "tensorflow.python.framework.importer": _change_imports,
    "tensorflow.python.framework.ops": _change_attributes,
    "tensorflow.python.framework.random_seed": _change_seeds,
    "tensorflow.python.framework.tensor_shape": _change_dimensions,
    "tensorflow.python.ops.gen_array_ops": _change_split,
    "tensorflow.python.ops.math_ops": _change_tensordot,
    "tensorflow.python.ops.nn_ops": _change_nn,
    "tensorflow.python.ops.random_ops": _change_uniform,
    "tensorflow.python.ops.tensor_array_ops": _change_arrays,
    "tensorflow.python.ops.variable_scope": _change_regularization,
    **{f"tf_keras.{module}": change for module, change in _OF_KERAS_TWO.items()},
    **{f"keras.{module}": _unless_keras_three(change) for module, change in _OF_KERAS_TWO.items()},
}
