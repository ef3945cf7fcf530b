"""Queue runners and feed threads that are never started, or started before the variables are initialized."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator

from staging_tf1.legacy.lint.module import Module, argument, arguments, method, position, receiver
from staging_tf1.legacy.lint.rule import Mistakes, Rule

_PLAIN_SESSION = re.compile(r"tensorflow\.(Interactive)?Session")
_MAKER = re.compile(
    r"tensorflow\.train\.((string_|slice_|range_)?input_producer|(shuffle_)?batch(_join)?|maybe_(shuffle_)?batch)"
)
_INITIALIZERS = frozenset(
    f"tensorflow.{name}"
    for name in (
        "global_variables_initializer",
        "initialize_all_variables",
        "local_variables_initializer",
        "initialize_local_variables",
        "variables_initializer",
        "initialize_variables",
    )
)
_STARTERS = ("tensorflow.train.start_queue_runners", "staging_tf1.start")
# Whatever may start queue runners.
_STARTING = frozenset(
    """start_queue_runners QueueRunners QUEUE_RUNNERS create_threads start_threads MonitoredTrainingSession
    MonitoredSession SingularMonitoredSession Supervisor StagingSession Scaffold Estimator Experiment managed_session
    evaluate_once evaluation_loop train_loop queue_runner""".split()
)
# Ops that may be computed without their arguments, and names of other things than ops.
_NEEDS_NOTHING = re.compile(
    r"tensorflow\.(cond|case|switch_case|while_loop|map_fn|scan|fold[lr]|gradients|shape|shape_n|size|rank|zeros_like|"
    r"ones_like|placeholder_with_default|py_func|data\..*|estimator\..*|contrib\..*|[A-Z].*)"
)
_TAKING = ("dequeue", "dequeue_many", "dequeue_up_to", "read", "read_up_to", "put", "enqueue", "enqueue_many")
_BLOCKS = (ast.If, ast.For, ast.AsyncFor, ast.While, ast.Try, ast.ExceptHandler, ast.match_case)


def started_too_early(module: Module) -> Mistakes:
    """STG110."""
    for start in module.calls:
        if not _starts_threads(module, start):
            continue
        calls = [call for call in module.calls if module.function(call) is module.function(start)]
        for call in calls:
            session = receiver(call)
            if method(call) != "run" or not isinstance(session, ast.Name) or not _initializes(module, call):
                continue
            if _is_new_at(module, start, session) and _certainly_before(module, start, call):
                yield (
                    start,
                    f"threads start while variables are uninitialized: the initializer runs at line {call.lineno}; "
                    "start the threads after it",
                )
                break


def never_started(module: Module) -> Mistakes:
    """STG111."""
    makers = [call for call in module.calls if _MAKER.fullmatch(module.full_name(call.func))]
    if not makers or not _stands_alone(module) or not _STARTING.isdisjoint(_words(module)):
        return
    for run in module.calls:
        fetches = argument(run, "fetches", 0)
        if method(run) != "run" or fetches is None or len(arguments(run)) > 1:
            continue  # what is fed needs no queue
        if _PLAIN_SESSION.fullmatch(module.maker(receiver(run))) and _needs_queue(module, fetches):
            yield (
                makers[0],
                "this input needs queue runners, and nothing starts them: the first step blocks forever; call "
                "tf.train.start_queue_runners(sess, coord) after the initializer",
            )
            return


# ---- the start of threads


def _starts_threads(module: Module, call: ast.Call) -> bool:
    if method(call) == "start_threads":
        return module.maker(receiver(call)) == "staging_tf1.CustomRunner"
    return module.full_name(call.func) in _STARTERS


def _is_new_at(module: Module, start: ast.Call, session: ast.Name) -> bool:
    """Whether a plain session is opened in this function, and nothing has initialized or taken it before a call."""
    given = argument(start, "sess", 0)
    if isinstance(given, ast.Name) and module.bindings(given) is not module.bindings(session):
        return False
    bindings = module.bindings(session) or []
    before = [binding for binding in bindings if position(binding.node) < position(start)]
    opened = before[-1].value if before else None
    between = [binding for binding in bindings if position(start) < position(binding.node) < position(session)]
    if between or not isinstance(opened, ast.Call) or not _PLAIN_SESSION.fullmatch(module.full_name(opened.func)):
        return False
    if module.function(opened) is not module.function(start):
        return False
    for call in module.calls:
        if not position(opened) < position(call) < position(start):
            continue
        taken = any(isinstance(value, ast.Name) and value.id == session.id for value in arguments(call))
        if _initializes(module, call) or (taken and not module.full_name(call.func).startswith("tensorflow.train.")):
            return False
    return True


def _initializes(module: Module, call: ast.Call) -> bool:
    """Whether a run fetches an initializer: written there, or under a name that is assigned once."""
    if method(call) != "run":
        return False
    waiting: list[ast.AST | None] = [receiver(call), *arguments(call)]
    seen: set[ast.AST] = set()
    while waiting:
        node = waiting.pop()
        for part in ast.walk(node) if node is not None and node not in seen else ():
            seen.add(part)
            if isinstance(part, ast.Call) and module.full_name(part.func) in _INITIALIZERS:
                return True
            if isinstance(part, ast.Name):
                waiting.append(module.only(part))
    return False


def _certainly_before(module: Module, first: ast.Call, second: ast.Call) -> bool:
    """Whether one call runs before another on every way to it."""
    blocks = {(above, name) for above, name in module.out(second)}
    ways = ((above, name) for above, name in module.out(first) if isinstance(above, _BLOCKS))
    return position(first) < position(second) and all(way in blocks for way in ways)


# ---- queues that nothing fills


def _stands_alone(module: Module) -> bool:
    """Whether no code of other modules can start the runners: it imports TensorFlow, numpy and Python's own only."""
    known = {"tensorflow", "staging_tf1", "numpy", *sys.stdlib_module_names}
    local = any(binding.imported.startswith(".") for names in module.scope.names.values() for binding in names)
    return not local and all(use.imported.partition(".")[0] in known for use in module.uses if use.imported)


def _words(module: Module) -> Iterator[str]:
    for node in module.around:
        if isinstance(node, ast.Attribute):
            yield node.attr
        elif isinstance(node, ast.alias):
            yield node.name.rpartition(".")[2]


def _needs_queue(module: Module, node: ast.AST, *, every: bool = False, seen: frozenset[ast.AST] = frozenset()) -> bool:
    """Whether an op certainly takes from the queue of a runner. With `every`, each element of a list must."""
    if node in seen:
        return False
    seen |= {node}
    if isinstance(node, ast.Name):
        bindings = module.bindings(node) or []
        only = bindings[0] if len(bindings) == 1 else None
        if only is None or only.value is None:
            return False
        return _needs_queue(module, only.value, every=every or only.part, seen=seen)
    if isinstance(node, (ast.List, ast.Tuple)):
        return bool(node.elts) and (all if every else any)(_needs_queue(module, item, seen=seen) for item in node.elts)
    if isinstance(node, ast.Subscript):
        return _needs_queue(module, node.value, every=True, seen=seen)
    if isinstance(node, ast.BinOp):
        return any(_needs_queue(module, side, seen=seen) for side in (node.left, node.right))
    if not isinstance(node, ast.Call):
        return False
    name, given = module.full_name(node.func), receiver(node)
    if _MAKER.fullmatch(name):
        return True
    if name:
        parts: list[ast.expr] = [] if _NEEDS_NOTHING.match(name) or not name.startswith("tensorflow.") else node.args
    else:
        parts = [*([given] if given is not None else []), *node.args] if method(node) in _TAKING else []
    return any(_needs_queue(module, part, seen=seen) for part in parts)


RULES = (
    Rule("STG110", "started-too-early", started_too_early),
    Rule("STG111", "never-started", never_started),
)
