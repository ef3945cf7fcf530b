"""The runs of sessions: which session, what it executes, and the loops that repeat it."""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterable
from dataclasses import dataclass

from staging_tf1.legacy.lint.flow.bits import GLOBAL_INIT, LOCAL_INIT
from staging_tf1.legacy.lint.flow.marks import Marks
from staging_tf1.legacy.lint.flow.program import Program, argument
from staging_tf1.legacy.lint.model.reader import Call, Loop
from staging_tf1.legacy.lint.model.scopes import Context, Scope, Variable

PLAIN_SESSIONS = ("tensorflow.Session", "tensorflow.InteractiveSession")
_OPENING = re.compile(r"(^|\.)\w*(Session|_session|managed_session|PrepareSession|prepare_or_wait_for_session)$")
_LOOKS_LIKE_ONE = re.compile(r"(^|_)sess(ion)?s?(_?\d+)?$", re.IGNORECASE)
_NEW_GRAPH = frozenset({"tensorflow.Graph", "tensorflow.reset_default_graph", "tensorflow.python.framework.ops.Graph"})
# Tests that make a statement of a loop happen in one iteration only.
_ONCE = re.compile(r"\bnot\b|\bis None\b|hasattr|==\s*0\b|\bfirst\b")


@dataclass(eq=False, slots=True)
class Run:
    """One ``sess.run(...)``."""

    call: Call
    fetches: ast.expr | None
    may: int
    must: int


class Sessions:
    """The runs of a file's sessions."""

    def __init__(self, program: Program, marks: Marks) -> None:
        self._program = program
        self._values = program.values
        self._marks = marks

    @functools.cached_property
    def runs(self) -> list[Run]:
        """Return the calls of a session's run, in the order of the file."""
        found = [self._run(call) for call in self._program.calls if self._is_run(call)]
        return sorted(found, key=lambda run: (run.call.line, run.call.node.col_offset))

    def _is_run(self, call: Call) -> bool:
        if call.method != "run" or call.receiver is None or self._program.name(call):
            return False
        if call.node.args or argument(call.node, "fetches") is not None:
            return self.is_session(call.receiver, call.scope)
        return bool(self._marks.may(call.receiver, call.scope) & (GLOBAL_INIT | LOCAL_INIT))

    def _run(self, call: Call) -> Run:
        fetches = argument(call.node, "fetches", 0)
        what = fetches if fetches is not None else call.receiver
        assert what is not None
        return Run(call, fetches, self._marks.may(what, call.scope), self._marks.must(what, call.scope))

    def is_session(self, node: ast.expr, scope: Scope) -> bool:
        """Whether an object is a session: by the call that made it, or by its name if that is unknown."""
        unknown = True
        for origin in self._values.origins(node, scope):
            if isinstance(origin, Call):
                name = self._program.name(origin)
                if _OPENING.search(name or origin.method):
                    return True
                unknown = (
                    unknown
                    and not name.startswith("tensorflow.")
                    and not self._program.values.callees(origin.node, origin.scope)
                )
            elif not isinstance(origin, (Variable, ast.Attribute)):
                unknown = unknown and isinstance(origin, ast.Constant) and origin.value is None
        return unknown and _LOOKS_LIKE_ONE.search(last_name(node)) is not None

    def openings(self, node: ast.expr, scope: Scope) -> list[Call]:
        """Return the calls that open the session that an expression names, the nearest one if a name has several."""
        if isinstance(node, ast.Name):
            variable = scope.find(node.id)
            if variable is not None and len(variable.bindings) > 1:
                before = [one for one in variable.bindings if _position(one.node) <= _position(node)]
                if before and before[-1].value is not None:
                    origins = self._values.origins(before[-1].value, before[-1].scope)
                    return [one for one in origins if isinstance(one, Call)]
        return [one for one in self._values.origins(node, scope) if isinstance(one, Call)]

    def same_session(self, first: Call, second: Call) -> bool:
        """Whether two calls take the same session, as far as the file tells."""
        left, right = (self._session_argument(call) for call in (first, second))
        if left is None or right is None:
            return True  # the default session
        opened = [self.openings(node, call.scope) for node, call in ((left, first), (right, second))]
        if opened[0] and opened[1]:
            return not set(opened[0]).isdisjoint(opened[1])
        return ast.dump(left) == ast.dump(right)

    def _session_argument(self, call: Call) -> ast.expr | None:
        if call.method == "start_queue_runners":
            return argument(call.node, "sess", 0)
        if call.receiver is not None and self.is_session(call.receiver, call.scope):
            return call.receiver
        given = [argument(call.node, "sess"), argument(call.node, "session"), *call.node.args[:1]]
        return next((one for one in given if one is not None and self.is_session(one, call.scope)), None)

    # ---- loops

    @functools.cached_property
    def _running(self) -> set[Scope]:
        """The functions that run a session that they have not opened themselves, directly or in what they call."""
        runs = [run.call for run in self.runs if run.fetches is not None]
        return self.calling({call.scope.function() for call in runs if not self._opened_within(call, None)})

    def _opened_within(self, run: Call, loop: ast.AST | None) -> bool:
        """Whether the session of a run is opened inside `loop`, or in the function of the run if that is None."""
        if run.receiver is None:
            return False
        opened = self.openings(run.receiver, run.scope)
        if loop is None:
            return bool(opened) and all(
                one.scope.function() is run.scope.function() and one.scope.function().kind == "function"
                for one in opened
                if _OPENING.search(self._program.name(one))
            )
        return bool(opened) and all(loop in (here.node for here in one.context.around()) for one in opened)

    @functools.cached_property
    def _callers(self) -> dict[Scope, list[Call]]:
        found: dict[Scope, list[Call]] = {}
        for call in self._program.calls:
            if not self._program.name(call):
                for function in self.called_by(call):
                    found.setdefault(function, []).append(call)
        return found

    def called_by(self, call: Call) -> list[Scope]:
        """Return the functions of this file that a call runs: a class runs its __init__."""
        found: list[Scope] = []
        for one in self._values.callees(call.node, call.scope):
            if one.kind == "class":
                made = self._values.attribute(one, "__init__")
                found.extend(each.inner for each in (made.bindings if made else ()) if each.inner is not None)
            else:
                found.append(one)
        return found

    def callers(self, function: Scope) -> list[Call]:
        """Return the calls of a function in this file."""
        return self._callers.get(function, [])

    def calling(self, functions: Iterable[Scope]) -> set[Scope]:
        """Return `functions`, and those that call them, directly or through others."""
        found: set[Scope] = set()
        waiting = [one for one in functions if one.kind == "function"]
        while waiting:
            one = waiting.pop()
            if one not in found:
                found.add(one)
                waiting.extend(
                    above for call in self.callers(one) if (above := call.scope.function()).kind == "function"
                )
        return found

    def reached_from(self, functions: Iterable[Scope]) -> set[Scope]:
        """Return `functions` and those that they call, directly or through others."""
        found: set[Scope] = set()
        waiting = list(functions)
        while waiting:
            one = waiting.pop()
            if one not in found:
                found.add(one)
                waiting.extend(self._callees.get(one, ()))
        return found

    @functools.cached_property
    def _callees(self) -> dict[Scope, list[Scope]]:
        found: dict[Scope, list[Scope]] = {}
        for function, calls in self._callers.items():
            for call in calls:
                found.setdefault(call.scope.function(), []).append(function)
        return found

    @functools.cached_property
    def loops(self) -> dict[Context, Loop]:
        """The loops by the context of their body."""
        return {loop.context: loop for loop in self._program.reading.loops}

    @functools.cached_property
    def training_loops(self) -> dict[Context, Loop]:
        """The loops that run one session again and again, and keep its graph."""
        running: set[Context] = set()
        fresh: set[Context] = set()
        runs = {run.call for run in self.runs if run.fetches is not None}
        for call in self._program.calls:
            loops = [here for here in call.context.around() if here.kind == "loop"]
            if not loops:
                continue
            if call in runs:
                running.update(here for here in loops if not self._opened_within(call, here.node))
            elif not self._program.name(call) and not self._running.isdisjoint(self.called_by(call)):
                running.update(here for here in loops if not self._session_inside(call, here))
            if self._makes_graph(call):
                fresh.update(loops)
        return {one: self.loops[one] for one in running - fresh if _repeats(one.node)}

    def _session_inside(self, call: Call, loop: Context) -> bool:
        """Whether a call in a loop passes on a session that is opened in that loop."""
        given = [*call.node.args, *(keyword.value for keyword in call.node.keywords)]
        opened = [
            one for node in given for one in self.openings(node, call.scope) if _OPENING.search(self._program.name(one))
        ]
        return bool(opened) and all(loop.node in (here.node for here in one.context.around()) for one in opened)

    def _makes_graph(self, call: Call) -> bool:
        if self._program.name(call) in _NEW_GRAPH:
            return True
        return not self._program.name(call) and not self._graph_makers.isdisjoint(self.called_by(call))

    @functools.cached_property
    def _graph_makers(self) -> set[Scope]:
        return self.calling(call.scope.function() for call in self._program.named(*_NEW_GRAPH))

    def training_loop(self, call: Call) -> Loop | None:
        """Return the training loop that repeats a call: one around it, or around a call of its function."""
        seen: set[Scope] = set()
        waiting = [call]
        while waiting:
            one = waiting.pop()
            if _happens_once(one.context):
                continue
            loops = [self.training_loops[here] for here in one.context.around() if here in self.training_loops]
            if loops:
                return loops[-1]
            function = one.scope.function()
            if function.kind != "function" or function in seen or function in self._graph_makers:
                continue
            if function.name == "__init__":
                continue  # a loop that makes an object in each iteration builds, rather than trains
            seen.add(function)
            waiting.extend(self.callers(function))
        return None


def _happens_once(context: Context) -> bool:
    """Whether an `if` or an early end of the loop keeps a statement to one iteration."""
    for here in context.around():
        if here.kind == "loop":
            return False
        if here.kind == "branch" and isinstance(here.node, ast.If):
            block = here.node.body if here.block == "body" else here.node.orelse
            if _leaves(block) or _ONCE.search(ast.unparse(here.node.test)) or _is_one_step(here.node.test):
                return True
        if here.kind == "try" and here.block in ("handler", "finalbody"):
            return True
    return False


def _is_one_step(test: ast.expr) -> bool:
    """Whether a test is true in single steps: ``step == decay_at``, but not ``step % 100 == 0``."""
    if not isinstance(test, ast.Compare) or not all(isinstance(one, ast.Eq) for one in test.ops):
        return False
    sides = (test.left, *test.comparators)
    return not any(isinstance(one, ast.Constant) or isinstance(getattr(one, "op", None), ast.Mod) for one in sides)


def _leaves(body: list[ast.stmt]) -> bool:
    return bool(body) and isinstance(body[-1], (ast.Return, ast.Break, ast.Raise))


def _repeats(loop: ast.AST) -> bool:
    """Whether a loop repeats the same steps.

    A loop over a literal goes through cases. A body that ends with `break` or `return` is repeated after failures only.
    """
    if isinstance(getattr(loop, "iter", None), (ast.Tuple, ast.List)):
        return False
    body = getattr(loop, "body", [])
    last = body[-1] if body else None
    if isinstance(last, ast.Try) and not last.orelse:
        last = last.body[-1] if last.body else None
    return not isinstance(last, (ast.Break, ast.Return, ast.Raise))


def last_name(node: ast.expr) -> str:
    """Return the last identifier of an expression: "session" of ``self.session``."""
    while isinstance(node, (ast.Subscript, ast.Call)):
        node = node.value if isinstance(node, ast.Subscript) else node.func
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def _position(node: ast.AST) -> tuple[int, int]:
    return getattr(node, "lineno", 0), getattr(node, "col_offset", 0)


def before(first: Call, second: Call) -> bool:
    """Whether `first` is written before `second`."""
    return _position(first.node) < _position(second.node)


def certainly_before(first: Call, second: Call) -> bool:
    """Whether `first` runs before `second` in the same function, on every way to `second`."""
    if first.scope.function() is not second.scope.function() or not before(first, second):
        return False
    blocks = {(here.node, here.block) for here in second.context.around()}
    return all(
        (here.node, here.block) in blocks for here in first.context.around() if here.kind in ("branch", "loop", "try")
    )
