"""Training loops: those that run one session again and again, and keep its graph."""

from __future__ import annotations

import ast
import functools
import re

from staging_tf1.legacy.lint.flow.calls import CallGraph
from staging_tf1.legacy.lint.flow.program import Program
from staging_tf1.legacy.lint.flow.sessions import Sessions
from staging_tf1.legacy.lint.model.reading import Call, Context, Loop, Scope

_NEW_GRAPH = frozenset({"tensorflow.Graph", "tensorflow.reset_default_graph", "tensorflow.python.framework.ops.Graph"})
# Tests that make a statement of a loop happen in one iteration only.
_ONCE = re.compile(r"\bnot\b|\bis None\b|hasattr|==\s*0\b|\bfirst\b")


class TrainingLoops:
    """The training loops of a file."""

    def __init__(self, program: Program, sessions: Sessions, calls: CallGraph) -> None:
        self._program = program
        self._sessions = sessions
        self._calls = calls

    @functools.cached_property
    def loops(self) -> dict[Context, Loop]:
        """The loops by the context of their body."""
        return {loop.context: loop for loop in self._program.reading.loops}

    @functools.cached_property
    def repeated(self) -> dict[Context, Loop]:
        """The loops that run one session again and again, and keep its graph."""
        running: set[Context] = set()
        fresh: set[Context] = set()
        runs = {run.call for run in self._sessions.runs if run.fetches is not None}
        for call in self._program.calls:
            loops = call.context.loops()
            if not loops:
                continue
            if call in runs:
                running.update(here for here in loops if not self._opened_within(call, here.node))
            elif not self._program.name(call) and not self._running.isdisjoint(self._calls.called_by(call)):
                running.update(here for here in loops if not self._session_inside(call, here))
            if self._makes_graph(call):
                fresh.update(loops)
        return {one: self.loops[one] for one in running - fresh if _repeats(one.node)}

    def _session_inside(self, call: Call, loop: Context) -> bool:
        """Whether a call in a loop passes on a session that is opened in that loop."""
        opened = [one for node in call.arguments for one in self._sessions.opened(node, call.scope)]
        return bool(opened) and all(loop.node in (here.node for here in one.context.around()) for one in opened)

    def _makes_graph(self, call: Call) -> bool:
        if self._program.name(call) in _NEW_GRAPH:
            return True
        return not self._program.name(call) and not self._graph_makers.isdisjoint(self._calls.called_by(call))

    @functools.cached_property
    def _graph_makers(self) -> set[Scope]:
        return self._calls.calling(call.scope.function() for call in self._program.named(*_NEW_GRAPH))

    def around(self, call: Call) -> Loop | None:
        """Return the training loop that repeats a call: one around it, or around a call of its function."""
        seen: set[Scope] = set()
        waiting = [call]
        while waiting:
            one = waiting.pop()
            if _happens_once(one.context):
                continue
            loops = [self.repeated[here] for here in one.context.around() if here in self.repeated]
            if loops:
                return loops[-1]
            function = one.scope.function()
            if function.kind != "function" or function in seen or function in self._graph_makers:
                continue
            if function.name == "__init__":
                continue  # a loop that makes an object in each iteration builds, rather than trains
            seen.add(function)
            waiting.extend(self._calls.callers(function))
        return None

    @functools.cached_property
    def _running(self) -> set[Scope]:
        """The functions that run a session that they have not opened themselves, directly or in what they call."""
        runs = [run.call for run in self._sessions.runs if run.fetches is not None]
        return self._calls.calling({call.scope.function() for call in runs if not self._opened_within(call, None)})

    def _opened_within(self, run: Call, loop: ast.AST | None) -> bool:
        """Whether the session of a run is opened inside `loop`, or in the function of the run if that is None."""
        if run.receiver is None:
            return False
        opened = self._sessions.openings(run.receiver, run.scope)
        if loop is None:
            function = run.scope.function()
            known = self._sessions.opened(run.receiver, run.scope)
            return bool(opened) and all(
                one.scope.function() is function and function.kind == "function" for one in known
            )
        return bool(opened) and all(loop in (here.node for here in one.context.around()) for one in opened)


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
