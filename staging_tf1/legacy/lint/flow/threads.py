"""Threads: the functions that they run, and the code that runs in them."""

from __future__ import annotations

import ast
import functools
from dataclasses import dataclass

from staging_tf1.legacy.lint.flow.calls import CallGraph
from staging_tf1.legacy.lint.flow.program import Program, argument
from staging_tf1.legacy.lint.flow.sessions import Run, Sessions
from staging_tf1.legacy.lint.model.reading import Call, Scope


@dataclass(eq=False, slots=True)
class Thread:
    """One ``threading.Thread(target=...)``."""

    call: Call
    target: Scope

    @property
    def name(self) -> str:
        """The name of the target."""
        return self.target.name


class Threads:
    """The threads of a file."""

    def __init__(self, program: Program, sessions: Sessions, calls: CallGraph) -> None:
        self._program = program
        self._calls = calls
        self._sessions = sessions

    @functools.cached_property
    def all(self) -> list[Thread]:
        """The threads whose target is a function of this file."""
        threads: list[Thread] = []
        for call in self._program.named("threading.Thread", "Thread"):
            target = argument(call.node, "target", 1)
            if target is not None:
                definitions = self._program.values.definitions(target, call.scope)
                threads.extend(Thread(call, one) for one in definitions if one.kind == "function")
        return threads

    @functools.cached_property
    def _reached(self) -> list[tuple[Thread, set[Scope]]]:
        # What the main thread calls as well runs there, too, so it is not code of the thread alone.
        return [(thread, self._calls.reached_from([thread.target])) for thread in self.all]

    def around(self, call: Call) -> Thread | None:
        """Return the thread that makes a call; None for the main thread."""
        function = call.scope.function()
        for thread, reached in self._reached:
            scope: Scope | None = function
            while scope is not None:
                if scope in reached:
                    return thread
                scope = scope.above if scope.kind == "function" else None
        return None

    @functools.cached_property
    def runs(self) -> list[tuple[Run, Thread]]:
        """The runs that threads make."""
        pairs = ((run, self.around(run.call)) for run in self._sessions.runs)
        return [(run, thread) for run, thread in pairs if thread is not None]

    def started_by(self, call: Call) -> list[Thread]:
        """Return the threads that a ``start()`` starts."""
        if call.method != "start" or call.node.args or call.receiver is None or self._program.name(call):
            return []
        origins = self._program.values.origins(call.receiver, call.scope)
        return [thread for thread in self.all if thread.call in origins]


def is_endless(run: Run) -> bool:
    """Whether a run is repeated by a `while True` that nothing leaves but an exception."""
    for here in run.call.context.around():
        if here.kind == "loop" and isinstance(here.node, ast.While):
            test = here.node.test
            if isinstance(test, ast.Constant) and bool(test.value):
                return not any(isinstance(one, (ast.Break, ast.Return, ast.Raise)) for one in _own(here.node))
    return False


def _own(loop: ast.AST) -> list[ast.AST]:
    """Return the nodes of a loop without those of the functions defined in it."""
    nodes: list[ast.AST] = []
    waiting = list(ast.iter_child_nodes(loop))
    while waiting:
        node = waiting.pop()
        if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)):
            nodes.append(node)
            waiting.extend(ast.iter_child_nodes(node))
    return nodes
