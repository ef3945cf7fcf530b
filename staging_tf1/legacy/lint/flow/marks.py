"""Which ops the value of an expression depends on: those that a run of it executes."""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator
from dataclasses import dataclass, field

from staging_tf1.legacy.lint.flow.graph import Alternative, Solver
from staging_tf1.legacy.lint.flow.local_variables import local_variable
from staging_tf1.legacy.lint.flow.program import Area, Program
from staging_tf1.legacy.lint.model.reader import Call
from staging_tf1.legacy.lint.model.scopes import Binding, Context, Returned, Scope, Variable

# Bits of a mask. Those of area number N begin at `_FIRST + _EACH * N`.
UNKNOWN, GLOBAL_INIT, LOCAL_INIT, QUEUE_PUT, RUNNER, LOCAL_VARIABLE = (1 << place for place in range(6))
_FIRST, _EACH = 8, 4
_VERBS = {"put": 0, "stage": 0, "get": 1, "unstage": 1, "peek": 2, "size": 3}

_INITIALIZERS = {
    "global_variables_initializer": GLOBAL_INIT,
    "initialize_all_variables": GLOBAL_INIT,
    "local_variables_initializer": LOCAL_INIT,
    "initialize_local_variables": LOCAL_INIT,
    "global_variables": GLOBAL_INIT,
    "local_variables": LOCAL_INIT,
}
RUNNER_MAKERS = frozenset(
    f"tensorflow.train.{name}"
    for name in (
        "string_input_producer",
        "slice_input_producer",
        "range_input_producer",
        "input_producer",
        "batch",
        "batch_join",
        "shuffle_batch",
        "shuffle_batch_join",
        "maybe_batch",
    )
)
# Calls whose arguments may become part of the graph, or may not.
_BRANCHING = frozenset(
    f"tensorflow.{name}" for name in ("cond", "case", "switch_case", "while_loop", "map_fn", "scan", "foldl", "foldr")
)
_HOLDING = frozenset({"list", "tuple", "zip", "dict", "set", "reversed", "sorted", "sum"})


@dataclass(frozen=True)
class Result:
    """What a call of a function of this file returns: one of its elements, all of them (-1), or its whole body."""

    function: Scope
    part: int = -1
    body: bool = False


Cell = Variable | Result


@dataclass(slots=True)
class Reads:
    """What an expression reads: cells and marks, those that it may read and those that it certainly reads."""

    may: set[Cell] = field(default_factory=set)
    must: set[Cell] = field(default_factory=set)
    marks: int = 0
    certain: int = 0


def bit(area: Area, verb: str) -> int:
    """Return the mark of ``area.put()`` and so on."""
    return 1 << (_FIRST + _EACH * area.number + _VERBS[verb])


def numbers(marks: int) -> Iterator[int]:
    """Yield the numbers of the areas that a mask names."""
    rest, last = marks >> _FIRST, -1
    while rest:
        lowest = (rest & -rest).bit_length() - 1
        number = lowest // _EACH
        if number != last:
            last = number
            yield number
        rest &= ~(((1 << _EACH) - 1) << (_EACH * number))


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
        found = self._reads.get((node, part))
        if found is None:
            found = self._reads[node, part] = _Expression(self._program, part).read(node, scope)
        return found

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
        each = [self.reads(value, scope) for value, scope in given]
        if len(each) == 1:
            return Alternative(each[0])
        joined = Reads()
        for one in each:
            joined.may |= one.may
            joined.marks |= one.marks
        joined.must = set.intersection(*(one.must for one in each))
        joined.certain = functools.reduce(lambda left, right: left & right, (one.certain for one in each))
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
        found: dict[Scope, list[Call]] = {}
        for call in self._program.calls:
            found.setdefault(call.scope.function(), []).append(call)
        return found

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
                made = item.context_expr
                if isinstance(made, ast.Call) and isinstance(made.func, ast.Attribute) and made.args:
                    if made.func.attr == "control_dependencies":
                        yield made.args[0]


class _Expression:
    """Reads one expression."""

    def __init__(self, program: Program, part: int) -> None:
        self._program = program
        self._values = program.values
        self._part = part
        self._top: ast.expr | None = None
        self._found = Reads()
        self._waiting: list[tuple[ast.AST, Scope, bool]] = []

    def read(self, node: ast.expr, scope: Scope) -> Reads:
        self._top = self._element(node)
        self._waiting.append((self._top, scope, True))
        while self._waiting:
            one, where, certain = self._waiting.pop()
            self._visit(one, where, certain)
        return self._found

    def _element(self, node: ast.expr) -> ast.expr:
        if isinstance(node, (ast.Tuple, ast.List)) and 0 <= self._part < len(node.elts):
            if not any(isinstance(one, ast.Starred) for one in node.elts):
                return node.elts[self._part]
        return node

    def _visit(self, node: ast.AST, scope: Scope, certain: bool) -> None:
        if isinstance(node, ast.Name):
            variable = scope.find(node.id)
            if variable is not None:
                self._cell(variable, certain)
        elif isinstance(node, ast.Attribute):
            self._attribute(node, scope, certain)
        elif isinstance(node, ast.Call):
            self._call(node, scope, certain)
        elif isinstance(node, ast.IfExp):
            self._push((node.body, node.orelse), scope, False)
        elif isinstance(node, ast.BoolOp):
            self._push(node.values, scope, False)
        elif isinstance(node, ast.Lambda):
            self._push((node.body,), self._program.reading.inner.get(node, scope), False)
        elif isinstance(node, (ast.ListComp, ast.SetComp, ast.GeneratorExp, ast.DictComp)):
            self._comprehension(node, scope, certain)
        elif isinstance(node, ast.Dict):
            self._push(node.values, scope, certain)
        elif isinstance(node, ast.Subscript):
            self._push((node.value,), scope, certain and self._is_one_value(node.value, scope))
        elif isinstance(node, ast.expr):
            self._push(list(ast.iter_child_nodes(node)), scope, certain)

    def _push(self, nodes: object, scope: Scope, certain: bool) -> None:
        self._waiting.extend((node, scope, certain) for node in nodes if node is not None)  # type: ignore[attr-defined]

    def _cell(self, cell: Cell, certain: bool) -> None:
        self._found.may.add(cell)
        if certain:
            self._found.must.add(cell)

    def _mark(self, marks: int, certain: bool) -> None:
        self._found.marks |= marks
        if certain:
            self._found.certain |= marks

    def _comprehension(self, node: ast.AST, scope: Scope, certain: bool) -> None:
        inner = self._program.reading.inner.get(node, scope)
        generators: list[ast.comprehension] = getattr(node, "generators", [])
        whole = not any(one.ifs for one in generators)
        element = node.value if isinstance(node, ast.DictComp) else getattr(node, "elt", None)
        self._push((element,), inner, certain and whole)
        self._push([one.iter for one in generators], inner, False)

    def _attribute(self, node: ast.Attribute, scope: Scope, certain: bool) -> None:
        name = self._values.full_name(node, scope)
        if name:
            if not name.startswith(("tensorflow.", "numpy.", "staging_tf1.")):
                self._mark(UNKNOWN, False)
            return
        owners = self._values.classes(node.value, scope)
        known = [found for owner in owners if (found := self._values.attribute(owner, node.attr)) is not None]
        for variable in known:
            self._cell(variable, certain and len(known) == 1)
        if not known:
            # An attribute of a tensor belongs to its op; one of an unknown object may be anything.
            if owners:
                self._mark(UNKNOWN, False)
            self._push((node.value,), scope, certain and node.attr in ("op", "initializer", "values", "outputs"))

    def _is_one_value(self, node: ast.expr, scope: Scope) -> bool:
        """Whether a subscripted value is one result of an op, whose elements all need that op."""
        if isinstance(node, ast.Name) and (variable := scope.find(node.id)) is not None and len(variable.bindings) == 1:
            return isinstance(variable.bindings[0].value, ast.Call)
        return isinstance(node, ast.Call)

    # ---- calls

    def _call(self, node: ast.Call, scope: Scope, certain: bool) -> None:
        name = self._values.full_name(node.func, scope)
        values = [*node.args, *(keyword.value for keyword in node.keywords)]
        if name:
            if local_variable(self._values, node, scope):
                self._mark(LOCAL_VARIABLE, certain)
            self._named_call(name, values, scope, certain)
        elif isinstance(node.func, ast.Attribute) and node.func.attr in ("run", "eval", "partial_run"):
            return  # a run returns values, which are not part of the graph
        elif isinstance(node.func, ast.Attribute) and (areas := self._program.areas_in(node.func.value, scope)):
            self._area_call(node.func.attr, areas, values, scope, certain)
        else:
            self._other_call(node, values, scope, certain)

    def _named_call(self, name: str, values: list[ast.expr], scope: Scope, certain: bool) -> None:
        package, _, last = name.rpartition(".")
        if package.startswith("tensorflow"):
            self._mark(_INITIALIZERS.get(last, 0) if package in ("tensorflow", "tensorflow.initializers") else 0, certain)
            self._mark(RUNNER if name in RUNNER_MAKERS else 0, certain)
            self._push(values, scope, certain and name not in _BRANCHING)
        elif package:
            ours = package.startswith(("numpy", "staging_tf1"))
            self._mark(0 if ours else UNKNOWN, False)
            self._push(values, scope, False)
        else:
            self._push(values, scope, certain and name in _HOLDING)

    def _area_call(self, verb: str, areas: list[Area], values: list[ast.expr], scope: Scope, certain: bool) -> None:
        if verb in _VERBS:
            for area in areas:
                self._mark(bit(area, verb), certain and len(areas) == 1)
        self._push(values, scope, certain)

    def _other_call(self, node: ast.Call, values: list[ast.expr], scope: Scope, certain: bool) -> None:
        called = self._values.callees(node, scope)
        functions = [one for one in called if one.kind == "function"]
        for function in functions:
            part = self._part if node is self._top else -1
            self._cell(Result(function, part), certain and len(functions) == 1)
        if functions:
            return
        of_tensorflow = False
        if isinstance(node.func, ast.Attribute):
            made = self._program.made_by(node.func.value, scope)
            of_tensorflow = bool(made) and all(one.startswith("tensorflow.") for one in made)
            if of_tensorflow and node.func.attr in ("enqueue", "enqueue_many"):
                self._mark(QUEUE_PUT, certain)
            self._push((node.func.value,), scope, certain and of_tensorflow)
        if not of_tensorflow and not called:
            self._mark(UNKNOWN, False)
        self._push(values, scope, certain and of_tensorflow)
