"""Recognises classes that feed a queue from threads, and writes the `CustomRunner` that replaces each of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass

import libcst as cst

from staging_tf1.legacy.codemod.idiom_class import UnknownShapeError, Values, assignments, batch_size_of, threads_of
from staging_tf1.legacy.codemod.idiom_feed import Feed, feed_of
from staging_tf1.legacy.codemod.import_lines import code, expression, names_in
from staging_tf1.legacy.codemod.names import Imports, dotted

# The positional arguments of the queues that a CustomRunner has.
_POSITIONAL = {
    "tensorflow.RandomShuffleQueue": ("capacity", "min_after_dequeue", "dtypes", "shapes"),
    "tensorflow.FIFOQueue": ("capacity", "dtypes", "shapes"),
    "tensorflow.PaddingFIFOQueue": ("capacity", "dtypes", "shapes"),
}
# Whole batches are not padded, so a padding queue of them is a FIFO queue.
_KINDS = {
    "tensorflow.RandomShuffleQueue": "shuffle",
    "tensorflow.FIFOQueue": "fifo",
    "tensorflow.PaddingFIFOQueue": "fifo",
}
_KEPT_QUEUE_ARGUMENTS = ("capacity", "min_after_dequeue", "seed")
_OTHER_QUEUE_ARGUMENTS = ("dtypes", "shapes", "name", "names", "shared_name")


@dataclass(frozen=True)
class Runner:
    """A class that feeds a queue from threads."""

    name: str  # the name of the class
    get: str  # its method that returns the dequeued batch
    start: str  # its method that starts the threads
    feed: Feed  # what its threads do
    batch_size: cst.BaseExpression | None  # None for whole batches
    queue: str  # "shuffle" or "fifo"
    options: Mapping[str, cst.BaseExpression]  # arguments of the queue
    assigned: Mapping[str, cst.BaseExpression]  # what __init__ assigns to self
    parameters: cst.Parameters  # those of __init__
    threads: cst.BaseExpression
    rebound: Set[str]  # names that the file assigns more than once

    @property
    def endless(self) -> bool:
        """Whether its threads draw batches in an endless loop."""
        return self.feed.endless

    def call(self, args: Sequence[cst.Arg], numpy: str) -> str:
        """Return the source of the CustomRunner for a call of the class. Raises UnknownShapeError."""
        values = Values(self.assigned, _bound(self.name, self.parameters, args))
        self._check_capture(values, args)
        single = self.batch_size is not None and not self.feed.many
        source = f"lambda: {self.feed.generator(values, single, numpy)}"
        threads = values.of(self.threads)
        if not threads.isdigit() or int(threads) < 1:
            raise UnknownShapeError(f"{self.start}() starts a number of threads that is no constant")
        if threads != "1":  # each thread went through the data by itself
            source = f"[{source}] * {threads}"
        arguments = [source] + ([f"batch_size={values.of(self.batch_size)}"] if self.batch_size is not None else [])
        arguments += [f'queue="{self.queue}"']
        arguments += [f"{name}={values.of(value, in_init=True)}" for name, value in self.options.items()]
        arguments += [f"num_threads={threads}"] if threads != "1" else []
        call = f"staging_tf1.CustomRunner({', '.join(arguments)})"
        # With room for the name that it is assigned to. Within brackets any indentation is valid.
        if len(call) <= 80:
            return call
        lines = "".join(f"    {argument},\n" for argument in arguments)
        return f"staging_tf1.CustomRunner(\n{lines})"

    def _check_capture(self, values: Values, args: Sequence[cst.Arg]) -> None:
        """Raise if the threads may read another value than the constructor got, because its name is assigned again."""
        passed = {arg.value.value for arg in args if isinstance(arg.value, cst.Name)}
        for name in sorted(passed & self.rebound & names_in(expression(values.of(self.feed.source)))):
            raise UnknownShapeError(f"its argument {name} is assigned more than once")


def find_runners(module: cst.Module, imports: Imports) -> tuple[list[Runner], list[str]]:
    """Return the classes that feed a queue from threads, and for each that is not of a known shape what is different.

    Only classes at the top level are read.
    """
    runners: list[Runner] = []
    refused: list[str] = []
    for statement in module.body:
        if isinstance(statement, cst.ClassDef) and _feeds_a_queue(statement):
            try:
                runners.append(_runner(module, statement, imports))
            except UnknownShapeError as error:
                refused.append(f"class {statement.name.value}: {error}")
    return runners, refused


def check_uses(module: cst.Module, runners: Sequence[Runner]) -> set[str]:
    """Return the names that hold runners. Raises if something is used that a CustomRunner does not have."""
    known = {name for one in runners for name in (one.get, one.start)}
    uses = _RunnerUses({one.name for one in runners})
    module.visit(uses)
    if uses.calls != len(uses.owners):
        raise UnknownShapeError("a runner is not assigned to a name")
    for owner in uses.owners:
        after = [text[len(owner) + 1 :] for text in uses.used if text.startswith(f"{owner}.")]
        for attribute in after:
            if attribute not in known:
                raise UnknownShapeError(f"{owner}.{attribute} is used, which a CustomRunner does not have")
        if uses.used.count(owner) != uses.owners.count(owner):
            raise UnknownShapeError(f"{owner!r} is used in an unknown way")
    return set(uses.owners)


class _RunnerUses(cst.CSTVisitor):
    """Collects the names that runners are assigned to, and all dotted names of the file."""

    def __init__(self, classes: set[str]) -> None:
        self._classes = classes
        self.calls = 0
        self.owners: list[str] = []
        self.used: list[str] = []

    def visit_Assign(self, node: cst.Assign) -> None:
        if isinstance(node.value, cst.Call) and dotted(node.value.func) in self._classes:
            self.owners += [dotted(one.target) or "" for one in node.targets]

    def visit_Call(self, node: cst.Call) -> None:
        self.calls += dotted(node.func) in self._classes

    def visit_Attribute(self, node: cst.Attribute) -> bool:
        name = dotted(node)
        self.used += [name] if name is not None else []
        return name is None

    def visit_Name(self, node: cst.Name) -> None:
        self.used.append(node.value)


def _feeds_a_queue(node: cst.ClassDef) -> bool:
    text = code(node)
    return "Thread(" in text and ".enqueue" in text and ".run(" in text


def _runner(module: cst.Module, node: cst.ClassDef, imports: Imports) -> Runner:
    methods = {one.name.value: one for one in node.body.body if isinstance(one, cst.FunctionDef)}
    if "__init__" not in methods or [dotted(base.value) for base in node.bases] not in ([], ["object"]):
        raise UnknownShapeError("it has a base class or no __init__")
    roles = _roles(methods)
    assigned = assignments(methods["__init__"], imports)
    queue, call = _queue(assigned, imports)
    kind = imports.meaning(call.func)
    feed = feed_of(module, methods[roles["feed"]], assigned, imports)
    batch_size = batch_size_of(module, methods[roles["get"]], queue)
    _check_elements(feed, kind, call, whole=batch_size is None)
    return Runner(
        name=node.name.value,
        get=roles["get"],
        start=roles["start"],
        feed=feed,
        batch_size=batch_size,
        queue=_KINDS[kind],
        options=_options(call, kind),
        assigned=assigned,
        parameters=methods["__init__"].params,
        threads=threads_of(module, methods[roles["start"]]),
        rebound=_assigned_again(module),
    )


def _assigned_again(module: cst.Module) -> set[str]:
    once: set[str] = set()
    again: set[str] = set()

    class Targets(cst.CSTVisitor):
        def visit_AssignTarget(self, node: cst.AssignTarget) -> None:
            (again if code(node.target) in once else once).add(code(node.target))

    module.visit(Targets())
    return again


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


def _queue(assigned: Mapping[str, cst.BaseExpression], imports: Imports) -> tuple[str, cst.Call]:
    queues = [
        (name, value)
        for name, value in assigned.items()
        if isinstance(value, cst.Call) and imports.meaning(value.func).endswith("Queue")
    ]
    if len(queues) != 1:
        raise UnknownShapeError(f"it has {len(queues)} queues, expected 1")
    name, call = queues[0]
    if imports.meaning(call.func) not in _KINDS:
        raise UnknownShapeError(f"a CustomRunner has no {code(call.func)}")
    return name, call


def _check_elements(feed: Feed, kind: str, call: cst.Call, *, whole: bool) -> None:
    """Raise unless the elements are records, or whole batches that go through a FIFO queue as they are."""
    first_is_none = [shape.replace(" ", "").startswith(("[None", "(None")) for shape in feed.shapes]
    if whole and feed.many:
        raise UnknownShapeError("it dequeues single records with dequeue()")
    if whole and (kind == "tensorflow.RandomShuffleQueue" or not all(first_is_none)):
        raise UnknownShapeError("it enqueues elements that are not known to be batches")
    if (
        not whole
        and not feed.many
        and any(one or shape in ("", "None") for one, shape in zip(first_is_none, feed.shapes))
    ):
        raise UnknownShapeError(f"it enqueues single records with enqueue(), of the shape {feed.shapes[0] or 'None'}")
    if not whole and kind == "tensorflow.PaddingFIFOQueue":
        raise UnknownShapeError(f"a CustomRunner has no {code(call.func)}")


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
