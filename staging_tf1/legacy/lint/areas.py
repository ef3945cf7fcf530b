"""Areas and ops built in the training loop, areas without a put or a get, and dtypes that contradict each other."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from staging_tf1.legacy.lint.module import (
    COMPREHENSIONS,
    Module,
    argument,
    arguments,
    is_open,
    last_name,
    method,
    receiver,
)
from staging_tf1.legacy.lint.rule import Mistakes, Rule

_AREA = re.compile(
    r"(tensorflow\.contrib\.staging|tensorflow\.python\.ops\.data_flow_ops|tensorflow\.staging|staging_tf1)"
    r"\.(Map)?StagingArea(\.from_tensors)?"
)
_QUEUE = re.compile(r"tensorflow\..*(FIFO|RandomShuffle|Priority)Queue")
_OPTIMIZER = re.compile(r"tensorflow\..*Optimizer")
_VARIABLE = re.compile(r"tensorflow\.(Variable|get_variable|train\.get_or_create_global_step)")
_PUTTING, _TAKING = ("put", "stage"), ("get", "unstage", "clear")
# What neither puts nor takes.
_HARMLESS = frozenset({"name", "dtypes", "shapes", "names", "capacity", "memory_limit", "size", "size_op", "peek"})
_OPS = {
    **dict.fromkeys((*_PUTTING, *_TAKING, "peek", "size"), _AREA),
    **dict.fromkeys(("enqueue", "enqueue_many", "dequeue", "dequeue_many"), _QUEUE),
    **dict.fromkeys(("assign", "assign_add", "assign_sub"), _VARIABLE),
    **dict.fromkeys(("minimize", "apply_gradients", "compute_gradients"), _OPTIMIZER),
}
_ASSIGNING = ("tensorflow.assign", "tensorflow.assign_add", "tensorflow.assign_sub")
_TRACERS = frozenset({"tensorflow.while_loop", "tensorflow.function", "tensorflow.map_fn", "tensorflow.scan"})
_NEW_GRAPH = frozenset({"tensorflow.Graph", "tensorflow.reset_default_graph"})
_CONDITIONAL = (ast.If, ast.IfExp, ast.BoolOp, ast.Match, ast.ExceptHandler, *COMPREHENSIONS)

_OPENING = re.compile(r"(tensorflow|staging_tf1)\..*Session")
_LOOKS_LIKE_ONE = re.compile(r"(.*_)?sess(ion)?(_?\d+)?", re.IGNORECASE)

# Position of the dtype argument in calls whose result has that dtype; None if it is keyword-only.
_DTYPE_POSITION = {
    "tensorflow.placeholder": 0,
    "tensorflow.cast": 1,
    "tensorflow.constant": 1,
    "tensorflow.zeros": 1,
    "tensorflow.ones": 1,
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
_SAME_DTYPE = {"float": "float64", "int": "int64", "bool_": "bool", "half": "float16"}


@dataclass
class Area:
    """An area with a name of its own, whose every use the module shows."""

    call: ast.Call
    uses: dict[str, list[ast.AST]] = field(default_factory=dict)  # the calls of its methods, by name

    def named(self, names: tuple[str, ...]) -> list[ast.AST]:
        """Return the uses of any of these methods."""
        return [node for name in names for node in self.uses.get(name, ())]


def area_in_loop(module: Module) -> Mistakes:
    """STG101."""
    traced = _traced(module)
    known = {area.call for area in _areas(module)}
    for call in module.calls:
        if not _AREA.fullmatch(module.full_name(call.func)):
            continue
        if not traced.isdisjoint(module.above(call)):
            yield (
                call,
                "the area is made in a function that TensorFlow traces (tf.while_loop, tf.function): build it outside",
            )
        elif call in known and (loop := _training_loop(module, call, *arguments(call))) is not None:
            yield (
                call,
                f"the training loop at line {loop.lineno} makes a new, empty area in every iteration, and the graph "
                "grows; build the area once, before the loop",
            )


def ops_in_loop(module: Module) -> Mistakes:
    """STG102."""
    for call in module.calls:
        name, makers = module.full_name(call.func), _OPS.get(method(call))
        if name in _ASSIGNING:
            written, changed = f"tf.{method(call)}()", argument(call, "ref", 0)
        elif not name and makers is not None and makers.fullmatch(module.maker(receiver(call))):
            written, changed = f"{method(call)}()", receiver(call)
        else:
            continue
        loop = _training_loop(module, call, changed) if changed is not None else None
        if loop is not None:
            yield (
                call,
                f"{written} adds ops to the graph in every iteration of the training loop at line {loop.lineno}; "
                "call it once, before the loop, and run what it returns",
            )


def never_put(module: Module) -> Mistakes:
    """STG104."""
    for area in _areas(module):
        gets = area.named(("get", "unstage"))
        if gets and not area.named(_PUTTING):
            yield gets[0], "nothing is put into this area: get blocks forever"


def never_got(module: Module) -> Mistakes:
    """STG105."""
    for area in _areas(module):
        puts = area.named(_PUTTING)
        if puts and not area.named(_TAKING):
            yield puts[0], "nothing takes elements from this area: memory grows, or put blocks forever"


def contradicting_dtypes(module: Module) -> Mistakes:
    """STG109."""
    for put in module.calls:
        area = module.value(receiver(put)) if method(put) == "put" else None
        if not isinstance(area, ast.Call) or not _AREA.fullmatch(module.full_name(area.func)):
            continue
        for component, dtype, value in _components(module, area, put):
            expected, found = _dtype_name(module, dtype), _dtype(module, value)
            if expected and found and expected != found:
                yield (
                    put,
                    f"component {component!r} is {found}, but the area declares {expected}: write "
                    f"tf.cast(..., tf.{expected}), or declare tf.{found}",
                )


# ---- areas


def _areas(module: Module) -> Iterator[Area]:
    """Yield the areas that only this module can put into and take from."""
    for call in module.calls:
        name = module.full_name(call.func)
        if not _AREA.fullmatch(name) or is_open(call) or argument(call, "shared_name", 3) is not None:
            continue
        targets = module.targets.get(call, ())
        if len(targets) != 1 or module.only(targets[0]) is not call or not _is_private(module, targets[0]):
            continue
        area = Area(call)
        if all(_is_use(module, read, area) for read in module.reads.get(targets[0].id, ())):
            yield area


def _is_private(module: Module, target: ast.Name) -> bool:
    """Whether no other module can use a name: it is a function's, or that of a program, which nothing imports."""
    bindings = module.bindings(target)
    if bindings is module.scope.names.get(target.id):
        return any(opens_session(module, call) for call in module.calls)
    return not isinstance(module.scopes[target].node, ast.ClassDef)


def _is_use(module: Module, read: ast.Name, area: Area) -> bool:
    """Note what a name is used for. Return whether it is known: False for an area that is passed on."""
    if module.only(read) is not area.call:
        return True  # another name, spelled the same
    attribute, _ = module.around[read]
    if not isinstance(attribute, ast.Attribute):
        return False
    above, name = module.around[attribute]
    area.uses.setdefault(attribute.attr, []).append(above if name == "func" else attribute)
    return attribute.attr in _HARMLESS or attribute.attr in (*_PUTTING, *_TAKING)


def _traced(module: Module) -> set[ast.AST]:
    traced: set[ast.AST] = set()
    for call in module.calls:
        for arg in call.args if module.full_name(call.func) in _TRACERS else ():
            bindings = module.bindings(arg) if isinstance(arg, ast.Name) else None
            traced.add(bindings[0].node if bindings and len(bindings) == 1 else arg)
    for node in module.around:
        for decorator in getattr(node, "decorator_list", ()):
            if module.full_name(decorator.func if isinstance(decorator, ast.Call) else decorator) in _TRACERS:
                traced.add(node)
    return traced


# ---- loops


def _training_loop(module: Module, call: ast.Call, *same: ast.expr) -> ast.For | ast.AsyncFor | ast.While | None:
    """Return the nearest loop that runs one session again and again, and repeats a call with the same values."""
    for above, name in module.out(call):
        if isinstance(above, _CONDITIONAL) or (isinstance(above, ast.Try) and name != "body"):
            return None
        if isinstance(above, (ast.For, ast.AsyncFor, ast.While)):
            if (
                name != "body"
                or not _repeats(above)
                or _varies(module, [*same, *_managers(module, call, above)], above)
            ):
                return None
            if _trains(module, above):
                return above
    return None


def _repeats(loop: ast.For | ast.AsyncFor | ast.While) -> bool:
    """Whether a loop repeats the same steps: one over a literal goes through cases, one that ends itself does not."""
    if isinstance(getattr(loop, "iter", None), (ast.Tuple, ast.List)):
        return False
    last = loop.body[-1]
    while isinstance(last, (ast.Try, ast.With)):
        last = last.body[-1]
    return not isinstance(last, (ast.Break, ast.Return, ast.Raise))


def _trains(module: Module, loop: ast.AST) -> bool:
    """Whether a loop runs a session that is opened outside, and keeps its graph."""
    inside = module.inside.get(loop, ())
    if any(opens_session(module, call) or _makes_graph(module, call) for call in inside):
        return False
    receivers = [receiver(call) for call in inside if method(call) == "run" and call.args]
    return any(
        session is not None and is_session(module, session) and not _varies(module, [session], loop)
        for session in receivers
    )


def _makes_graph(module: Module, call: ast.Call) -> bool:
    return module.full_name(call.func) in _NEW_GRAPH or method(call) == "as_default"


def opens_session(module: Module, call: ast.Call) -> bool:
    """Whether a call opens a session."""
    return _OPENING.fullmatch(module.full_name(call.func)) is not None


def is_session(module: Module, node: ast.AST) -> bool:
    """Whether an object is a session: by the call that made it, or by its name if that is unknown."""
    value = module.value(node)
    if isinstance(value, ast.Call) and (name := module.full_name(value.func)):
        return _OPENING.fullmatch(name) is not None
    return not isinstance(value, ast.Call) and _LOOKS_LIKE_ONE.fullmatch(last_name(node)) is not None


def _managers(module: Module, node: ast.AST, loop: ast.AST) -> Iterator[ast.expr]:
    for above, _ in module.out(node):
        if above is loop:
            return
        if isinstance(above, ast.With):
            yield from (item.context_expr for item in above.items)


def _varies(module: Module, nodes: Iterable[ast.expr], loop: ast.AST, seen: frozenset[ast.AST] = frozenset()) -> bool:
    """Whether expressions may stand for something else in each iteration, so that no op is built twice."""
    for inner in (below for node in nodes for below in ast.walk(node)):
        if isinstance(inner, ast.Call):
            name = module.full_name(inner.func)
            if not name.startswith("tensorflow.") or _VARIABLE.fullmatch(name) or _AREA.fullmatch(name):
                return True
        for binding in (module.bindings(inner) or ()) if isinstance(inner, ast.Name) else ():
            if loop not in module.above(binding.node):
                continue
            if binding.part or binding.value is None or binding.node in seen:
                return True
            if _varies(module, [binding.value], loop, seen | {binding.node}):
                return True
    return False


# ---- dtypes


def _components(module: Module, area: ast.Call, put: ast.Call) -> Iterator[tuple[int | str, ast.expr, ast.expr]]:
    """Yield the index or name of each component that a put shows, its declared dtype and its value."""
    dtypes = _items(argument(area, "dtypes", 0))
    has_keys = module.full_name(area.func).endswith("MapStagingArea")
    values = argument(put, "vals", 1) if has_keys else argument(put, "values", 0)
    if not isinstance(values, ast.Dict):
        listed = _items(values)
        if len(dtypes) == len(listed):
            yield from zip(range(len(dtypes)), dtypes, listed)
        return
    names = [_text(name) for name in _items(argument(area, "names", 2))]
    declared = dict(zip(names, dtypes)) if len(names) == len(set(names)) == len(dtypes) else {}
    for key, value in zip(values.keys, values.values):
        name = _text(key)
        if name is not None and name in declared:
            yield name, declared[name], value


def _items(node: ast.expr | None) -> list[ast.expr]:
    """Return the elements of a list or tuple that is written out; [] for others."""
    known = isinstance(node, (ast.List, ast.Tuple)) and not any(isinstance(item, ast.Starred) for item in node.elts)
    return node.elts if known else []  # type: ignore[union-attr]


def _text(node: ast.expr | None) -> str | None:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else None


def _dtype_name(module: Module, node: ast.AST | None) -> str:
    package, _, name = module.full_name(node).rpartition(".") if node is not None else ("", "", "")
    return _SAME_DTYPE.get(name, name) if package in ("tensorflow", "numpy", "tensorflow.dtypes") else ""


def _dtype(module: Module, node: ast.AST) -> str:
    """Return the dtype of a value if the source states it, else empty."""
    value = module.value(node)
    if not isinstance(value, ast.Call):
        return ""
    name = module.full_name(value.func)
    if name == "tensorflow.to_float":
        return "float32"
    return _dtype_name(module, argument(value, "dtype", _DTYPE_POSITION[name])) if name in _DTYPE_POSITION else ""


RULES = (
    Rule("STG101", "area-in-loop", area_in_loop),
    Rule("STG102", "ops-in-loop", ops_in_loop),
    Rule("STG104", "never-put", never_put),
    Rule("STG105", "never-got", never_got),
    Rule("STG109", "contradicting-dtypes", contradicting_dtypes),
)
