"""Areas and ops that code outside the file, or out of sight, may take hold of."""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator

from staging_tf1.legacy.lint.flow.calls import CallGraph
from staging_tf1.legacy.lint.flow.marks import Marks
from staging_tf1.legacy.lint.flow.program import Area, Program, argument
from staging_tf1.legacy.lint.flow.sessions import Sessions
from staging_tf1.legacy.lint.model.reading import Call, Scope, Variable

# Calls of TensorFlow that keep an op, and run it later or hand it to other code.
_KEEPING = tuple(
    """Hook Args Spec Scaffold Runner add_queue_runner Supervisor Session add_to_collection train_and_evaluate py_func
    basic_train_loop LooperThread loop train""".split()
)
_ADDING = frozenset({"append", "add", "insert", "extend", "setdefault", "update"})
_RUNNING = frozenset({"run", "eval"})


class Escapes:
    """What leaves the sight of the check."""

    def __init__(self, program: Program, marks: Marks, sessions: Sessions, calls: CallGraph) -> None:
        self._program = program
        self._calls = calls
        self._values = program.values
        self._marks = marks
        self._sessions = sessions

    @functools.cached_property
    def ops(self) -> int:
        """The marks of the ops that other code may run."""
        marks = 0
        for node, scope in self._handed_out():
            marks |= self._marks.may(node, scope)
        return marks

    @functools.cached_property
    def _areas(self) -> set[Area]:
        areas: set[Area] = set()
        for node, scope in self._handed_out():
            if not isinstance(node, ast.Constant):
                areas.update(self._program.areas_in(node, scope))
        return areas

    def area(self, area: Area) -> bool:
        """Whether other code may put into an area or take from it."""
        return argument(area.call.node, "shared_name", 3) is not None or area in self._areas

    def _handed_out(self) -> Iterator[tuple[ast.expr, Scope]]:
        """Yield the expressions whose values go out of sight."""
        for call in self._program.calls:
            if self._goes_out(call):
                for value in call.arguments:
                    yield value, call.scope
        for function in self._program.reading.functions:
            lost = function.kind == "function" and not self._is_called(function)
            for one in function.returns:
                if (lost or one.yields) and not isinstance(function.node, ast.Lambda):
                    yield one.value, one.context.scope
        for target, binding in self._program.reading.stored:
            if binding.value is not None and self._is_out(target, binding.scope):
                yield binding.value, binding.scope

    def _is_called(self, function: Scope) -> bool:
        return bool(self._calls.callers(function)) or self._values.callers.get(function) is not None

    def _is_out(self, target: ast.Attribute, scope: Scope) -> bool:
        """Whether an attribute belongs to an object that other files use."""
        owners = self._values.classes(target.value, scope)
        return not owners or any(owner not in self._instantiated for owner in owners)

    @functools.cached_property
    def _instantiated(self) -> set[Scope]:
        """The classes that this file makes objects of, and those that they derive from."""
        classes: set[Scope] = set()
        waiting = [
            one
            for call in self._program.calls
            if not self._program.name(call)
            for one in self._values.callees(call.node, call.scope)
            if one.kind == "class"
        ]
        while waiting:
            one = waiting.pop()
            if one not in classes and isinstance(one.node, ast.ClassDef) and one.above is not None:
                classes.add(one)
                above = one.above
                waiting.extend(base for text in one.node.bases for base in self._values.definitions(text, above))
        return classes

    def _goes_out(self, call: Call) -> bool:
        name = self._program.name(call)
        if name.startswith("tensorflow."):
            known = name.startswith(("tensorflow.contrib.staging", "tensorflow.contrib.layers"))
            return name.endswith(_KEEPING) or (name.startswith("tensorflow.contrib.") and not known)
        if name.startswith("staging_tf1."):
            return False
        if name:
            return "." in name or name in ("setattr", "map", "filter")
        if call in self._program.area_ops or self._is_followed(call):
            return False
        if call.receiver is None:
            return True
        if call.method in _ADDING:
            return any(isinstance(one, Variable) for one in self._values.origins(call.receiver, call.scope))
        if call.method in _RUNNING and self._sessions.is_session(call.receiver, call.scope):
            return False
        makers = self._program.makers_of(call.receiver, call.scope)
        return (
            not makers
            or not all(one.startswith(("tensorflow.", "staging_tf1.")) for one in makers)
            or (call.method.startswith("make_callable") or call.method == "partial_run_setup")
        )

    def _is_followed(self, call: Call) -> bool:
        """Whether a call goes to functions of this file, whose parameters are followed."""
        called = self._values.callees(call.node, call.scope)
        return bool(called) and all(
            one.kind == "function" or self._values.attribute(one, "__init__") is not None for one in called
        )
