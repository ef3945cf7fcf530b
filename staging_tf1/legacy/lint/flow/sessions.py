"""Sessions: what each run executes, and what starts queue runners and initializes local variables."""

from __future__ import annotations

import ast
import functools
import re
from dataclasses import dataclass

from staging_tf1.legacy.lint.flow.calls import position
from staging_tf1.legacy.lint.flow.graph import GLOBAL_INIT, LOCAL_INIT
from staging_tf1.legacy.lint.flow.marks import Marks
from staging_tf1.legacy.lint.flow.program import Program, argument
from staging_tf1.legacy.lint.model.reading import Call, Scope, Variable

PLAIN_SESSIONS = ("tensorflow.Session", "tensorflow.InteractiveSession")
_OPENING = re.compile(r"(^|\.)\w*(Session|_session|managed_session|PrepareSession|prepare_or_wait_for_session)$")
_LOOKS_LIKE_ONE = re.compile(r"(^|_)sess(ion)?s?(_?\d+)?$", re.IGNORECASE)


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
        runs = [self._run(call) for call in self._program.calls if self._is_run(call)]
        return sorted(runs, key=lambda run: (run.call.line, run.call.node.col_offset))

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
                before = [one for one in variable.bindings if position(one.node) <= position(node)]
                if before and before[-1].value is not None:
                    origins = self._values.origins(before[-1].value, before[-1].scope)
                    return [one for one in origins if isinstance(one, Call)]
        return [one for one in self._values.origins(node, scope) if isinstance(one, Call)]

    def opened(self, node: ast.expr, scope: Scope) -> list[Call]:
        """Return those of the `openings` that are certainly calls which open a session."""
        return [one for one in self.openings(node, scope) if _OPENING.search(self._program.name(one))]

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


def last_name(node: ast.expr) -> str:
    """Return the last identifier of an expression: "session" of ``self.session``."""
    while isinstance(node, (ast.Subscript, ast.Call)):
        node = node.value if isinstance(node, ast.Subscript) else node.func
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


# Sessions and loops that start queue runners and initialize local variables.
_MANAGED = frozenset(
    """MonitoredTrainingSession MonitoredSession SingularMonitoredSession Supervisor StagingSession Scaffold Estimator
    Experiment managed_session evaluate_once evaluation_loop train_loop""".split()
)
_STARTING = _MANAGED | {"start_queue_runners", "QueueRunners", "create_threads", "start_threads"}
_INITIALIZING = _MANAGED | {
    "local_variables_initializer",
    "initialize_local_variables",
    "local_variables",
    "LOCAL_VARIABLES",
    "variables_initializer",
    "initialize_variables",
    "LOCAL_INIT_OP",
    "local_init_op",
}


def starts_queue_runners(program: Program, sessions: Sessions) -> bool:
    """Whether the file starts queue runners, or hands a session to code out of sight that may do so."""
    if not _STARTING.isdisjoint(program.words) or "staging_tf1.start" in program.names:
        return True
    return _hands_session_out(program, sessions)


def initializes_local_variables(program: Program, sessions: Sessions) -> bool:
    """Whether the file initializes local variables, or hands a session to code out of sight that may do so."""
    return not _INITIALIZING.isdisjoint(program.words) or _hands_session_out(program, sessions)


def _hands_session_out(program: Program, sessions: Sessions) -> bool:
    for call in program.calls:
        name = program.name(call)
        if name.startswith(("tensorflow.train.", "tensorflow.summary.", "staging_tf1.")) or name.endswith("Thread"):
            continue
        local = not name and bool(program.values.callees(call.node, call.scope))
        makers = [] if name or call.receiver is None else program.makers_of(call.receiver, call.scope)
        if local or (makers and all(one.startswith("tensorflow.") for one in makers)):
            continue
        if any(sessions.is_session(one, call.scope) for one in call.arguments):
            return True
    return False
