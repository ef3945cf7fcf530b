"""What starts queue runners and initializes local variables, besides the two calls for it."""

from __future__ import annotations

from staging_tf1.legacy.lint.flow.program import Program
from staging_tf1.legacy.lint.flow.sessions import Sessions

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
        made = [] if name or call.receiver is None else program.made_by(call.receiver, call.scope)
        if local or (made and all(one.startswith("tensorflow.") for one in made)):
            continue
        given = (*call.node.args, *(keyword.value for keyword in call.node.keywords))
        if any(sessions.is_session(one, call.scope) for one in given):
            return True
    return False
