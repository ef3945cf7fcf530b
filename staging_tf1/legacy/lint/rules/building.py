"""Areas and ops built inside the training loop, where each iteration makes the graph larger and the step slower."""

from __future__ import annotations

import ast

from staging_tf1.legacy.lint.flow.analysis import Analysis
from staging_tf1.legacy.lint.flow.program import Program
from staging_tf1.legacy.lint.model.reading import Call, Loop, Scope, Variable
from staging_tf1.legacy.lint.rule import Mistakes, Rule

_OPTIMIZING = ("minimize", "apply_gradients", "compute_gradients")
_ASSIGNING = ("assign", "assign_add", "assign_sub")
_MAKING = frozenset({"tensorflow.Variable", "tensorflow.get_variable"})
_VARIABLES = _MAKING | {"tensorflow.train.get_or_create_global_step"}
_TRACERS = frozenset({"tensorflow.while_loop", "tensorflow.function", "tensorflow.map_fn", "tensorflow.scan"})


def area_in_loop(analysis: Analysis) -> Mistakes:
    """STG101."""
    traced = _traced(analysis.program) if analysis.program.areas else set()
    for area in analysis.program.areas:
        call = area.call
        if _is_within(call.scope, traced):
            yield (
                call.node,
                "the area is made in a function that TensorFlow traces (tf.while_loop, tf.function): build it outside",
            )
        elif (loop := analysis.training.around(call)) is not None:
            yield (
                call.node,
                f"the training loop at line {loop.line} makes a new, empty area in every iteration, and the graph "
                "grows; build the area once, before the loop",
            )


def ops_in_loop(analysis: Analysis) -> Mistakes:
    """STG102."""
    if not analysis.training.repeated:
        return
    for call in analysis.program.calls:
        what = _op(analysis.program, call)
        if what is None or analysis.threads.around(call) is not None:
            continue
        loop = analysis.training.around(call)
        if loop is None or _is_another_each_time(analysis, call, loop):
            continue
        if not _area_made_in_loop(analysis, call):
            yield (
                call.node,
                f"{what} adds ops to the graph in every iteration of the training loop at line {loop.line}; "
                "call it once, before the loop, and run what it returns",
            )


def ops_in_thread(analysis: Analysis) -> Mistakes:
    """STG113."""
    if not analysis.threads.all:
        return
    for call in analysis.program.calls:
        if call in analysis.program.area_ops or analysis.program.is_queue_op(call):
            thread = analysis.threads.around(call)
            if thread is not None and not _has_own_graph(analysis, call):
                yield (
                    call.node,
                    f"{call.method}() builds an op in the thread {thread.name}(), and building a graph is not "
                    "thread-safe; build the op before the thread starts, and run it in the thread",
                )


def _op(program: Program, call: Call) -> str | None:
    name = program.name(call)
    if name:
        if name in {f"tensorflow.{one}" for one in _ASSIGNING}:
            return f"tf.{call.method}()"
        is_optimizer = name.startswith("tensorflow.train.") and name.endswith("Optimizer")
        return f"tf.train.{call.method}()" if is_optimizer else None
    if call in program.area_ops or program.is_queue_op(call):
        return f"{call.method}()"
    if call.receiver is None or call.method not in (*_ASSIGNING, *_OPTIMIZING):
        return None
    makers = program.makers_of(call.receiver, call.scope)
    if call.method in _ASSIGNING:
        return f"{call.method}()" if makers and _VARIABLES.issuperset(makers) else None
    of_optimizers = makers and all(one.startswith("tensorflow.") and one.endswith("Optimizer") for one in makers)
    return f"{call.method}()" if of_optimizers else None


def _traced(program: Program) -> set[Scope]:
    traced: set[Scope] = set()
    for call in program.named(*_TRACERS):
        for arg in call.node.args:
            traced.update(program.values.definitions(arg, call.scope))
    for function in program.reading.functions:
        for decorator in getattr(function.node, "decorator_list", ()):
            plain = decorator.func if isinstance(decorator, ast.Call) else decorator
            if function.above is not None and program.values.full_name(plain, function.above) in _TRACERS:
                traced.add(function)
    return traced


def _is_within(scope: Scope, wanted: set[Scope]) -> bool:
    here: Scope | None = scope
    while here is not None:
        if here in wanted:
            return True
        here = here.above
    return False


def _area_made_in_loop(analysis: Analysis, call: Call) -> bool:
    """Whether an area is made at the same place: then its ops are part of that mistake."""
    return any(
        area.call.context is call.context and analysis.training.around(area.call) is not None
        for area in analysis.program.areas
    )


def _is_another_each_time(analysis: Analysis, call: Call, loop: Loop) -> bool:
    """Whether each iteration works on another variable, area or setting, so that no op is built twice."""
    if call.method in _OPTIMIZING or call.method.endswith("Optimizer"):
        return False
    args = call.node.args
    changed, values = (args[0], args[1:]) if analysis.program.name(call) and args else (call.receiver, args)
    if changed is None:
        return False
    program = analysis.program
    if _varies_with(program, changed, call.scope, loop):
        return True
    # A loop over settings that goes through all variables needs an op for each pair.
    inner = next((here for here in call.context.around() if here in analysis.training.loops), loop.context)
    return (
        call.method in _ASSIGNING
        and inner is not loop.context
        and _varies_with(program, changed, call.scope, analysis.training.loops[inner])
        and any(_varies_with(program, value, call.scope, loop) for value in values)
    )


def _has_own_graph(analysis: Analysis, call: Call) -> bool:
    """Whether the function of a call works on a graph of its own."""
    function = call.scope.function()
    return any(
        other.scope.function() is function and other.method in ("Graph", "as_default")
        for other in analysis.program.calls
    )


def _varies_with(program: Program, node: ast.expr, scope: Scope, loop: Loop) -> bool:
    """Whether `node` is an element of what `loop` goes through, or is made in it."""
    waiting: list[tuple[ast.expr, Scope]] = [(node, scope)]
    seen: set[Variable] = set()
    while waiting:
        one, where = waiting.pop()
        if isinstance(one, ast.Call) and program.values.full_name(one.func, where) in _MAKING:
            return True
        for name in ast.walk(one):
            variable = where.find(name.id) if isinstance(name, ast.Name) else None
            if variable is None or variable in seen:
                continue
            seen.add(variable)
            for binding in variable.bindings:
                if binding.kind == "parameter":
                    waiting.extend(program.values.given(binding.scope, variable.name))
                elif loop.context in binding.context.around() and binding.value is not None:
                    if binding.kind == "element" and binding.context is loop.context and not _counts(loop.node):
                        return True
                    waiting.append((binding.value, binding.scope))
    return False


def _counts(loop: ast.AST) -> bool:
    """Whether a loop goes through numbers, which select nothing by themselves."""
    over = getattr(loop, "iter", None)
    return isinstance(over, ast.Call) and isinstance(over.func, ast.Name) and over.func.id in ("range", "xrange")


RULES = (
    Rule("STG101", "area-in-loop", area_in_loop),
    Rule("STG102", "ops-in-loop", ops_in_loop),
    Rule("STG113", "ops-in-thread", ops_in_thread),
)
