"""Queue runners and feed threads that are never started, or started before the variables are initialized."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Callable, Iterator
from functools import partial

from staging_tf1.legacy.lint.imported import program
from staging_tf1.legacy.lint.module import Module, argument, arguments, is_open, method, position, receiver
from staging_tf1.legacy.lint.rule import Mistakes, Rule

_PLAIN_SESSION = re.compile(r"tensorflow\.(Interactive)?Session")
_OPTIMIZER = re.compile(r"tensorflow\..*Optimizer")
_MAKER = re.compile(
    r"tensorflow\.train\.((string_|slice_|range_)?input_producer|(shuffle_)?batch(_join)?|maybe_(shuffle_)?batch)"
)
# The inputs of this package, which feed threads fill.
_OWN_MAKER = re.compile(r"staging_tf1\.(staged|CustomRunner)")
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
# What may start feed threads of this package besides.
_STARTING_OWN = _STARTING | {"start", "StagingHook"}
# What may run code that the text does not show.
_HIDING = frozenset(
    {"exec", "eval", "__import__", "import_module", "exec_module", "load_module", "run_module", "run_path"}
)
# Ops that may be computed without their arguments, and names of other things than ops.
_NEEDS_NOTHING = re.compile(
    r"tensorflow\.(cond|case|switch_case|while_loop|map_fn|scan|fold[lr]|gradients|shape|shape_n|size|rank|zeros_like|"
    r"ones_like|placeholder_with_default|py_func|data\..*|estimator\..*|contrib\..*|[A-Z].*)"
)
_TAKING = ("dequeue", "dequeue_many", "dequeue_up_to", "read", "read_up_to", "put", "enqueue", "enqueue_many")
_USE_SESSION = (
    "; use staging.StagingSession() in place of tf.Session(), or call staging.start(sess, coord) after the initializer"
)
_UNSTARTED = {
    "staging_tf1.staged": "this input needs feed threads, and nothing starts them: the first step fails" + _USE_SESSION,
    "staging_tf1.CustomRunner": "this queue needs feed threads, and nothing starts them: the first step blocks forever"
    + _USE_SESSION,
}
_UNSTARTED_RUNNERS = (
    "this input needs queue runners, and nothing starts them: the first step blocks forever; call "
    "tf.train.start_queue_runners(sess, coord) after the initializer"
)
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
    makers = [call for call in module.calls if _makes_input(module, call)]
    own = [call for call in makers if _is_own(module, call)]
    if not makers or not (_stays_unstarted(module) if own else _stands_alone(module)):
        return
    for run in module.calls:
        fetches = argument(run, "fetches", 0)
        if method(run) != "run" or fetches is None or len(arguments(run)) > 1:
            continue  # what is fed needs no queue
        if _PLAIN_SESSION.fullmatch(module.maker(receiver(run))) and _needs_queue(module, fetches):
            maker = (own or makers)[0]
            yield maker, _UNSTARTED.get(module.full_name(maker.func), _UNSTARTED_RUNNERS)
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


def _makes_input(module: Module, call: ast.Call) -> bool:
    return _MAKER.fullmatch(module.full_name(call.func)) is not None or _is_own(module, call)


def _is_own(module: Module, call: ast.Call) -> bool:
    return _OWN_MAKER.fullmatch(module.full_name(call.func)) is not None


def _stays_unstarted(module: Module) -> bool:
    """Whether no module of the program can start feed threads of this package."""
    modules = program(module) if _STARTING_OWN.isdisjoint(_words(module)) else None
    return modules is not None and all(
        _STARTING_OWN.isdisjoint([*_words(each), *each.strings]) and _HIDING.isdisjoint([*_words(each), *each.reads])
        for each in modules
    )


def _stands_alone(module: Module) -> bool:
    """Whether nothing starts the runners: not the module, which imports TensorFlow, numpy and Python's own only."""
    if not _STARTING.isdisjoint(_words(module)) or any(_starts_threads(module, call) for call in module.calls):
        return False
    known = {"tensorflow", "staging_tf1", "numpy", *sys.stdlib_module_names}
    local = any(binding.imported.startswith(".") for names in module.scope.names.values() for binding in names)
    return not local and all(use.imported.partition(".")[0] in known for use in module.uses if use.imported)


def _words(module: Module) -> Iterator[str]:
    for node in module.around:
        if isinstance(node, ast.Attribute):
            yield node.attr
        elif isinstance(node, ast.alias):
            yield node.name.rpartition(".")[2]


def _needs_queue(
    module: Module,
    node: ast.AST,
    *,
    every: bool = False,
    seen: frozenset[ast.AST] = frozenset(),
    needing: frozenset[ast.AST] = frozenset(),
) -> bool:
    """Whether an op certainly takes from the queue of a runner.

    Args:
      module: the module.
      node: what is fetched, or a part of it.
      every: whether each element of a list must.
      seen: what this is a part of.
      needing: the parameters whose values take from the queue, in a function of the module.
    """
    if node in seen:
        return False
    needs = partial(_needs_queue, module, seen=seen | {node}, needing=needing)
    if isinstance(node, ast.Name):
        bindings = module.bindings(node) or []
        only = bindings[0] if len(bindings) == 1 else None
        if only is None or only.value is None:
            return only is not None and only.node in needing
        return needs(only.value, every=every or only.part)
    if isinstance(node, (ast.List, ast.Tuple)):
        return bool(node.elts) and (all if every else any)(map(needs, node.elts))
    if isinstance(node, ast.Dict):
        return bool(node.values) and (all if every else any)(map(needs, node.values))
    if isinstance(node, ast.Subscript):
        return needs(node.value, every=True)
    if isinstance(node, ast.BinOp):
        return needs(node.left) or needs(node.right)
    if not isinstance(node, ast.Call):
        return False
    if _makes_input(module, node):
        return True
    name, given = module.full_name(node.func), receiver(node)
    if name:
        is_op = name.startswith("tensorflow.") and not _NEEDS_NOTHING.match(name)
        return is_op and any(map(needs, arguments(node)))
    if method(node) == "get_inputs":
        return given is not None and _OWN_MAKER.fullmatch(module.maker(given)) is not None
    if method(node) == "minimize":
        loss = argument(node, "loss", 0)
        return loss is not None and _OPTIMIZER.fullmatch(module.maker(given)) is not None and needs(loss)
    if method(node) in _TAKING:
        return any(map(needs, [*([given] if given is not None else []), *node.args]))
    return _returns_needing(module, node, needs, every)


def _returns_needing(module: Module, call: ast.Call, needs: Callable[..., bool], every: bool) -> bool:
    """Whether all that a function of the module returns takes from a queue if those of its arguments do that do."""
    bindings = module.bindings(call.func) if isinstance(call.func, ast.Name) else None
    function = bindings[0].node if bindings and len(bindings) == 1 else None
    if not isinstance(function, ast.FunctionDef) or function.decorator_list or is_open(call):
        return False
    parameters = {arg.arg: arg for arg in [*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs]}
    passed = [
        *zip([*function.args.posonlyargs, *function.args.args], call.args),
        *((parameters.get(keyword.arg or ""), keyword.value) for keyword in call.keywords),
    ]
    needing = frozenset(parameter for parameter, value in passed if parameter is not None and needs(value))
    inside = [node for node in module.around if module.function(node) is function]
    returned = [node.value for node in inside if isinstance(node, ast.Return)]
    return (
        bool(returned)
        and not any(isinstance(node, (ast.Yield, ast.YieldFrom)) for node in inside)
        and all(value is not None and needs(value, every=every, needing=needing) for value in returned)
    )


RULES = (
    Rule("STG110", "started-too-early", started_too_early),
    Rule("STG111", "never-started", never_started),
)
