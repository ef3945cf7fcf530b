"""Reads the methods of a class that feeds a queue from threads, if they are of a known shape."""

from __future__ import annotations

from collections.abc import Mapping

import libcst as cst

from staging_tf1.legacy.codemod.import_lines import code
from staging_tf1.legacy.codemod.names import dotted


class UnknownShapeError(Exception):
    """The code is not of a known shape; the message says what is different."""


def self_assignments(function: cst.FunctionDef) -> dict[str, cst.BaseExpression]:
    """Return what `__init__` assigns to attributes. Raises UnknownShapeError if it does anything else."""
    found: dict[str, cst.BaseExpression] = {}
    statements = _statements(function.body)
    while statements:
        line = statements.pop(0)
        if isinstance(line, cst.With) and len(line.items) == 1 and "device" in code(line.items[0].item):
            statements[:0] = _statements(line.body)
            continue
        one = line.body[0] if isinstance(line, cst.SimpleStatementLine) else None
        name = dotted(one.targets[0].target) if isinstance(one, cst.Assign) and len(one.targets) == 1 else None
        if not isinstance(one, cst.Assign) or name is None or not name.startswith("self.") or name in found:
            raise UnknownShapeError(f"__init__ does more than to assign attributes once: {_shown(line)}")
        found[name] = one.value
    return found


def batch_size_of(module: cst.Module, function: cst.FunctionDef, queue: str) -> cst.BaseExpression:
    """Return N if the method returns ``self.queue.dequeue_many(N)``, perhaps by way of names."""
    lines = [line.body[0] for line in _statements(function.body) if isinstance(line, cst.SimpleStatementLine)]
    plain = f"{function.name.value}() does more than to return {queue}.dequeue_many(N)"
    if len(lines) != len(_statements(function.body)) or not lines or not isinstance(lines[-1], cst.Return):
        raise UnknownShapeError(plain)
    value = lines[-1].value
    if len(lines) == 2 and isinstance(lines[0], cst.Assign) and value is not None:
        if _names(lines[0].targets[0].target) != _names(value):
            raise UnknownShapeError(plain)
        value = lines[0].value
    elif len(lines) != 1:
        raise UnknownShapeError(plain)
    if not (isinstance(value, cst.Call) and dotted(value.func) == f"{queue}.dequeue_many" and len(value.args) == 1):
        raise UnknownShapeError(plain)
    number = value.args[0].value
    if not (isinstance(number, cst.Name) and number.value in [one.name.value for one in function.params.params]):
        return number
    calls = [call for call in _calls_of(module, function.name.value) if call.args]
    if len(calls) != 1 or len(calls[0].args) != 1:
        raise UnknownShapeError(f"{function.name.value}() is called with several batch sizes")
    return calls[0].args[0].value


def source_of(
    module: cst.Module, function: cst.FunctionDef, made: Mapping[str, cst.BaseExpression]
) -> tuple[cst.BaseExpression, bool]:
    """Return the call that makes the batches, and whether it makes one batch in an endless loop.

    The method is ``for x, y in SOURCE: sess.run(enqueue, {self.X: x, self.Y: y})``, or ``while True: x, y = SOURCE``
    with such a run. The feeds must be in the order of the queue's components.
    """
    body = _statements(function.body)
    loop = body[0] if len(body) == 1 else None
    if not isinstance(loop, (cst.For, cst.While)) or loop.orelse is not None:
        raise UnknownShapeError(f"{function.name.value}() is more than one loop")
    steps = [line for line in _statements(loop.body) if not _is_stop_check(line)]
    if isinstance(loop, cst.For):
        target, made_by = loop.target, loop.iter
    else:
        if code(loop.test) not in ("True", "1") and not code(loop.test).endswith(".should_stop()"):
            raise UnknownShapeError(f"{function.name.value}() loops while {code(loop.test)}")
        first = steps.pop(0) if steps else None
        one = first.body[0] if isinstance(first, cst.SimpleStatementLine) else None
        if not isinstance(one, cst.Assign) or len(one.targets) != 1:
            raise UnknownShapeError(f"{function.name.value}() does not begin its loop with a batch")
        target, made_by = one.targets[0].target, one.value
    if len(steps) != 1 or _fed(steps[0], made) != _names(target):
        raise UnknownShapeError(f"{function.name.value}() does more than to feed the queue's components in order")
    if not (isinstance(made_by, cst.Call) and isinstance(made_by.func, cst.Name)):
        raise UnknownShapeError(f"the batches come from {code(made_by)}, expected a call of a function")
    if not any(isinstance(one, cst.FunctionDef) and one.name.value == made_by.func.value for one in module.body):
        raise UnknownShapeError(f"{made_by.func.value}() is not a function of this file")
    return made_by, isinstance(loop, cst.While)


def _fed(line: cst.CSTNode, made: Mapping[str, cst.BaseExpression]) -> list[str | None] | None:
    """Return the names of what a ``sess.run(self.enqueue, feed_dict={...})`` feeds, in the order of the components."""
    run = (
        line.body[0].value if isinstance(line, cst.SimpleStatementLine) and isinstance(line.body[0], cst.Expr) else None
    )
    if not (isinstance(run, cst.Call) and len(run.args) == 2 and isinstance(run.args[1].value, cst.Dict)):
        return None
    enqueue = made.get(dotted(run.args[0].value) or "")
    if not isinstance(enqueue, cst.Call) or len(enqueue.args) != 1:
        return None
    if (dotted(enqueue.func) or "").endswith(".enqueue"):
        raise UnknownShapeError("it enqueues single records with enqueue(); a CustomRunner takes batches")
    components = enqueue.args[0].value
    listed = (
        [one.value for one in components.elements] if isinstance(components, (cst.List, cst.Tuple)) else [components]
    )
    fed = {dotted(one.key): dotted(one.value) for one in run.args[1].value.elements if isinstance(one, cst.DictElement)}
    return [fed.get(dotted(one)) for one in listed]


def _is_stop_check(line: cst.CSTNode) -> bool:
    """Whether it is ``if coord.should_stop(): break``, which a CustomRunner does by itself."""
    if not isinstance(line, cst.If) or line.orelse is not None or not code(line.test).endswith(".should_stop()"):
        return False
    return all(code(one).strip() in ("break", "return") for one in _statements(line.body))


def threads_of(module: cst.Module, start: cst.FunctionDef) -> int:
    """Return the number of threads that the calls of the start method ask for."""
    parameters = [param for param in start.params.params if param.name.value != "self"]
    if len(parameters) < 2:
        return 1
    name = parameters[1].name.value
    numbers = {code(parameters[1].default)} if parameters[1].default is not None else set()
    calls = _calls_of(module, start.name.value)
    given = [arg.value for call in calls for i, arg in enumerate(call.args) if _is_argument(arg, i, 1, name)]
    numbers = {code(value) for value in given} if given else numbers
    if len(numbers) != 1 or not (text := numbers.pop()).isdigit() or int(text) < 1:
        raise UnknownShapeError(f"{start.name.value}() starts a number of threads that is no constant")
    return int(text)


def _calls_of(module: cst.Module, method: str) -> list[cst.Call]:
    found: list[cst.Call] = []

    class Calls(cst.CSTVisitor):
        def visit_Call(self, node: cst.Call) -> None:
            if isinstance(node.func, cst.Attribute) and node.func.attr.value == method:
                found.append(node)

    module.visit(Calls())
    return found


def _is_argument(arg: cst.Arg, place: int, wanted: int, name: str) -> bool:
    return arg.keyword.value == name if arg.keyword is not None else place == wanted


def _names(node: cst.BaseExpression) -> list[str | None]:
    return [dotted(one.value) for one in node.elements] if isinstance(node, (cst.Tuple, cst.List)) else [dotted(node)]


def _statements(block: cst.BaseSuite) -> list[cst.CSTNode]:
    """Return the statements of a block without its docstrings."""
    return [
        one
        for one in block.body
        if not (
            isinstance(one, cst.SimpleStatementLine)
            and isinstance(one.body[0], cst.Expr)
            and isinstance(one.body[0].value, cst.SimpleString)
        )
    ]


def _shown(node: cst.CSTNode) -> str:
    return code(node).strip().splitlines()[-1][:60]
