"""`map_fn=`: traces the user's function of one batch. Makes no op, so a refused call adds nothing to the graph."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Sequence
from typing import Any

from staging_tf1._tf import tf
from staging_tf1.arguments import refuse
from staging_tf1.define import specs
from staging_tf1.errors import BuildError, SpecError
from staging_tf1.feed.pipeline import Input, Mapped
from staging_tf1.graph.callsite import site_of_names
from staging_tf1.graph.dependencies import ancestors, calls_python
from staging_tf1.graph.pure_ops import impurities
from staging_tf1.spec import component_name, flatten_with_paths

# Of the seed of a batch.
SEED = tf.TensorSpec([2], tf.int64)

_EXPECTED = "a function map_fn(batch) or map_fn(batch, seed) of the tensors of one batch"

# What it must not use, and what to do instead, by the kind of the op. If there are several, the first is named.
_REFUSED = {
    "input": (
        "reads the input '{name}'",
        "A batch has one number in one source, for a resume. Join sources with staging.sources.zip_records.",
    ),
    "python": (
        "reads '{name}', the result of a Python function",
        "It is called anew for each batch, steps ahead and in no fixed order. Call it in map_fn on tensors of the "
        "batch, or in the transform of the source.",
    ),
    "placeholder": (
        "reads the placeholder '{name}'",
        "Nothing feeds it while batches are made. Use a constant, or make it a component of the batch.",
    ),
    "variable": (
        "reads the variable '{name}'",
        "A batch is made steps ahead, so it would depend on timing. Use the variable in the step, on the staged "
        "tensors.",
    ),
    "random": (
        "uses {op} ('{name}'), whose numbers depend on timing",
        "Let it take an argument `seed`, and use ops such as tf.random.stateless_uniform(shape, seed) or TensorFlow "
        "2's tf.image.stateless_random_flip_left_right(images, seed).",
    ),
    "shuffle": (
        "uses {op} ('{name}') without a seed, so its order is another in each run",
        "Pass seed= to shuffle().",
    ),
    "order": (
        "uses {op} ('{name}'), whose order depends on timing",
        "Leave out deterministic=False.",
    ),
    "state": (
        "uses {op} ('{name}'), which may give something else in each run",
        "A resume must make the same batch again. Use the op in the step, on the staged tensors, or do it in the "
        "transform of the source.",
    ),
}


def mapped(inputs: Sequence[Input], map_fn: Any, caller: str) -> list[Input]:
    """Return the inputs whose batches go through `map_fn` before they are staged.

    It is traced once for each spec: the shards of a source may differ in whether their last batch is smaller.

    Raises:
      TypeError, ValueError: it is no function of a batch; the input is none that feed threads read; or it takes a seed
        that the source does not have.
      BuildError: it uses variables, placeholders, other inputs, or random ops whose numbers depend on timing.
      SpecError: it does not return tensors.
    """
    if not callable(map_fn):
        refuse(caller, "map_fn", map_fn, _EXPECTED)
    first = inputs[0]
    if first.source is None:
        cure = "Call it on them: staged(map_fn(values))" if first.is_computed else "Use dataset.map(map_fn) instead"
        raise ValueError(f"{caller} got map_fn= with values that the graph computes. {cure}.")
    name, takes_seed = _name(map_fn), _takes_seed(map_fn, caller)
    if takes_seed and not isinstance(getattr(first.source, "seed", None), int):
        raise ValueError(
            f"{caller}: map_fn {name} takes a seed, but {first.source!r} has none. Pass seed= to a source with random "
            f"access, or leave the argument out of map_fn."
        )
    owner, results = f"{caller}: map_fn {name}", []
    traced: list[tuple[Any, Any]] = []
    for entry in inputs:
        function = next((known for components, known in traced if components == entry.components), None)
        if function is None:
            function = _traced(map_fn, entry.components, takes_seed, owner)
            traced.append((entry.components, function))
        given = _specs_of(function.structured_outputs, owner)
        made = Mapped(entry, function, takes_seed, name, _copied(function))
        results.append(Input(given, given, entry.source, entry.spec, mapped=made))
    return results


def _name(map_fn: Any) -> str:
    """Return the name of a function, and where it is defined."""
    map_fn = getattr(map_fn, "func", map_fn)  # that of a functools.partial
    name, code = getattr(map_fn, "__name__", type(map_fn).__name__), getattr(map_fn, "__code__", None)
    return name if code is None else f"{name} ({os.path.basename(code.co_filename)}:{code.co_firstlineno})"


def _takes_seed(map_fn: Callable[..., Any], caller: str) -> bool:
    try:
        signature = inspect.signature(map_fn)
    except ValueError:  # a C function without a signature
        return False
    parameter = signature.parameters.get("seed")
    # Not if it has one already, as in functools.partial(augment, seed=3).
    takes_seed = parameter is not None and (parameter.default is parameter.empty or parameter.default is None)
    try:
        signature.bind(None, **({"seed": None} if takes_seed else {}))
    except TypeError:
        raise TypeError(
            f"{caller}: map_fn {_name(map_fn)} takes {signature}, expected {_EXPECTED}. A tuple or dict is one "
            f"argument, batch."
        ) from None
    return takes_seed


def _traced(map_fn: Callable[..., Any], components: Any, takes_seed: bool, owner: str) -> Any:
    def no_variable(_: Any, **options: Any) -> Any:
        raise BuildError(f"{owner} makes the variable '{options.get('name')}'. {_REFUSED['variable'][1]}")

    def call(batch: Any, *seed: Any) -> Any:
        with tf.variable_creator_scope(no_variable):
            return map_fn(batch, **dict(zip(["seed"], seed)))

    # As TensorFlow 1 did: Python's `if` and `while` are not converted.
    traced = tf.function(call, autograph=False)
    seed = [SEED] if takes_seed else []
    function = traced.get_concrete_function(components, *seed)
    _check(function, owner)
    return function


def _check(function: Any, owner: str) -> None:
    """Raise BuildError if the batches of a traced function would depend on more than its arguments."""
    graph, outside = function.graph, tf.get_default_graph()
    arguments = {tensor.op for tensor in graph.inputs}
    found = [
        *impurities(graph, (op for op in graph.get_operations() if op not in arguments), in_function=True),
        *impurities(outside, ancestors(function.captured_inputs), in_function=False),
    ]
    if found:
        first = min(found, key=lambda each: list(_REFUSED).index(each.kind))
        what, cure = (text.format(op=first.op, name=first.name) for text in _REFUSED[first.kind])
        site = site_of_names(first.graph, {first.name})
        made = "" if site is None else f", made at {site}"
        raise BuildError(f"{owner} {what}. {cure} (op type {first.op}{made})")


def _copied(function: Any) -> tuple[bool, ...]:
    outside = any(map(calls_python, function.captured_inputs))
    return tuple(outside or calls_python(output) for output in function.outputs)


def _specs_of(outputs: Any, owner: str) -> Any:
    leaves = flatten_with_paths(outputs)
    if not leaves:
        raise SpecError(f"{owner} returned {outputs!r}, expected a nest of tensors.")
    for path, leaf in leaves:
        if not (tf.is_tensor(leaf) or isinstance(leaf, tf.TypeSpec)):
            raise SpecError(
                f"{owner} returned {type(leaf).__name__} as {component_name(path)}, expected a nest of tensors."
            )
        if getattr(leaf, "dtype", None) in (tf.resource, tf.variant):
            raise SpecError(
                f"{owner} returned a tensor of dtype {leaf.dtype.name} as {component_name(path)}, which cannot be "
                f"staged. Return tensors of numbers or strings."
            )
    return specs.of_tensors(outputs)
