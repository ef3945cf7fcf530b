"""Feed threads: unbounded ones, those started too early or never, and those that nothing stops."""

from __future__ import annotations

from staging_tf1.legacy.lint.facts import Call, Facts, argument
from staging_tf1.legacy.lint.rule import Found, Rule

_INITIALIZERS = frozenset(
    {
        ".global_variables_initializer",
        ".initialize_all_variables",
        ".local_variables_initializer",
        ".initialize_local_variables",
    }
)
_QUEUE_RUNNERS = tuple(
    f"tensorflow.{name}"
    for name in (
        "train.string_input_producer",
        "train.slice_input_producer",
        "train.range_input_producer",
        "train.input_producer",
        "train.limit_epochs",
        "train.batch",
        "train.batch_join",
        "train.shuffle_batch",
        "train.shuffle_batch_join",
        "train.maybe_batch",
        "train.add_queue_runner",
        "train.queue_runner.add_queue_runner",
    )
)
_STARTS_THEM = (
    "start_queue_runners",
    "MonitoredTrainingSession",
    "MonitoredSession",
    "SingularMonitoredSession",
    "Supervisor",
    "StagingSession",
    "create_threads",
)


def unbounded(facts: Facts) -> Found:
    """STG106."""
    for number, area in enumerate(facts.areas):
        if any(argument(area.call.node, name) is not None for name in ("capacity", "memory_limit")):
            continue
        if any(f"put@{number}" in facts.closure(run.reads) for run in _runs_in_threads(facts)):
            yield (
                area.call.place,
                "a thread puts into this area, and neither capacity nor memory_limit bounds it: if the thread is "
                "faster than the training, it fills the memory; set capacity=",
            )


def started_too_early(facts: Facts) -> Found:
    """STG110."""
    initializing = [run for run in facts.session_runs() if not facts.closure(run.reads).isdisjoint(_INITIALIZERS)]
    for call in facts.calls:
        if not _starts_threads(facts, call):
            continue
        later = [
            run
            for run in initializing
            if run.place.functions == call.place.functions and run.place.line > call.place.line
        ]
        if later:
            yield (
                call.place,
                f"threads start while variables are uninitialized: the initializer runs at line "
                f"{later[0].place.line}; start the threads after it",
            )


def never_started(facts: Facts) -> Found:
    """STG111."""
    makers = list(facts.named(*_QUEUE_RUNNERS))
    opens = [call for call in facts.calls if call.name in ("tensorflow.Session", "tensorflow.InteractiveSession")]
    started = any(call.method in _STARTS_THEM or call.name == "staging_tf1.start" for call in facts.calls)
    if makers and opens and not started:
        yield (
            makers[0].place,
            "this input needs queue runners, and nothing starts them: the first step blocks forever; call "
            "tf.train.start_queue_runners(sess, coord) after the initializer",
        )


def no_coordinator(facts: Facts) -> Found:
    """STG112."""
    if any(call.method in ("Coordinator", "StagingSession", "StagingHook", "Supervisor") for call in facts.calls):
        return
    if any("coord" in facts.made_of or "." + "coord" in read for call in facts.calls for read in call.reads):
        return
    for target, call in facts.thread_targets.items():
        if any(facts.in_thread(run.place) == target for run in _runs_in_threads(facts)):
            yield (
                call.place,
                f"nothing stops the thread {target}(), and its exceptions are lost: use a tf.train.Coordinator "
                "or staging_tf1.CustomRunner",
            )


def _runs_in_threads(facts: Facts) -> list[Call]:
    return [run for run in facts.session_runs() if facts.in_thread(run.place) is not None]


def _starts_threads(facts: Facts, call: Call) -> bool:
    if call.name == "tensorflow.train.start_queue_runners" or call.method == "start_threads":
        return True
    if call.method != "start" or call.node.args:
        return False
    if "." in facts.imports.meaning(call.node.func) and facts.in_thread(call.place) is not None:
        return False
    running = {facts.in_thread(run.place) for run in _runs_in_threads(facts)}
    made = facts.closure([call.receiver])
    if call.receiver:
        return any(target in made and target in running for target in facts.thread_targets)
    inline = getattr(call.node.func, "value", None)
    return any(inline is thread.node and target in running for target, thread in facts.thread_targets.items())


RULES = (
    Rule("STG106", "unbounded", unbounded),
    Rule("STG110", "started-too-early", started_too_early),
    Rule("STG111", "never-started", never_started),
    Rule("STG112", "no-coordinator", no_coordinator),
)
