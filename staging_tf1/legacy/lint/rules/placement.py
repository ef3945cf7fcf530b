"""Areas placed on a different device than the ops that use them."""

from __future__ import annotations

import ast

from staging_tf1.legacy.lint.flow.analysis import Analysis
from staging_tf1.legacy.lint.flow.graph import bit, numbers
from staging_tf1.legacy.lint.flow.program import Program
from staging_tf1.legacy.lint.model.reading import Call, Scope
from staging_tf1.legacy.lint.rule import Mistakes, Rule


def not_on_the_gpu(analysis: Analysis) -> Mistakes:
    """STG108."""
    users = _gpu_users(analysis) if analysis.program.areas else {}
    for area in analysis.program.areas:
        user = users.get((area.number, area.call.scope.function()))
        if user is None or _devices(analysis.program, area.call) != ():
            continue
        if not _may_be_placed_by_callers(analysis, area.call, set()):
            yield (
                area.call.node,
                f"the area is made outside any tf.device scope, and line {user.line} uses it on a GPU: the area "
                "is on the CPU, and every step waits for the copy; make it in the same tf.device scope",
            )


def asked_elsewhere(analysis: Analysis) -> Mistakes:
    """STG115."""
    for area in analysis.program.areas:
        made_in = _devices(analysis.program, area.call)
        if area.ours or not made_in:
            continue
        for call in analysis.program.methods(area, "size", "clear"):
            if call.scope.function() is area.call.scope.function() and _devices(analysis.program, call) not in (
                made_in,
                None,
            ):
                yield (
                    call.node,
                    f"{call.method}() is called outside the tf.device scope of the area ({made_in[0]}) and acts on "
                    "the empty store of another device; call it in the same scope, or use staging_tf1.StagingArea",
                )


def _may_be_placed_by_callers(analysis: Analysis, call: Call, seen: set[Scope]) -> bool:
    """Whether the function of a call may be called in a device scope."""
    function = call.scope.function()
    if function.kind != "function":
        return function.kind == "class"
    if function in seen:
        return False
    seen.add(function)
    callers = analysis.calls.callers(function)
    return not callers or any(
        _devices(analysis.program, caller) != () or _may_be_placed_by_callers(analysis, caller, seen)
        for caller in callers
    )


def _gpu_users(analysis: Analysis) -> dict[tuple[int, Scope], Call]:
    """Return the first call on a GPU that takes from each area, by the area's number and the function of the call."""
    users: dict[tuple[int, Scope], Call] = {}
    gets = {call: area for area in analysis.program.areas for call in analysis.program.methods(area, "get", "unstage")}
    for call in analysis.program.calls:
        if not any(_is_gpu(device) for device in _devices(analysis.program, call) or ()):
            continue
        function = call.scope.function()
        if call in gets:
            users.setdefault((gets[call].number, function), call)
        elif analysis.program.name(call).startswith("tensorflow."):
            for arg in call.node.args:
                marks = analysis.marks.may(arg, call.scope)
                for number in numbers(marks):
                    if marks & bit(analysis.program.areas[number], "get"):
                        users.setdefault((number, function), call)
    return users


# Scopes that place no ops on a device.
_PLACELESS = frozenset(
    """Session InteractiveSession Graph as_default name_scope variable_scope control_dependencies op_scope
    arg_scope gfile open GFile GradientTape StagingSession MonitoredTrainingSession MonitoredSession suppress""".split()
)


def _devices(program: Program, call: Call) -> tuple[str, ...] | None:
    """Return the arguments of the device scopes around a call in its function, innermost first, as source text.

    None if another context manager of unknown effect is around it.
    """
    devices = []
    for here in call.context.around():
        if here.kind != "with" or not isinstance(here.node, (ast.With, ast.AsyncWith)):
            continue
        for item in here.node.items:
            manager = item.context_expr
            last = _last(manager)
            if last == "device" and isinstance(manager, ast.Call) and manager.args:
                devices.append(ast.unparse(manager.args[0]))
            elif last not in _PLACELESS:
                return None
    return tuple(devices)


def _last(node: ast.expr) -> str:
    if isinstance(node, ast.Call):
        node = node.func
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def _is_gpu(device: str) -> bool:
    """Whether the source text of a device is a literal that names a GPU."""
    return "gpu" in device.lower() and device[:1] in "'\"f"


RULES = (
    Rule("STG108", "not-on-the-gpu", not_on_the_gpu),
    Rule("STG115", "asked-elsewhere", asked_elsewhere),
)
