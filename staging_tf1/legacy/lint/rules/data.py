"""The values put: contradicting dtypes, and buffers that are overwritten after they are fed."""

from __future__ import annotations

import ast

from staging_tf1.legacy.lint.flow.analysis import Analysis
from staging_tf1.legacy.lint.flow.graph import QUEUE_PUT, bit, numbers
from staging_tf1.legacy.lint.flow.program import Area, argument
from staging_tf1.legacy.lint.flow.sessions import Run
from staging_tf1.legacy.lint.model.reading import Context, Scope, Variable, Write
from staging_tf1.legacy.lint.rule import Mistakes, Rule

# Position of the dtype argument in calls whose result has that dtype; None if it is keyword-only.
_DTYPE_POSITION = {
    "tensorflow.placeholder": 0,
    "tensorflow.cast": 1,
    "tensorflow.constant": 1,
    "tensorflow.zeros": 1,
    "tensorflow.ones": 1,
    "tensorflow.to_float": None,
    "tensorflow.random_normal": 3,
    "tensorflow.random_uniform": 3,
    "tensorflow.convert_to_tensor": 1,
    "numpy.zeros": 1,
    "numpy.ones": 1,
    "numpy.empty": 1,
    "numpy.array": 1,
    "numpy.full": 2,
    "numpy.arange": None,
}
_ALLOCATING = ("numpy.zeros", "numpy.empty", "numpy.ones", "numpy.full", "numpy.ndarray", "numpy.zeros_like")
_SAME_DTYPE = {"float": "float64", "int": "int64", "bool_": "bool", "half": "float16"}


def contradicting_dtypes(analysis: Analysis) -> Mistakes:
    """STG109."""
    for area in analysis.program.areas:
        declared = _declared(analysis, area)
        for put in analysis.program.methods(area, "put") if declared else ():
            values = argument(put.node, "values", 0)
            if not isinstance(values, (ast.List, ast.Tuple)) or len(values.elts) != len(declared):
                continue
            for index, (element, expected) in enumerate(zip(values.elts, declared)):
                got = _dtype(analysis, element, put.scope)
                if got and expected and got != expected:
                    yield (
                        put.node,
                        f"component {index} is {got}, but the area declares {expected}: write "
                        f"tf.cast(..., tf.{expected}), or declare tf.{got}",
                    )


def reused_buffer(analysis: Analysis) -> Mistakes:
    """STG114."""
    seen: set[tuple[Variable, Run | ast.AST]] = set()
    for write in analysis.program.reading.writes:
        buffer = _buffer(analysis, write)
        if buffer is None:
            continue
        given = _given_away(analysis, buffer, write.context.loops())
        if given is None or (buffer, given) in seen:
            continue
        seen.add((buffer, given))
        yield (
            given.call.node if isinstance(given, Run) else write.target,
            f"the buffer {buffer.name!r} is fed and then overwritten: a fed array may be staged without a copy, so the "
            "staged batch changes; make a new array for each batch, or feed a copy",
        )


# ---- dtypes


def _declared(analysis: Analysis, area: Area) -> list[str]:
    dtypes = argument(area.call.node, "dtypes", 0)
    if area.call.method == "from_tensors" or not isinstance(dtypes, (ast.List, ast.Tuple)):
        return []
    return [_dtype_name(analysis, element, area.call.scope) for element in dtypes.elts]


def _dtype_name(analysis: Analysis, node: ast.expr, scope: Scope) -> str:
    package, _, name = analysis.values.full_name(node, scope).rpartition(".")
    if package in ("tensorflow", "numpy", "tensorflow.dtypes"):
        return _SAME_DTYPE.get(name, name)
    return ""


def _dtype(analysis: Analysis, node: ast.expr, scope: Scope, depth: int = 0) -> str:
    """Return the dtype of a value if the source states it, else empty."""
    if isinstance(node, ast.Name) and depth < 3:
        variable = scope.find(node.id)
        only = variable.bindings[0] if variable is not None and len(variable.bindings) == 1 else None
        if only is None or only.kind != "value" or only.value is None:
            return ""
        return _dtype(analysis, only.value, only.scope, depth + 1)
    if isinstance(node, ast.Call):
        name = analysis.values.full_name(node.func, scope)
        if name == "tensorflow.to_float":
            return "float32"
        if name in _DTYPE_POSITION:
            said = argument(node, "dtype", _DTYPE_POSITION[name])
            return "" if said is None else _dtype_name(analysis, said, scope)
    return ""


# ---- buffers


def _buffer(analysis: Analysis, write: Write) -> Variable | None:
    """Return the array that a write in a loop changes, if it was made before the loop."""
    base = write.target.value
    loops = write.context.loops()
    variable = write.scope.find(base.id) if isinstance(base, ast.Name) and loops else None
    if variable is None:
        return None
    bindings = [one for one in variable.bindings if one.kind != "added"]
    for one in bindings:
        name = analysis.values.full_name(one.value.func, one.scope) if isinstance(one.value, ast.Call) else ""
        if name not in _ALLOCATING or not set(one.context.loops()).isdisjoint(loops):
            return None
    return variable if bindings else None


def _given_away(analysis: Analysis, buffer: Variable, loops: list[Context]) -> Run | ast.AST | None:
    for run in analysis.sessions.runs:
        if run.call.context.loops()[-1:] == loops[-1:] and _puts(analysis, run):
            feed = argument(run.call.node, "feed_dict", 1)
            if isinstance(feed, ast.Dict) and any(_stands_bare(one, buffer, run.call.scope) for one in feed.values):
                return run
    function = buffer.scope.function()
    for one in function.returns:
        if one.yields and one.context.loops()[-1:] == loops[-1:] and _stands_bare(one.value, buffer, function):
            return one.value if _feeds_an_area(analysis, function) else None
    return None


def _puts(analysis: Analysis, run: Run) -> bool:
    """Whether a run puts what it is fed into an area or a queue; any other step is done with it when it returns."""
    areas = analysis.program.areas
    return bool(run.may & QUEUE_PUT) or any(run.may & bit(areas[number], "put") for number in numbers(run.may))


def _feeds_an_area(analysis: Analysis, generator: Scope) -> bool:
    """Whether a generator is given to staging_tf1."""
    for call in analysis.program.calls:
        if analysis.program.name(call).startswith("staging_tf1."):
            for arg in call.arguments:
                named = arg.func if isinstance(arg, ast.Call) else arg
                if generator in analysis.values.definitions(named, call.scope):
                    return True
    return False


def _stands_bare(node: ast.expr, buffer: Variable, scope: Scope) -> bool:
    if isinstance(node, (ast.Tuple, ast.List)):
        return any(_stands_bare(one, buffer, scope) for one in node.elts)
    if isinstance(node, ast.Dict):
        return any(_stands_bare(one, buffer, scope) for one in node.values)
    return isinstance(node, ast.Name) and scope.find(node.id) is buffer


RULES = (
    Rule("STG109", "contradicting-dtypes", contradicting_dtypes),
    Rule("STG114", "reused-buffer", reused_buffer),
)
