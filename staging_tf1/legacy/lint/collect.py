"""Collects the facts of one file from its syntax tree."""

from __future__ import annotations

import libcst as cst
from libcst.metadata import CodeRange, MetadataWrapper, PositionProvider

from staging_tf1.legacy.lint.expressions import key_of, keys_passed_on, keys_read, parameter_names, target_keys
from staging_tf1.legacy.lint.facts import AREAS, Area, Call, Facts, Key, Loop, Place, argument, is_session_run
from staging_tf1.legacy.lint.names import dotted, imports_of

_AREA_MODULES = ("tensorflow.contrib.staging.", "tensorflow.python.ops.data_flow_ops.", "tensorflow.staging.")
_OURS = "staging_tf1."
_TRACERS = ("tensorflow.while_loop", "tensorflow.function", "tensorflow.map_fn", "tensorflow.scan")
_NEW_GRAPH = ("tensorflow.Graph", "tensorflow.reset_default_graph")
# Calls that do not pass the area to code outside the file.
_HARMLESS = ("tensorflow.group", "print", "len", "isinstance", "list", "tuple", "zip", "enumerate")


def collect(path: str, source: str, module: cst.Module) -> Facts:
    """Return the facts of a parsed file."""
    facts = Facts(path, source.splitlines(), imports_of(module))
    wrapper = MetadataWrapper(module, unsafe_skip_copy=True)
    module.visit(_Reader(facts, wrapper))
    _follow_areas(facts)
    _follow_loops(facts)
    return facts


class _Reader(cst.CSTVisitor):
    def __init__(self, facts: Facts, wrapper: MetadataWrapper) -> None:
        super().__init__()
        self._facts = facts
        self._module = wrapper.module
        self._positions = wrapper.resolve(PositionProvider)
        self._loops: list[int] = []
        self._functions: list[str] = []
        self._devices: list[str] = []
        self._guards = 0
        self._traced = _traced_functions(wrapper.module, facts)
        self._returns = _returned_tuples(wrapper.module)

    # ---- the current place

    def _range(self, node: cst.CSTNode) -> CodeRange:
        found: CodeRange = self._positions[node]
        return found

    def _place(self, node: cst.CSTNode) -> Place:
        start = self._range(node).start
        return Place(
            start.line,
            start.column + 1,
            tuple(self._loops),
            tuple(self._functions),
            tuple(self._devices),
            self._guards > 0,
            any(name in self._traced for name in self._functions),
        )

    def _enter_loop(self, node: cst.For | cst.While) -> None:
        span = self._range(node)
        self._facts.loops.append(Loop(span.start.line, span.end.line))
        self._loops.append(len(self._facts.loops) - 1)

    def visit_For(self, node: cst.For) -> None:
        self._enter_loop(node)
        for key in target_keys(node.target):
            self._bind(key, node.iter, renames=True)

    def leave_For(self, original_node: cst.For) -> None:
        self._loops.pop()

    def visit_While(self, node: cst.While) -> None:
        self._enter_loop(node)

    def leave_While(self, original_node: cst.While) -> None:
        self._loops.pop()

    def visit_FunctionDef(self, node: cst.FunctionDef) -> None:
        name = node.name.value
        reads = keys_read(node.body) - parameter_names(node.params)
        self._facts.made_of.setdefault(name, set()).update(reads)
        self._facts.made_of.setdefault("." + name, set()).add(name)
        self._functions.append(name)

    def leave_FunctionDef(self, original_node: cst.FunctionDef) -> None:
        self._functions.pop()

    def visit_With(self, node: cst.With) -> None:
        for item in node.items:
            if item.asname is not None:
                for key in target_keys(item.asname.name):
                    self._bind(key, item.item, renames=True)
            if isinstance(item.item, cst.Call) and self._meaning(item.item.func).endswith(".device"):
                given = item.item.args[0].value if item.item.args else None
                self._devices.append("" if given is None else self._text(given))

    def leave_With(self, original_node: cst.With) -> None:
        for item in original_node.items:
            if isinstance(item.item, cst.Call) and self._meaning(item.item.func).endswith(".device"):
                self._devices.pop()

    def visit_Try_body(self, node: cst.Try) -> None:
        self._guards += _catches_imports(node)

    def leave_Try_body(self, node: cst.Try) -> None:
        self._guards -= _catches_imports(node)

    # ---- assignments

    def visit_Assign(self, node: cst.Assign) -> None:
        for target in node.targets:
            self._assign(target.target, node.value)

    def visit_AnnAssign(self, node: cst.AnnAssign) -> None:
        if node.value is not None:
            self._assign(node.target, node.value)

    def visit_AugAssign(self, node: cst.AugAssign) -> None:
        for key in target_keys(node.target):
            self._bind(key, node.value, renames=True)
            if isinstance(node.target, (cst.Name, cst.Subscript)):
                self._facts.writes.append((key, self._place(node)))

    def visit_NamedExpr(self, node: cst.NamedExpr) -> None:
        self._assign(node.target, node.value)

    def _assign(self, target: cst.BaseExpression, value: cst.BaseExpression) -> None:
        if isinstance(target, cst.Tuple):
            parts = self._parts(value)
            if parts is not None and len(target.elements) == len(parts):
                for one, its in zip(target.elements, parts):
                    self._assign(one.value, its)
                return
        for key in target_keys(target):
            self._bind(key, value, renames=True)
            if isinstance(target, cst.Subscript):
                self._facts.writes.append((key, self._place(target)))
            else:
                self._facts.assigned.setdefault(key, []).append(value)

    def _parts(self, value: cst.BaseExpression) -> list[cst.BaseExpression] | None:
        """Return the elements of a tuple that is written here or returned by a function of this file."""
        if isinstance(value, cst.Call):
            value = self._returns.get((dotted(value.func) or "").rpartition(".")[2], value)
        return [element.value for element in value.elements] if isinstance(value, cst.Tuple) else None

    def _bind(self, key: Key, value: cst.BaseExpression, *, renames: bool) -> None:
        self._facts.made_of.setdefault(key, set()).update(keys_read(value))
        if renames:
            self._facts.renamed.setdefault(key, set()).update(keys_passed_on(value))

    # ---- calls and uses

    def visit_Call(self, node: cst.Call) -> None:
        method, receiver = "", ""
        if isinstance(node.func, cst.Attribute):
            method, receiver = node.func.attr.value, key_of(node.func.value)
        elif isinstance(node.func, cst.Name):
            method = node.func.value
        # The fetches of a run decide which ops it runs; its feeds are values.
        read = node.args[:1] if method == "run" else node.args
        reads = frozenset().union(*[keys_read(arg.value) for arg in read])
        call = Call(node, self._meaning(node.func), method, receiver, self._place(node), reads)
        self._facts.calls.append(call)
        for index in self._loops:
            self._note_in_loop(self._facts.loops[index], call)
        if self._functions and method:
            self._facts.function_calls.setdefault(self._functions[-1], set()).add(method)
        if method in ("append", "extend", "insert", "add") and receiver and node.args:
            self._bind(receiver, node.args[-1].value, renames=True)
        if call.name in ("threading.Thread", "Thread"):
            target = argument(node, "target", 1)
            if target is not None and (key := key_of(target)):
                self._facts.thread_targets[key.lstrip(".")] = call

    def _note_in_loop(self, loop: Loop, call: Call) -> None:
        loop.calls.add(call.method)
        loop.runs = loop.runs or is_session_run(call)
        loop.fresh_graph = loop.fresh_graph or call.name in _NEW_GRAPH

    def visit_Attribute(self, node: cst.Attribute) -> None:
        full = self._meaning(node)
        if full:
            self._facts.uses.append((full, dotted(node), self._place(node)))

    def visit_Import(self, node: cst.Import) -> bool:
        for alias in node.names:
            self._facts.uses.append((dotted(alias.name) or "", None, self._place(node)))
        return False

    def visit_ImportFrom(self, node: cst.ImportFrom) -> bool:
        if node.module is not None and not node.relative and not isinstance(node.names, cst.ImportStar):
            for alias in node.names:
                full = f"{dotted(node.module)}.{dotted(alias.name)}"
                self._facts.uses.append((full, None, self._place(node)))
        return False

    def visit_Yield(self, node: cst.Yield) -> None:
        if isinstance(node.value, cst.BaseExpression):
            self._facts.yields.append((node.value, self._place(node)))

    def visit_Return(self, node: cst.Return) -> None:
        if node.value is not None:
            self._facts.returned.update(keys_passed_on(node.value))

    def _meaning(self, node: cst.CSTNode) -> str:
        return self._facts.imports.meaning(node)

    def _text(self, node: cst.CSTNode) -> str:
        return self._module.code_for_node(node)


def _catches_imports(node: cst.Try) -> bool:
    for handler in node.handlers:
        caught = handler.type
        listed = [one.value for one in caught.elements] if isinstance(caught, cst.Tuple) else [caught]
        if any(one is None or dotted(one) in ("ImportError", "ModuleNotFoundError") for one in listed):
            return True
    return False


def _traced_functions(module: cst.Module, facts: Facts) -> set[str]:
    found: set[str] = set()

    class Finder(cst.CSTVisitor):
        def visit_Call(self, node: cst.Call) -> None:
            if facts.imports.meaning(node.func) in _TRACERS:
                found.update(name for arg in node.args if (name := dotted(arg.value)) is not None)

        def visit_FunctionDef(self, node: cst.FunctionDef) -> None:
            for decorator in node.decorators:
                call = decorator.decorator
                plain = call.func if isinstance(call, cst.Call) else call
                if facts.imports.meaning(plain) in _TRACERS:
                    found.add(node.name.value)

    module.visit(Finder())
    return found


def _returned_tuples(module: cst.Module) -> dict[str, cst.BaseExpression]:
    """Return the tuples of functions with a single return statement, by the function's name."""
    found: dict[str, list[cst.BaseExpression | None]] = {}

    class Returns(cst.CSTVisitor):
        def __init__(self) -> None:
            self.functions: list[str] = []

        def visit_FunctionDef(self, node: cst.FunctionDef) -> None:
            self.functions.append(node.name.value)

        def leave_FunctionDef(self, original_node: cst.FunctionDef) -> None:
            self.functions.pop()

        def visit_Return(self, node: cst.Return) -> None:
            if self.functions:
                found.setdefault(self.functions[-1], []).append(node.value)

    module.visit(Returns())
    return {name: values[0] for name, values in found.items() if len(values) == 1 and isinstance(values[0], cst.Tuple)}


def _follow_areas(facts: Facts) -> None:
    """Find the areas and their names, and turn markers of methods into markers of areas."""
    for call in facts.calls:
        ours = call.name.startswith(_OURS)
        base = call.name.removesuffix(".from_tensors")
        if base.rpartition(".")[2] in AREAS and (ours or base.startswith(_AREA_MODULES)):
            facts.areas.append(Area(call, _names_of(facts, call), ours))
    for number, area in enumerate(facts.areas):
        area.escapes = _escapes(facts, area)
        for key in list(facts.made_of):
            for read in list(facts.made_of[key]):
                _mark(facts, area, number, key, read)
        for call in facts.calls:
            for read in call.reads:
                _mark(facts, area, number, read, read)


def _mark(facts: Facts, area: Area, number: int, key: Key, read: Key) -> None:
    receiver, _, method = read.partition(" ")
    if method and facts.is_area(receiver, area):
        facts.made_of.setdefault(read, set()).add(f"{_VERBS.get(method, method)}@{number}")
        if key != read:
            facts.made_of.setdefault(key, set()).add(read)


_VERBS = {"put()": "put", "stage()": "put", "get()": "get", "unstage()": "get", "peek()": "peek"}


def _names_of(facts: Facts, call: Call) -> set[Key]:
    names = {key for key, values in facts.assigned.items() if any(_holds(v, call.node) for v in values)}
    for other in facts.calls:
        adds = other.method in ("append", "add", "insert") and other.receiver and other.node.args
        if adds and _holds(other.node.args[-1].value, call.node):
            names.add(other.receiver)
    return names


def _holds(value: cst.BaseExpression, wanted: cst.Call) -> bool:
    if value is wanted:
        return True
    if isinstance(value, (cst.List, cst.Tuple)):
        return any(_holds(element.value, wanted) for element in value.elements)
    return isinstance(value, cst.ListComp) and _holds(value.elt, wanted)


def _escapes(facts: Facts, area: Area) -> bool:
    if not area.keys or argument(area.call.node, "shared_name") is not None:
        return True
    for call in facts.calls:
        handed = {key for arg in call.node.args for key in keys_passed_on(arg.value)}
        gives_away = call.method not in ("append", "add") and call.name not in _HARMLESS
        if gives_away and any(facts.is_area(key, area) for key in handed):
            return True
    return any(facts.is_area(key, area) for key in facts.returned)


def _follow_loops(facts: Facts) -> None:
    """Mark loops that call a function that runs a session: they are training loops too."""
    running = {call.place.functions[-1] for call in facts.session_runs() if call.place.functions}
    for loop in facts.loops:
        if not facts.reach(loop.calls).isdisjoint(running):
            loop.runs = True
