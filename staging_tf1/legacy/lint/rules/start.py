"""The start of a program: feed threads, queue runners and initializers that are missing, too early or without end."""

from __future__ import annotations

import ast

from staging_tf1.legacy.lint.flow.analysis import Analysis
from staging_tf1.legacy.lint.flow.calls import certainly_before
from staging_tf1.legacy.lint.flow.expressions import RUNNER_MAKERS, local_variable
from staging_tf1.legacy.lint.flow.graph import GLOBAL_INIT, LOCAL_INIT, LOCAL_VARIABLE, RUNNER, bit
from staging_tf1.legacy.lint.flow.program import Area, argument
from staging_tf1.legacy.lint.flow.sessions import PLAIN_SESSIONS, Run, initializes_local_variables, starts_queue_runners
from staging_tf1.legacy.lint.flow.threads import is_endless
from staging_tf1.legacy.lint.model.reading import Call
from staging_tf1.legacy.lint.rule import Mistakes, Rule

_STOPPING = frozenset({"Coordinator", "StagingSession", "StagingHook", "Supervisor", "should_stop", "LooperThread"})


def unbounded(analysis: Analysis) -> Mistakes:
    """STG106."""
    for area in analysis.program.areas:
        if not _is_bounded(area) and any(run.may & bit(area, "put") for run, _ in analysis.threads.runs):
            yield (
                area.call.node,
                "a thread puts into this area, and neither capacity nor memory_limit bounds it: if the thread is "
                "faster than the training, it fills the memory; set capacity=",
            )


def started_too_early(analysis: Analysis) -> Mistakes:
    """STG110."""
    initializing = [run for run in analysis.sessions.runs if run.must & (GLOBAL_INIT | LOCAL_INIT)]
    for call in analysis.program.calls if initializing else ():
        if not _starts_threads(analysis, call):
            continue
        earlier = [run for run in initializing if not certainly_before(call, run.call)]
        done = 0
        for run in earlier:
            done |= run.may
        for run in initializing:
            missing = run.must & (GLOBAL_INIT | LOCAL_INIT) & ~done
            if missing and certainly_before(call, run.call) and analysis.sessions.same_session(call, run.call):
                yield (
                    call.node,
                    f"threads start while variables are uninitialized: the initializer runs at line {run.call.line}; "
                    "start the threads after it",
                )
                break


def never_started(analysis: Analysis) -> Mistakes:
    """STG111."""
    makers = [call for call in analysis.program.calls if analysis.program.name(call) in RUNNER_MAKERS]
    if not makers or starts_queue_runners(analysis.program, analysis.sessions):
        return
    for run in analysis.sessions.runs:
        if run.must & RUNNER and _is_plain(analysis, run):
            yield (
                makers[0].node,
                "this input needs queue runners, and nothing starts them: the first step blocks forever; call "
                "tf.train.start_queue_runners(sess, coord) after the initializer",
            )
            return


def no_coordinator(analysis: Analysis) -> Mistakes:
    """STG112."""
    if not analysis.threads.runs or not _STOPPING.isdisjoint(analysis.program.words):
        return
    seen: set[Call] = set()
    for run, thread in analysis.threads.runs:
        if thread.call not in seen and is_endless(run) and not _is_handed_a_coordinator(thread.call):
            seen.add(thread.call)
            yield (
                thread.call.node,
                f"nothing stops the thread {thread.name}(), and its exceptions are lost: use a tf.train.Coordinator "
                "or staging_tf1.CustomRunner",
            )


def no_local_initializer(analysis: Analysis) -> Mistakes:
    """STG118."""
    program = analysis.program
    makers = [(call, what) for call in program.calls if (what := local_variable(program.values, call.node, call.scope))]
    if not makers or initializes_local_variables(program, analysis.sessions):
        return
    using = [run for run in analysis.sessions.runs if run.must & LOCAL_VARIABLE]
    for init in analysis.sessions.runs:
        if not init.must & GLOBAL_INIT or init.fetches is None or not _is_plain(analysis, init):
            continue
        if any(analysis.sessions.same_session(run.call, init.call) for run in using):
            call, what = makers[0]
            yield (
                init.call.node,
                f"{what} at line {call.line} makes a local variable, and only global variables are initialized: run "
                "tf.local_variables_initializer(), too",
            )
            return


def _is_bounded(area: Area) -> bool:
    node = area.call.node
    unseen = any(keyword.arg is None for keyword in node.keywords) or any(isinstance(a, ast.Starred) for a in node.args)
    given = (argument(node, name, position) for name, position in (("capacity", 4), ("memory_limit", 5)))
    return unseen or any(one is not None for one in given)


def _starts_threads(analysis: Analysis, call: Call) -> bool:
    if analysis.program.name(call) == "tensorflow.train.start_queue_runners":
        return True
    running = {thread for _, thread in analysis.threads.runs}
    if call.method == "start_threads" and call.receiver is not None:
        makers = analysis.program.makers_of(call.receiver, call.scope)
        if makers and all(name.startswith("staging_tf1.") for name in makers):
            return True
        inside = analysis.calls.reached_from(analysis.calls.called_by(call))
        return any(thread.call.scope.function() in inside for thread in running)
    if analysis.threads.around(call) is not None:
        return False
    return any(thread in running for thread in analysis.threads.started_by(call))


def _is_handed_a_coordinator(thread: Call) -> bool:
    return any("coord" in ast.unparse(keyword.value).lower() for keyword in thread.node.keywords)


def _is_plain(analysis: Analysis, run: Run) -> bool:
    """Whether the session of a run is known to initialize and start nothing by itself."""
    receiver = run.call.receiver
    opened = [] if receiver is None else analysis.sessions.openings(receiver, run.call.scope)
    return bool(opened) and all(analysis.program.name(one) in PLAIN_SESSIONS for one in opened)


RULES = (
    Rule("STG106", "unbounded", unbounded),
    Rule("STG110", "started-too-early", started_too_early),
    Rule("STG111", "never-started", never_started),
    Rule("STG112", "no-coordinator", no_coordinator),
    Rule("STG118", "no-local-initializer", no_local_initializer),
)
