"""Recognises classes that feed a queue from threads, and writes the `CustomRunner` that replaces each of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import libcst as cst

from staging_tf1.legacy.codemod.idiom_methods import (
    UnknownShapeError,
    batch_size_of,
    self_assignments,
    source_of,
    threads_of,
)
from staging_tf1.legacy.codemod.import_lines import code, names_in
from staging_tf1.legacy.codemod.names import Imports, dotted

# The positional arguments of the queues that a CustomRunner has.
_POSITIONAL = {
    "tensorflow.RandomShuffleQueue": ("capacity", "min_after_dequeue", "dtypes", "shapes"),
    "tensorflow.FIFOQueue": ("capacity", "dtypes", "shapes"),
}
_KINDS = {"tensorflow.RandomShuffleQueue": "shuffle", "tensorflow.FIFOQueue": "fifo"}
_KEPT_QUEUE_ARGUMENTS = ("capacity", "min_after_dequeue", "seed")
_OTHER_QUEUE_ARGUMENTS = ("dtypes", "shapes", "name", "names", "shared_name")


@dataclass(frozen=True)
class Runner:
    """A class that feeds a queue from threads."""

    name: str  # the name of the class
    get: str  # its method that returns the dequeued batch
    start: str  # its method that starts the threads
    source: cst.BaseExpression  # the call that makes the batches
    endless: bool  # the source makes one batch; the loop around it never ends
    batch_size: cst.BaseExpression
    queue: str  # "shuffle" or "fifo"
    options: Mapping[str, cst.BaseExpression]  # arguments of the queue
    made: Mapping[str, cst.BaseExpression]  # what __init__ assigns to self
    parameters: cst.Parameters  # those of __init__
    threads: int

    def call(self, args: Sequence[cst.Arg]) -> str:
        """Return the source of the CustomRunner for a call of the class. Raises UnknownShapeError."""
        given = _bound(self.name, self.parameters, args)
        source = _resolved(self.source, self.made, given)
        if self.endless:
            source = f"lambda: ({source} for _ in itertools.count())"
        elif source.endswith("()"):
            source = source.removesuffix("()")
        else:
            source = f"lambda: {source}"
        if self.threads > 1:  # each thread went through the data by itself
            source = f"[{source}] * {self.threads}"
        arguments = [source, f"batch_size={_resolved(self.batch_size, self.made, given)}", f'queue="{self.queue}"']
        arguments += [f"{name}={_resolved(value, self.made, given)}" for name, value in self.options.items()]
        arguments += [f"num_threads={self.threads}"] if self.threads > 1 else []
        return f"staging_tf1.CustomRunner({', '.join(arguments)})"


def find_runners(module: cst.Module, imports: Imports) -> tuple[list[Runner], list[str]]:
    """Return the classes that feed a queue from threads, and for each that is not of a known shape what is different.

    Only classes at the top level are read.
    """
    found: list[Runner] = []
    refused: list[str] = []
    for statement in module.body:
        if isinstance(statement, cst.ClassDef) and _feeds_a_queue(statement):
            try:
                found.append(_runner(module, statement, imports))
            except UnknownShapeError as error:
                refused.append(f"class {statement.name.value}: {error}")
    return found, refused


def _feeds_a_queue(node: cst.ClassDef) -> bool:
    text = code(node)
    return "Thread(" in text and ".enqueue" in text and ".run(" in text


def _runner(module: cst.Module, node: cst.ClassDef, imports: Imports) -> Runner:
    methods = {one.name.value: one for one in node.body.body if isinstance(one, cst.FunctionDef)}
    if "__init__" not in methods or [dotted(base.value) for base in node.bases] not in ([], ["object"]):
        raise UnknownShapeError("it has a base class or no __init__")
    roles = _roles(methods)
    made = self_assignments(methods["__init__"])
    queue, call = _queue(made, imports)
    kind = imports.meaning(call.func)
    source, endless = source_of(module, methods[roles["feed"]], made)
    return Runner(
        name=node.name.value,
        get=roles["get"],
        start=roles["start"],
        source=source,
        endless=endless,
        batch_size=batch_size_of(module, methods[roles["get"]], queue),
        queue=_KINDS[kind],
        options=_options(call, kind),
        made=made,
        parameters=methods["__init__"].params,
        threads=threads_of(module, methods[roles["start"]]),
    )


def _roles(methods: Mapping[str, cst.FunctionDef]) -> dict[str, str]:
    roles: dict[str, str] = {}
    for name, method in methods.items():
        text = code(method.body)
        role = "get" if ".dequeue" in text else "start" if "Thread(" in text else "feed" if ".run(" in text else ""
        if name == "__init__":
            continue
        if not role or role in roles:
            raise UnknownShapeError(f"its method {name}() does something else than to dequeue, feed or start threads")
        roles[role] = name
    for role, what in (("get", "dequeues"), ("feed", "feeds the queue"), ("start", "starts the threads")):
        if role not in roles:
            raise UnknownShapeError(f"no method of its own {what}")
    return roles


def _queue(made: Mapping[str, cst.BaseExpression], imports: Imports) -> tuple[str, cst.Call]:
    queues = [
        (name, value)
        for name, value in made.items()
        if isinstance(value, cst.Call) and imports.meaning(value.func).endswith("Queue")
    ]
    if len(queues) != 1:
        raise UnknownShapeError(f"it has {len(queues)} queues, expected 1")
    name, call = queues[0]
    if imports.meaning(call.func) not in _KINDS:
        raise UnknownShapeError(f"a CustomRunner has no {code(call.func)}")
    return name, call


def _options(call: cst.Call, kind: str) -> dict[str, cst.BaseExpression]:
    names = iter(_POSITIONAL[kind])
    options = {}
    for arg in call.args:
        name = arg.keyword.value if arg.keyword is not None else next(names, "")
        if arg.star or name not in (*_KEPT_QUEUE_ARGUMENTS, *_OTHER_QUEUE_ARGUMENTS):
            raise UnknownShapeError(f"its queue has an unknown argument {code(arg.value)}")
        if name == "shared_name" or (name == "names" and code(arg.value) != "None"):
            raise UnknownShapeError(f"its queue has {name}")
        if name in _KEPT_QUEUE_ARGUMENTS:
            options[name] = arg.value
    return options


def _bound(what: str, parameters: cst.Parameters, args: Sequence[cst.Arg]) -> dict[str, cst.BaseExpression | None]:
    names = [param.name.value for param in parameters.params][1:]
    given: dict[str, cst.BaseExpression | None] = {param.name.value: param.default for param in parameters.params}
    for place, arg in enumerate(args):
        if arg.star or (arg.keyword is None and place >= len(names)):
            raise UnknownShapeError(f"{what}() is called in an unknown way")
        given[arg.keyword.value if arg.keyword is not None else names[place]] = arg.value
    return given


def _resolved(
    value: cst.BaseExpression,
    made: Mapping[str, cst.BaseExpression],
    given: Mapping[str, cst.BaseExpression | None],
) -> str:
    """Return the source of an expression of the class, for use where the class was called."""
    if isinstance(value, cst.Call) and isinstance(value.func, cst.Name):
        args = [
            (f"{arg.keyword.value}=" if arg.keyword is not None else "") + _resolved(arg.value, made, given)
            for arg in value.args
        ]
        return f"{value.func.value}({', '.join(args)})"
    name = dotted(value)
    if name is not None and name.startswith("self."):
        if name not in made:
            raise UnknownShapeError(f"{name} is not assigned in __init__")
        return _resolved(made[name], made, given)
    if name is not None and name in given:
        passed = given[name]
        if passed is None or not isinstance(
            passed, (cst.Name, cst.Attribute, cst.Integer, cst.Float, cst.SimpleString)
        ):
            raise UnknownShapeError(f"its argument {name} is no name or constant")
        return code(passed)
    if not {"self", *given}.isdisjoint(names_in(cst.Module([cst.SimpleStatementLine([cst.Expr(value)])]))):
        raise UnknownShapeError(f"{code(value)} is computed")
    return code(value)
