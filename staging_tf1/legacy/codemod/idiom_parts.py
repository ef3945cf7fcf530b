"""Recognises the pieces of a hand-written pipeline, if they are unambiguous."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import libcst as cst

from staging_tf1.legacy.codemod.import_lines import code
from staging_tf1.legacy.codemod.names import Imports, dotted

_QUEUES = {"tensorflow.RandomShuffleQueue": "shuffle", "tensorflow.FIFOQueue": "fifo"}
_KEPT_QUEUE_ARGUMENTS = ("capacity", "min_after_dequeue", "seed")
_PLAIN_AREA_ARGUMENTS = ("dtypes", "shapes", "capacity", "memory_limit")


@dataclass(frozen=True)
class Runner:
    """A class that follows the CustomRunner recipe."""

    name: str  # the name of the class
    call: str  # the call of staging_tf1.CustomRunner that replaces it, as source


@dataclass(frozen=True)
class Staging:
    """An area, its one put and its one get."""

    area: str
    put: str
    values: str  # the argument of put, as source
    options: str  # capacity and memory_limit, as source


def find_runners(module: cst.Module, imports: Imports) -> list[Runner]:
    """Return the classes that follow the recipe: placeholders, a queue, a thread method and a start method."""
    found = []
    for statement in module.body:
        if not isinstance(statement, cst.ClassDef):
            continue
        methods = {one.name.value: one for one in statement.body.body if isinstance(one, cst.FunctionDef)}
        if set(methods) == {"__init__", "get_inputs", "thread_main", "start_threads"}:
            call = _runner_call(module, methods, imports)
            found += [] if call is None else [Runner(statement.name.value, call)]
    return found


def find_stagings(body: Sequence[cst.BaseStatement], imports: Imports) -> list[Staging]:
    """Return the areas that have one put and one get in a block of statements."""
    areas: dict[str, str] = {}
    found = []
    for name, value in _assignments(body):
        if not isinstance(value, cst.Call):
            continue
        if imports.meaning(value.func) == "staging_tf1.StagingArea":
            if (options := _area_options(value)) is not None:
                areas[name] = options
        elif isinstance(value.func, cst.Attribute) and value.func.attr.value == "put" and len(value.args) == 1:
            area = dotted(value.func.value) or ""
            if area in areas and isinstance(value.args[0].value, (cst.List, cst.Tuple)):
                found.append(Staging(area, name, code(value.args[0].value), areas[area]))
    return found


def _assignments(body: Sequence[cst.BaseStatement]) -> list[tuple[str, cst.BaseExpression]]:
    found = []
    for statement in body:
        if isinstance(statement, cst.SimpleStatementLine) and isinstance(statement.body[0], cst.Assign):
            assign = statement.body[0]
            if len(assign.targets) == 1 and isinstance(assign.targets[0].target, cst.Name):
                found.append((assign.targets[0].target.value, assign.value))
    return found


def _area_options(call: cst.Call) -> str | None:
    """Return capacity and memory limit as arguments of staged(); None if staged() cannot replace the area."""
    options = ""
    for position, arg in enumerate(call.args):
        name = arg.keyword.value if arg.keyword is not None else ("dtypes", "shapes", "")[min(position, 2)]
        if arg.star or name not in _PLAIN_AREA_ARGUMENTS:
            return None
        if name in ("capacity", "memory_limit"):
            options += f", {name}={code(arg.value)}"
    return options


def _runner_call(module: cst.Module, methods: dict[str, cst.FunctionDef], imports: Imports) -> str | None:
    made = _self_assignments(methods["__init__"])
    queues = [
        (name, value)
        for name, value in made.items()
        if isinstance(value, cst.Call) and imports.meaning(value.func) in _QUEUES
    ]
    if len(queues) != 1:
        return None
    ((name, queue),) = queues
    batch_size = _batch_size(methods["get_inputs"], name)
    generator = _generator(methods["thread_main"], made)
    if batch_size is None or generator is None or not _is_function(module, generator):
        return None
    options = [
        f"{arg.keyword.value}={code(arg.value)}"
        for arg in queue.args
        if arg.keyword is not None and arg.keyword.value in _KEPT_QUEUE_ARGUMENTS
    ]
    if any(arg.keyword is None for arg in queue.args):
        return None  # the two kinds of queue differ in their positional arguments
    kind = _QUEUES[imports.meaning(queue.func)]
    arguments = [generator, f"batch_size={batch_size}", f'queue="{kind}"', *options]
    return f"staging_tf1.CustomRunner({', '.join(arguments)})"


def _self_assignments(function: cst.FunctionDef) -> dict[str, cst.BaseExpression]:
    found = {}
    for statement in function.body.body:
        if isinstance(statement, cst.SimpleStatementLine) and isinstance(statement.body[0], cst.Assign):
            name = dotted(statement.body[0].targets[0].target) or ""
            if name.startswith("self."):
                found[name] = statement.body[0].value
    return found


def _batch_size(function: cst.FunctionDef, queue: str) -> str | None:
    """Return N, a name or number, if the method's only statement is ``return self.queue.dequeue_many(N)``."""
    statements = [one for line in function.body.body if isinstance(line, cst.SimpleStatementLine) for one in line.body]
    statements = [one for one in statements if not isinstance(one, cst.Expr)]
    if len(statements) != 1 or not isinstance(statements[0], cst.Return):
        return None
    call = statements[0].value
    if not (isinstance(call, cst.Call) and dotted(call.func) == f"{queue}.dequeue_many" and len(call.args) == 1):
        return None
    number = call.args[0].value
    return code(number) if isinstance(number, (cst.Name, cst.Integer)) else None


def _generator(function: cst.FunctionDef, made: dict[str, cst.BaseExpression]) -> str | None:
    """Return G of ``for x, y in G(): sess.run(self.enqueue, feed_dict={self.X: x, self.Y: y})``.

    The feeds must be in the order of the queue's components.
    """
    body = [one for one in function.body.body if not _is_docstring(one)]
    if len(body) != 1 or not isinstance(body[0], cst.For) or len(body[0].body.body) != 1:
        return None
    loop = body[0]
    step = loop.body.body[0]
    if not (isinstance(step, cst.SimpleStatementLine) and isinstance(step.body[0], cst.Expr)):
        return None
    run = step.body[0].value
    if not (isinstance(run, cst.Call) and len(run.args) == 2 and isinstance(run.args[1].value, cst.Dict)):
        return None
    enqueue = made.get(dotted(run.args[0].value) or "")
    fed = {dotted(one.key): dotted(one.value) for one in run.args[1].value.elements if isinstance(one, cst.DictElement)}
    if not (isinstance(enqueue, cst.Call) and (dotted(enqueue.func) or "").endswith(".enqueue_many")):
        return None
    components = enqueue.args[0].value
    if not isinstance(components, (cst.List, cst.Tuple)):
        return None
    order = [fed.get(dotted(one.value)) for one in components.elements]
    targets = loop.target.elements if isinstance(loop.target, cst.Tuple) else None
    if targets is None or order != [dotted(one.value) for one in targets]:
        return None
    if isinstance(loop.iter, cst.Call) and not loop.iter.args and isinstance(loop.iter.func, cst.Name):
        return loop.iter.func.value
    return None


def _is_function(module: cst.Module, name: str) -> bool:
    return any(isinstance(one, cst.FunctionDef) and one.name.value == name for one in module.body)


def _is_docstring(statement: cst.CSTNode) -> bool:
    return (
        isinstance(statement, cst.SimpleStatementLine)
        and isinstance(statement.body[0], cst.Expr)
        and isinstance(statement.body[0].value, cst.SimpleString)
    )
