"""Elements that are never put, never taken, or left in the area at the end."""

from __future__ import annotations

import libcst as cst

from staging_tf1.legacy.lint.facts import Area, Call, Facts
from staging_tf1.legacy.lint.rule import Found, Rule


def no_warm_up(facts: Facts) -> Found:
    """STG103."""
    for number, area in enumerate(facts.areas):
        if facts.called_in_training_loop(area.call.place) is not None:
            continue  # its own mistake, STG101
        runs = [(run, *_moves(facts, run, number)) for run in facts.session_runs()]
        waiting = next(((run, puts) for run, puts, gets in runs if gets and not _takes_some(run)), None)
        if waiting is None:
            continue
        first, puts_itself = waiting
        elsewhere = [run for run, puts, _ in runs if puts and run is not first and not _after(run, first)]
        if not elsewhere and puts_itself:
            yield (
                first.place,
                f"the first run of get also runs put, and the area is empty: the run blocks forever; run put once "
                f"before line {first.place.line}",
            )
        elif not elsewhere and any(puts for _, puts, _ in runs):
            yield first.place, "get is run before any put, and blocks forever; run put once before it"


def never_put(facts: Facts) -> Found:
    """STG104."""
    for area in facts.areas:
        gets = list(facts.methods(area, "get", "unstage"))
        if gets and not area.escapes and not any(facts.methods(area, "put", "stage")):
            yield gets[0].place, "nothing is put into this area: get blocks forever"


def never_got(facts: Facts) -> Found:
    """STG105."""
    for area in facts.areas:
        puts = list(facts.methods(area, "put", "stage"))
        if puts and not area.escapes and not any(facts.methods(area, "get", "unstage")):
            yield puts[0].place, "nothing takes elements from this area: memory grows, or put blocks forever"


def left_behind(facts: Facts) -> Found:
    """STG107."""
    if any(call.name.startswith("staging_tf1.Staging") and "Area" not in call.name for call in facts.calls):
        return  # a StagingSession or StagingHook clears the area
    for number, area in enumerate(facts.areas):
        if facts.called_in_training_loop(area.call.place) is not None:
            continue
        if any(facts.methods(area, "clear")) or _drained(facts, area, number):
            continue
        ahead = [run for run in facts.session_runs() if run.place.loops and _moves(facts, run, number)[0]]
        got = any(_moves(facts, run, number)[1] for run in facts.session_runs())
        if ahead and got and not _got_after(facts, ahead[-1], number):
            yield (
                area.call.place,
                "elements put ahead of the last step stay in the area: at the end, run get without put for each "
                "element, or run clear()",
            )


def _moves(facts: Facts, run: Call, number: int) -> tuple[bool, bool]:
    """Whether a session's run puts into area number `number`, and whether it takes from it."""
    reads = facts.closure(run.reads)
    return f"put@{number}" in reads, f"get@{number}" in reads


def _takes_some(run: Call) -> bool:
    """Whether the fetches are a slice or element of a list, whose content is unknown."""
    return any(isinstance(arg.value, cst.Subscript) for arg in run.node.args[:1])


def _after(run: Call, first: Call) -> bool:
    # In a loop, a later line also runs before an earlier one of the next iteration. The first iteration decides.
    return run.place.functions == first.place.functions and run.place.line > first.place.line


def _drained(facts: Facts, area: Area, number: int) -> bool:
    """Whether a loop depends on the size() of the area."""
    return any(
        f"size()@{number}" in facts.closure(run.reads) for run in facts.session_runs() if run.place.loops
    ) or any(
        f"size()@{number}" in facts.closure(run.reads) and any(loop.line == run.place.line for loop in facts.loops)
        for run in facts.session_runs()
    )


def _got_after(facts: Facts, ahead: Call, number: int) -> bool:
    outermost = facts.loops[ahead.place.loops[0]]
    for run in facts.session_runs():
        puts, gets = _moves(facts, run, number)
        if gets and not puts and run.place.line > outermost.last_line:
            return True
    # A loop that puts and gets in separate runs leaves the area empty if the get comes last, or if put stops at the
    # end of the data.
    alone = [run for run in facts.session_runs() if run.place.loops[:1] == ahead.place.loops[:1]]
    order = [_moves(facts, run, number) for run in alone]
    moving = [move for move in order if move != (False, False)]
    if not moving or any(puts == gets for puts, gets in moving):
        return False
    return moving[-1] == (False, True) or any(full.endswith(".OutOfRangeError") for full, _, _ in facts.uses)


RULES = (
    Rule("STG103", "no-warm-up", no_warm_up),
    Rule("STG104", "never-put", never_put),
    Rule("STG105", "never-got", never_got),
    Rule("STG107", "left-behind", left_behind),
)
