"""What one expression reads: variables, results of functions, and the ops that it makes itself."""

from __future__ import annotations

import ast
from collections.abc import Iterable

from staging_tf1.legacy.lint.flow.graph import (
    GLOBAL_INIT,
    LOCAL_INIT,
    LOCAL_VARIABLE,
    QUEUE_PUT,
    RUNNER,
    UNKNOWN,
    VERBS,
    Cell,
    Reads,
    Result,
    bit,
)
from staging_tf1.legacy.lint.flow.program import Area, Program
from staging_tf1.legacy.lint.model.reading import Scope
from staging_tf1.legacy.lint.model.values import Values
from staging_tf1.legacy.moved_names import short

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


class ExpressionReader:
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
        if not isinstance(node, (ast.Tuple, ast.List)) or not 0 <= self._part < len(node.elts):
            return node
        return node if any(isinstance(one, ast.Starred) for one in node.elts) else node.elts[self._part]

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

    def _push(self, nodes: Iterable[ast.AST | None], scope: Scope, certain: bool) -> None:
        self._waiting.extend((node, scope, certain) for node in nodes if node is not None)

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
        known = [attribute for owner in owners if (attribute := self._values.attribute(owner, node.attr)) is not None]
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
            self._mark(
                _INITIALIZERS.get(last, 0) if package in ("tensorflow", "tensorflow.initializers") else 0, certain
            )
            self._mark(RUNNER if name in RUNNER_MAKERS else 0, certain)
            self._push(values, scope, certain and name not in _BRANCHING)
        elif package:
            ours = package.startswith(("numpy", "staging_tf1"))
            self._mark(0 if ours else UNKNOWN, False)
            self._push(values, scope, False)
        else:
            self._push(values, scope, certain and name in _HOLDING)

    def _area_call(self, verb: str, areas: list[Area], values: list[ast.expr], scope: Scope, certain: bool) -> None:
        if verb in VERBS:
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
            makers = self._program.makers_of(node.func.value, scope)
            of_tensorflow = bool(makers) and all(one.startswith("tensorflow.") for one in makers)
            if of_tensorflow and node.func.attr in ("enqueue", "enqueue_many"):
                self._mark(QUEUE_PUT, certain)
            self._push((node.func.value,), scope, certain and of_tensorflow)
        if not of_tensorflow and not called:
            self._mark(UNKNOWN, False)
        self._push(values, scope, certain and of_tensorflow)


# Functions that make a local variable if they get `num_epochs`, with its position.
_WITH_EPOCHS = {
    "tensorflow.train.string_input_producer": 1,
    "tensorflow.train.slice_input_producer": 1,
    "tensorflow.train.range_input_producer": 1,
    "tensorflow.train.input_producer": 2,
    "tensorflow.train.limit_epochs": 1,
}
_MATCHING = ("tensorflow.train.match_filenames_once", "tensorflow.io.match_filenames_once")
_METRICS = "tensorflow.metrics."


def local_variable(values: Values, node: ast.Call, scope: Scope) -> str:
    """Return what makes a local variable in a call; "" if nothing does."""
    name = values.full_name(node.func, scope)
    shown = short(name)
    if name in _MATCHING or (name.startswith(_METRICS) and name.count(".") == 2):
        return f"{shown}()"
    if name in _WITH_EPOCHS:
        position = _WITH_EPOCHS[name]
        given = [one.value for one in node.keywords if one.arg == "num_epochs"] or node.args[position : position + 1]
        if given and _is_a_number(values, given[0], scope):
            return f"{shown}(num_epochs=)"
    return ""


def _is_a_number(values: Values, node: ast.expr, scope: Scope) -> bool:
    """Whether a value is a number, rather than None: as written, or as every caller in the file passes it."""
    origins = values.origins(node, scope)
    return bool(origins) and all(
        (isinstance(one, ast.Constant) and isinstance(one.value, int)) or _is_a_flag(one) for one in origins
    )


def _is_a_flag(origin: object) -> bool:
    return isinstance(origin, ast.Attribute) and isinstance(origin.value, ast.Name) and origin.value.id == "FLAGS"
