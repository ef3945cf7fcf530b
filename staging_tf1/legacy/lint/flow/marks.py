"""Which ops the value of an expression depends on: those that a run of it executes."""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator

from staging_tf1.legacy.lint.flow.expressions import ExpressionReader
from staging_tf1.legacy.lint.flow.graph import UNKNOWN, Alternative, Cell, Reads, Result, Solver
from staging_tf1.legacy.lint.flow.program import Program
from staging_tf1.legacy.lint.model.reading import Binding, Call, Context, Returned, Scope, Variable


class Marks:
    """The marks of expressions, each computed once."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self._values = program.values
        self._solver = Solver(self._alternatives)
        self._reads: dict[tuple[ast.AST, int], Reads] = {}

    def may(self, node: ast.expr, scope: Scope) -> int:
        """Return the marks of the ops that a run of `node` may execute."""
        return self._solver.may(self.reads(node, scope))

    def must(self, node: ast.expr, scope: Scope) -> int:
        """Return the marks of the ops that every run of `node` executes."""
        return self._solver.must(self.reads(node, scope))

    def reads(self, node: ast.expr, scope: Scope, part: int = -1) -> Reads:
        """Return what an expression reads, or one element of what it holds."""
        reads = self._reads.get((node, part))
        if reads is None:
            reads = self._reads[node, part] = ExpressionReader(self._program, part).read(node, scope)
        return reads

    # ---- what a cell may be

    def _alternatives(self, cell: Cell) -> list[Alternative]:
        if isinstance(cell, Variable):
            return [self._binding(cell, binding) for binding in cell.bindings]
        if cell.body:
            return [self._body(cell.function)]
        if not cell.function.returns:
            return [self._body(cell.function)]
        return [self._returned(cell, one) for one in cell.function.returns]

    def _binding(self, variable: Variable, binding: Binding) -> Alternative:
        if binding.kind == "parameter":
            return self._parameter(variable, binding)
        if binding.inner is not None:
            return Alternative(Reads({Result(binding.inner, body=True)} if binding.kind == "function" else set()))
        if binding.kind == "import":
            ours = binding.imported.partition(".")[0] in ("tensorflow", "numpy", "staging_tf1")
            return Alternative(Reads(marks=0 if ours else UNKNOWN))
        if binding.value is None:
            return Alternative(Reads())
        reads = self._with_control(self.reads(binding.value, binding.scope, binding.index), binding.context)
        if binding.kind == "added":
            sure = not any(one.kind in ("branch", "try") for one in binding.context.around())
            return Alternative(reads, adds=True, sure=sure)
        return Alternative(reads, sure=binding.kind in ("value", "part"))

    def _parameter(self, variable: Variable, binding: Binding) -> Alternative:
        if self._values.owner(binding.scope) is not None and binding.scope.parameters[:1] == [variable.name]:
            return Alternative(Reads())
        given = self._values.given(binding.scope, variable.name)
        if not given:
            return Alternative(Reads(marks=UNKNOWN))
        options = [self.reads(value, scope) for value, scope in given]
        if len(options) == 1:
            return Alternative(options[0])
        joined = Reads()
        for one in options:
            joined.may |= one.may
            joined.marks |= one.marks
        joined.must = set.intersection(*(one.must for one in options))
        joined.certain = functools.reduce(lambda left, right: left & right, (one.certain for one in options))
        return Alternative(joined)

    def _returned(self, cell: Result, one: Returned) -> Alternative:
        reads = self.reads(one.value, one.context.scope, cell.part)
        return Alternative(self._with_control(reads, one.context), sure=not one.yields)

    def _body(self, function: Scope) -> Alternative:
        """Return what the calls of a function read, whose result is of no interest."""
        joined = Reads()
        for call in self._calls_in.get(function, ()):
            reads = self.reads(call.node, call.scope)
            joined.may |= reads.may
            joined.marks |= reads.marks
        joined.may.discard(Result(function, body=True))
        return Alternative(joined)

    @functools.cached_property
    def _calls_in(self) -> dict[Scope, list[Call]]:
        calls: dict[Scope, list[Call]] = {}
        for call in self._program.calls:
            calls.setdefault(call.scope.function(), []).append(call)
        return calls

    def _with_control(self, reads: Reads, context: Context) -> Reads:
        """Add the ops of the ``tf.control_dependencies`` scopes around a statement."""
        extra = [self.reads(node, context.scope) for node in _control(context, self._program)]
        if not extra:
            return reads
        joined = Reads(set(reads.may), set(reads.must), reads.marks, reads.certain)
        for one in extra:
            joined.may |= one.may
            joined.must |= one.must
            joined.marks |= one.marks
            joined.certain |= one.certain
        return joined


def _control(context: Context, program: Program) -> Iterator[ast.expr]:
    for one in context.around():
        if one.kind == "with" and isinstance(one.node, (ast.With, ast.AsyncWith)):
            for item in one.node.items:
                manager = item.context_expr
                if isinstance(manager, ast.Call) and manager.args and isinstance(manager.func, ast.Attribute):
                    yield from manager.args[:1] if manager.func.attr == "control_dependencies" else ()
