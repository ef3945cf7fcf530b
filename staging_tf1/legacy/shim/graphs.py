"""Lets TensorFlow make the graphs that TF1 made: seeds, numbers of ops, sizes, shapes and attributes.

A random op without a seed of its own gets one from the graph's. TF1 used the number of ops that the graph had.
TensorFlow 2 counts the random ops instead, so after ``tf.set_random_seed(1)`` it draws other numbers than TF1. Several
functions also make fewer or more ops than in TF1. The most usual of them make the same ops again, or count as if they
did, so that random ops behind them have the same seed.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import math
import operator
from collections.abc import Callable
from types import ModuleType
from typing import Any, TypeVar

from staging_tf1.legacy.shim import keras_two

# Ops whose unused outputs have other shapes than in TF1, and the attribute of the shapes in saved graphs.
_OTHER_SHAPES = ("FusedBatchNormGrad", "FusedBatchNormGradV2", "FusedBatchNormGradV3")
# Class of tensorflow.python.framework.ops -> private attribute that programs read -> its name today.
_ATTRIBUTES: dict[str, dict[str, str]] = {
    "Graph": {"_last_id": "version", "_next_id_counter": "version", "_version": "version"},
    "Operation": {
        "_control_inputs": "control_inputs",
        "_graph": "graph",
        "_inputs": "inputs",
        "_outputs": "outputs",
        "_traceback": "traceback",
    },
}
_Change = TypeVar("_Change", bound=Callable[..., Any])
_SAVED_SHAPES = "_output_shapes"
# The attribute of a graph that counts the ops that TF1 would have made more, or fewer.
_MORE = "_staging_tf1_more_ops"


class Changes:
    """Changes of loaded modules, for all graphs of this process.

    A change gets the dictionary of its module. One of a function also gets the genuine function, and its arguments.
    """

    def __init__(self) -> None:
        self._changes: dict[str, list[Callable[..., Any]]] = {}

    def by_module(self) -> dict[str, Callable[[ModuleType], None]]:
        """Return the functions that change a module, by its full name."""
        return {module: functools.partial(_make, changes) for module, changes in self._changes.items()}

    def after(self, module: str) -> Callable[[_Change], _Change]:
        """Call the decorated function when a module is loaded."""

        def note(change: _Change) -> _Change:
            self._changes.setdefault(module, []).append(change)
            return change

        return note

    def instead_of(self, module: str, name: str) -> Callable[[_Change], _Change]:
        """Call the decorated function in place of a function, or of "Class.method"."""

        def note(change: _Change) -> _Change:
            self.after(module)(lambda inside: _wrap(inside, name, change))
            return change

        return note

    def counts(self, module: str, name: str, more: int | Callable[..., int]) -> None:
        """Let a function count as one of TF1 that made so many more ops, or fewer."""

        @self.instead_of(module, name)
        def as_before(inside: Any, genuine: Any, *arguments: Any, **how: Any) -> Any:
            result = genuine(*arguments, **how)
            count_more(more if isinstance(more, int) else more(*arguments, **how))
            return result


def _make(changes: list[Callable[..., Any]], module: ModuleType) -> None:
    for change in changes:
        change(vars(module))


def _wrap(inside: Any, name: str, change: Callable[..., Any]) -> None:
    kind, _, method = name.rpartition(".")
    genuine = getattr(inside[kind], method) if kind else inside[name]

    @functools.wraps(genuine)
    def wrapped(*arguments: Any, **how: Any) -> Any:
        return change(inside, genuine, *arguments, **how)

    if kind:
        setattr(inside[kind], method, wrapped)
    else:
        inside[name] = wrapped


_CHANGES = Changes()


class _NumbersOfOps(dict[Any, int]):
    """Stands in for TensorFlow's dictionary of the next seed of each graph."""

    def setdefault(self, graph: Any, default: int = 0) -> int:
        return int(graph.version) + int(getattr(graph, _MORE, 0))

    def __getitem__(self, graph: Any) -> int:
        return 0

    def __setitem__(self, graph: Any, seed: int) -> None:
        pass  # the next seed depends on the graph only


def count_more(number: int) -> None:
    """Let the graph count as one of TF1 with so many more ops, or fewer."""
    graph = importlib.import_module("tensorflow.python.framework.ops").get_default_graph()
    setattr(graph, _MORE, getattr(graph, _MORE, 0) + number)


@_CHANGES.after("tensorflow.python.framework.random_seed")
def _seeds(inside: Any) -> None:
    inside["_graph_to_seed_dict"] = _NumbersOfOps()


@_CHANGES.instead_of("tensorflow.python.ops.random_ops", "random_uniform")
def _uniform(
    inside: Any,
    genuine: Any,
    shape: Any,
    minval: Any = 0,
    maxval: Any = None,
    dtype: Any = "float32",
    *more: Any,
    **how: Any,
) -> Any:
    """Let `random_uniform` scale numbers between 0 and 1, too."""
    to_dtype = inside["dtypes"].as_dtype
    if to_dtype(dtype).is_floating:
        # Bounds of type int are left out of the graph.
        minval = float(minval) if isinstance(minval, int) else minval
        maxval = 1.0 if maxval is None else float(maxval) if isinstance(maxval, int) else maxval
    return genuine(shape, minval, maxval, dtype, *more, **how)


_CHANGES.counts("tensorflow.python.ops.random_ops", "random_gamma", -2)


@_CHANGES.instead_of("tensorflow.python.ops.nn_ops", "_dropout")
def _dropout(
    inside: Any,
    genuine: Any,
    x: Any,
    rate: Any,
    noise_shape: Any,
    uniform_sampler: Any,
    dummy_rng_step: Any,
    name: Any,
    default_name: str,
) -> Any:
    """Let dropout multiply with a mask, in graphs."""
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


@_CHANGES.instead_of("tensorflow.python.ops.gen_array_ops", "split")
def _split(inside: Any, genuine: Any, axis: Any, value: Any, num_split: Any, name: Any = None) -> Any:
    """Let `tf.split` make the constant of the number of pieces, and `tf.one_hot` each number that is given twice.

    The functions themselves are registered for dispatch, by their identity.
    """
    ops, context = inside["_ops"], inside["_context"]
    if not context.context().executing_eagerly():
        ops.convert_to_tensor(num_split)
    return genuine(axis, value, num_split, name)


def _of_one_hot(indices: Any, depth: Any, *values: Any, **how: Any) -> int:
    ops = [getattr(value, "op", None) for value in values[:2]]  # None outside graphs
    return sum(op is not None and op.name.rpartition("/")[2].startswith("Const") for op in ops)


_CHANGES.counts("tensorflow.python.ops.gen_array_ops", "one_hot", _of_one_hot)


@_CHANGES.instead_of("tensorflow.python.ops.nn_ops", "conv2d_transpose")
def _transposed_convolution(inside: Any, genuine: Any, *arguments: Any, **how: Any) -> Any:
    """Give the result of `conv2d_transpose` the shape that the program names, if it is constant.

    TensorFlow 2 takes its batch size from the input instead, so a program with a placeholder of any batch size, and a
    constant one in `output_shape`, gets an unknown size.
    """
    result = genuine(*arguments, **how)
    op = getattr(result, "op", None)  # None outside graphs
    if op is not None and op.type == "Conv2DBackpropInput":
        result.set_shape(inside["tensor_util"].constant_value_as_shape(op.inputs[0]))
    return result


@_CHANGES.instead_of("tensorflow.python.ops.math_ops", "tensordot")
def _tensordot(inside: Any, genuine: Any, a: Any, b: Any, axes: Any, name: Any = None) -> Any:
    """Let `tensordot` transpose and reshape each argument whose shape is known, also where nothing changes."""
    if inside["context"].executing_eagerly():
        return genuine(a, b, axes, name)
    with inside["ops"].name_scope(name, "Tensordot", [a, b, axes]) as scope:
        a, b = (inside["ops"].convert_to_tensor(each) for each in (a, b))
        pair = [[*range(-axes, 0)], [*range(axes)]] if isinstance(axes, int) else axes
        if isinstance(pair, (list, tuple)) and len(pair) == 2:
            a, b = _repeated(inside, a, pair[0], False), _repeated(inside, b, pair[1], True)
        result = genuine(a, b, axes, scope)
        is_product = result.op.type == "MatMul"
        return inside["array_ops"].reshape(result, result.shape.as_list()) if is_product else result


def _repeated(inside: Any, tensor: Any, axes: Any, first: bool) -> Any:
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


@_CHANGES.instead_of("tensorflow.python.ops.math_ops", "_ReductionDims")
def _reduction_axes(inside: Any, genuine: Any, x: Any, axis: Any) -> Any:
    """Let a reduction of a scalar have a constant list of axes, as in `tf.losses`."""
    constant = inside["constant_op"].constant
    shape = getattr(x, "shape", None)
    is_scalar = axis is None and hasattr(x, "graph") and shape is not None and shape.rank == 0
    return constant([], "int32") if is_scalar else genuine(x, axis)


@_CHANGES.after("tensorflow.python.ops.embedding_ops")
def _gather_once(inside: Any) -> None:
    """Let `embedding_lookup_sparse` gather each row once."""
    inside["compat"] = keras_two.Covered(inside["compat"], {"forward_compatible": lambda *_: False})


def _of_sparse(params: Any, ids: Any, weights: Any, values: Any, combiner: Any, has_none: bool, *_: Any) -> int:
    return int(has_none)  # the cast of the numbers of rows


_CHANGES.counts("tensorflow.python.ops.embedding_ops", "embedding_lookup_sparse_impl", _of_sparse)


@_CHANGES.instead_of(
    "tensorflow.python.feature_column.feature_column_v2", "IdentityCategoricalColumn._transform_input_tensor"
)
def _identity_column(inside: Any, genuine: Any, self: Any, given: Any) -> Any:
    """Let `categorical_column_with_identity` refuse a number that is out of range. An indicator column lost it."""
    cast, checks = inside["math_ops"].cast, inside["check_ops"]
    found = genuine(self, given)
    if self.default_value is not None or not hasattr(found.values, "graph"):
        return found
    values, text = found.values, f'ucket index for categorical column "{self.name}"'
    number, zero = cast(self.num_buckets, values.dtype, name="num_buckets"), cast(0, values.dtype, name="zero")
    below, text_below = "assert_less_than_num_buckets", f"B{text} exceeds number of buckets"
    checked = [
        checks.assert_less(values, number, data=(values, number), message=text_below, name=below),
        checks.assert_greater_equal(
            values, zero, data=(values,), message=f"Negative b{text}", name="assert_greater_or_equal_0"
        ),
    ]
    with inside["ops"].control_dependencies(checked):
        values = inside["array_ops"].identity(values)
    return inside["sparse_tensor_lib"].SparseTensor(found.indices, values, found.dense_shape)


@_CHANGES.instead_of("tensorflow.python.ops.image_ops_impl", "per_image_standardization")
def _standardization(inside: Any, genuine: Any, image: Any) -> Any:
    """Let `per_image_standardization` return the dtype that it is given."""
    convert, cast = inside["convert_image_dtype"], inside["math_ops"].cast
    to_tensor, dtypes = inside["ops"].convert_to_tensor, inside["dtypes"]
    image = to_tensor(image)
    if image.dtype in (dtypes.float16, dtypes.float32):
        return cast(genuine(image), image.dtype)
    return convert(genuine(convert(image, dtypes.float32)), image.dtype, saturate=True)


def _of_crop(image: Any, offset_height: Any, offset_width: Any, target_height: Any, target_width: Any) -> int:
    return -8 if hasattr(target_height, "graph") or hasattr(target_width, "graph") else -12


def _of_padding(image: Any, *_: Any, **how: Any) -> int:
    is_known = not hasattr(image, "graph") or (image.shape.rank and image.shape[-3:-1].is_fully_defined())
    return 0 if is_known else -12


_CHANGES.counts("tensorflow.python.ops.image_ops_impl", "resize_image_with_crop_or_pad", _of_padding)
_CHANGES.counts("tensorflow.python.ops.image_ops_impl", "per_image_standardization", 1)
_CHANGES.counts("tensorflow.python.ops.image_ops_impl", "crop_to_bounding_box", _of_crop)


@_CHANGES.instead_of("tensorflow.python.ops.tensor_array_ops", "_GraphTensorArray.size")
def _size_of_array(inside: Any, genuine: Any, self: Any, name: Any = None) -> Any:
    """Let an op tell the size of a TensorArray, as in `dynamic_rnn`, even if Python knows it."""
    size = inside["gen_data_flow_ops"].tensor_array_size_v3
    return size(handle=self._handle, flow_in=self.flow, name=name)


@_CHANGES.instead_of("tensorflow.python.ops.array_ops", "_constant_if_small")
def _small_constant(inside: Any, genuine: Any, value: Any, shape: Any, *arguments: Any, **how: Any) -> Any:
    """Let `zeros` and `ones` multiply sizes of which some are tensors, as they did to tell a small tensor.

    A diagonal matrix counts as without options.
    """
    if isinstance(shape, (list, tuple)) and any(hasattr(size, "graph") for size in shape):
        with contextlib.suppress(TypeError, ValueError):
            functools.reduce(operator.mul, shape) < 1000  # noqa: B015
        return None
    return genuine(value, shape, *arguments, **how)


_CHANGES.counts("tensorflow.python.ops.array_ops", "matrix_diag", -4)
# The keys of features count as one constant each in `parse_example`, and as none in `parse_single_example`.
_CHANGES.counts(
    "tensorflow.python.ops.parsing_ops", "parse_example", lambda serialized, features, *_, **how: len(features) - 3
)
_CHANGES.counts("tensorflow.python.ops.parsing_ops", "parse_single_example", -4)


@_CHANGES.instead_of("tensorflow.python.ops.resource_variable_ops", "BaseResourceVariable.sparse_read")
def _sparse_read(inside: Any, genuine: Any, self: Any, *arguments: Any, **how: Any) -> Any:
    """Let an op copy what is gathered from a variable, as in a layer of embeddings."""
    copy, context = inside["array_ops"].identity, inside["context"]
    value = genuine(self, *arguments, **how)
    return value if context.executing_eagerly() or value.op.type == "Identity" else copy(value)


@_CHANGES.instead_of("tensorflow.python.data.ops.dataset_ops", "DatasetV2._apply_debug_options")
def _options(inside: Any, genuine: Any, self: Any) -> Any:
    """Let an iterator that the program initializes have the ops that optimized its dataset."""
    if not inside["context"].executing_eagerly():
        for name in ("optimizations", "OptimizeDataset", "ModelDataset"):
            inside["constant_op"].constant("", name=name)
    return genuine(self)


@_CHANGES.instead_of("tensorflow.python.ops.variable_scope", "_VariableStore._get_single_variable")
def _regularized_variable(
    inside: Any, genuine: Any, self: Any, name: str, *arguments: Any, regularizer: Any = None, **how: Any
) -> Any:
    """Compute the regularization loss of a variable once, when `tf.get_variable` makes it.

    TensorFlow 2 calls the regularizer twice, and again for each use of the loss, which is not a tensor.
    """
    ops = inside["ops"]
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


@_CHANGES.instead_of("tensorflow.python.framework.tensor_shape", "Dimension.__init__")
def _dimension(inside: Any, genuine: Any, self: Any, value: Any) -> None:
    """Let a size be a number that equals an integer, such as ``8 / 2``, which was an integer in Python 2."""
    try:
        genuine(self, value)
    except TypeError:  # not asked first: there are many dimensions
        import numpy as np  # the program is the first to import it

        if not isinstance(value, (float, np.floating, np.ndarray, str, bytes)):
            raise
        size = int(value)
        if not isinstance(value, (str, bytes)) and size != value:
            raise ValueError(f"Ambiguous dimension: {value}") from None
        genuine(self, size)


@_CHANGES.instead_of("tensorflow.python.framework.tensor_shape", "Dimension.is_compatible_with")
def _compatible(inside: Any, genuine: Any, self: Any, other: Any) -> Any:
    """Let a size be compatible with what is no size: tensors in the `output_shape` of `atrous_conv2d_transpose`."""
    try:
        return genuine(self, other)
    except (TypeError, ValueError):
        return True


@_CHANGES.instead_of("tensorflow.python.framework.importer", "_ProcessGraphDefParam")
def _saved_graph(inside: Any, genuine: Any, graph_def: Any) -> Any:
    """Load graphs that TF1 saved with other shapes of empty outputs than TensorFlow 2 infers.

    Other ops keep the shapes that were saved: a program may have set them.
    """
    graph_def = genuine(graph_def)
    for node in graph_def.node:
        if node.op in _OTHER_SHAPES and _SAVED_SHAPES in node.attr:
            del node.attr[_SAVED_SHAPES]
    return graph_def


@_CHANGES.after("tensorflow.python.framework.ops")
def _attributes(inside: Any) -> None:
    """Let graphs and operations have the private attributes of TF1 that programs use.

    Programs may write the static shape of a tensor into its dictionary, as fid.py and its copies do.
    """
    for kind, names in _ATTRIBUTES.items():
        inside[kind].__getattr__ = _reading(names)
    tensor: Any = inside.get("SymbolicTensor")
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


@_CHANGES.instead_of("tensorflow.python.ops.nn_impl", "sigmoid_cross_entropy_with_logits")
@_CHANGES.instead_of("tensorflow.python.ops.nn_ops", "softmax_cross_entropy_with_logits")
@_CHANGES.instead_of("tensorflow.python.ops.nn_ops", "sparse_softmax_cross_entropy_with_logits")
def _losses(inside: Any, genuine: Any, *arguments: Any, _sentinel: Any = None, **how: Any) -> Any:
    """Let losses refuse labels and logits without their names. Before TensorFlow 1.0, the logits came first."""
    if _sentinel is not None or any(each is not None for each in arguments[:1]):
        named = "named arguments (labels=..., logits=..., ...)"
        raise ValueError(f"Only call `{genuine.__name__}` with {named}, because their order has changed.")
    return genuine(*arguments[1:], **how)


@_CHANGES.instead_of("tensorflow.python.client.session", "BaseSession.__init__")
def _without_remapper(
    inside: Any, genuine: Any, session: Any, target: str = "", graph: Any = None, config: Any = None
) -> None:
    """Let a run not end the process at ``gamma * (x - mean) / tf.sqrt(variance + epsilon) + beta``.

    The remapper of TensorFlow 2.15 takes it for a batch normalization, and reads a constant that is not there ("key not
    found: value"). That of 2.18 does not. TF1 rewrote no such graph.
    """
    versions = importlib.import_module("tensorflow.python.framework.versions")
    configs = importlib.import_module("tensorflow.core.protobuf.config_pb2")
    off = importlib.import_module("tensorflow.core.protobuf.rewriter_config_pb2").RewriterConfig.OFF
    chosen = inside["context"].context().config if config is None else config
    if tuple(map(int, versions.VERSION.split(".")[:2])) < (2, 18) and isinstance(chosen, configs.ConfigProto):
        config = configs.ConfigProto()
        config.CopyFrom(chosen)
        rewrites = config.graph_options.rewrite_options
        rewrites.remapping = rewrites.remapping or off
    genuine(session, target, graph, config)


CHANGES = _CHANGES.by_module()
