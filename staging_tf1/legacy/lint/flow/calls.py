"""Who calls whom in one file, and which of two calls runs first."""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterable

from staging_tf1.legacy.lint.flow.program import Program
from staging_tf1.legacy.lint.model.reading import Call, Scope


def position(node: ast.AST) -> tuple[int, int]:
    """Return the line and column of a node."""
    return getattr(node, "lineno", 0), getattr(node, "col_offset", 0)


def before(first: Call, second: Call) -> bool:
    """Whether `first` is written before `second`."""
    return position(first.node) < position(second.node)


def certainly_before(first: Call, second: Call) -> bool:
    """Whether `first` runs before `second` in the same function, on every way to `second`."""
    if first.scope.function() is not second.scope.function() or not before(first, second):
        return False
    blocks = {(here.node, here.block) for here in second.context.around()}
    return all(
        (here.node, here.block) in blocks for here in first.context.around() if here.kind in ("branch", "loop", "try")
    )


class CallGraph:
    """The calls of the functions of a file."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self._values = program.values

    @functools.cached_property
    def _callers(self) -> dict[Scope, list[Call]]:
        callers: dict[Scope, list[Call]] = {}
        for call in self._program.calls:
            if not self._program.name(call):
                for function in self.called_by(call):
                    callers.setdefault(function, []).append(call)
        return callers

    def called_by(self, call: Call) -> list[Scope]:
        """Return the functions of this file that a call runs: a class runs its __init__."""
        functions: list[Scope] = []
        for one in self._values.callees(call.node, call.scope):
            if one.kind == "class":
                init = self._values.attribute(one, "__init__")
                functions.extend(
                    binding.inner for binding in (init.bindings if init else ()) if binding.inner is not None
                )
            else:
                functions.append(one)
        return functions

    def callers(self, function: Scope) -> list[Call]:
        """Return the calls of a function in this file."""
        return self._callers.get(function, [])

    def calling(self, functions: Iterable[Scope]) -> set[Scope]:
        """Return `functions`, and those that call them, directly or through others."""
        reached: set[Scope] = set()
        waiting = [one for one in functions if one.kind == "function"]
        while waiting:
            one = waiting.pop()
            if one not in reached:
                reached.add(one)
                waiting.extend(
                    above for call in self.callers(one) if (above := call.scope.function()).kind == "function"
                )
        return reached

    def reached_from(self, functions: Iterable[Scope]) -> set[Scope]:
        """Return `functions` and those that they call, directly or through others."""
        reached: set[Scope] = set()
        waiting = list(functions)
        while waiting:
            one = waiting.pop()
            if one not in reached:
                reached.add(one)
                waiting.extend(self._callees.get(one, ()))
        return reached

    @functools.cached_property
    def _callees(self) -> dict[Scope, list[Scope]]:
        callees: dict[Scope, list[Scope]] = {}
        for function, calls in self._callers.items():
            for call in calls:
                callees.setdefault(call.scope.function(), []).append(function)
        return callees
