"""Local variables that no initializer reaches."""

from __future__ import annotations

from staging_tf1.legacy.lint.flow.analysis import Analysis
from staging_tf1.legacy.lint.flow.expressions import local_variable
from staging_tf1.legacy.lint.flow.graph import GLOBAL_INIT, LOCAL_VARIABLE
from staging_tf1.legacy.lint.flow.sessions import PLAIN_SESSIONS, Run, initializes_local_variables
from staging_tf1.legacy.lint.rule import Found, Rule


def no_local_initializer(analysis: Analysis) -> Found:
    """STG118."""
    program = analysis.program
    makers = [(call, what) for call in program.calls if (what := local_variable(program.values, call.node, call.scope))]
    if not makers or initializes_local_variables(program, analysis.sessions):
        return
    using = [run for run in analysis.sessions.runs if run.must & LOCAL_VARIABLE]
    for init in analysis.sessions.runs:
        if not init.must & GLOBAL_INIT or not _is_plain(analysis, init):
            continue
        if any(analysis.sessions.same_session(run.call, init.call) for run in using):
            call, what = makers[0]
            yield (
                init.call.node,
                f"{what} at line {call.line} makes a local variable, and only global variables are initialized: run "
                "tf.local_variables_initializer(), too",
            )
            return


def _is_plain(analysis: Analysis, run: Run) -> bool:
    """Whether a session is known to initialize nothing by itself."""
    receiver = run.call.receiver
    if receiver is None or run.fetches is None:
        return False
    opened = analysis.sessions.openings(receiver, run.call.scope)
    return bool(opened) and all(analysis.program.name(one) in PLAIN_SESSIONS for one in opened)


RULES = (Rule("STG118", "no-local-initializer", no_local_initializer),)
