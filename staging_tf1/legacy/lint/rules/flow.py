"""Elements that are never put, never taken, or left in the area at the end."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from staging_tf1.legacy.lint.flow.analysis import Analysis, Moves
from staging_tf1.legacy.lint.flow.calls import before
from staging_tf1.legacy.lint.flow.graph import bit
from staging_tf1.legacy.lint.flow.program import Area
from staging_tf1.legacy.lint.flow.sessions import Run
from staging_tf1.legacy.lint.model.reading import Context, Loop
from staging_tf1.legacy.lint.rule import Mistakes, Rule

_END_OF_DATA = "OutOfRangeError"


def no_warm_up(analysis: Analysis) -> Mistakes:
    """STG103."""
    for area in _in_sight(analysis):
        runs = analysis.runs_of(area)
        first, moves = next(((run, moves) for run, moves in runs if moves.may_get), (None, None))
        if first is None or moves is None or not moves.gets or moves.may_put != moves.puts:
            continue
        putting = [run for run, other in runs if other.may_put]
        if any(run is not first and not _after(run, first) for run in putting):
            continue
        if moves.puts:
            line = first.call.line
            yield (
                first.call.node,
                "the first run of get also runs put, and the area is empty: the run blocks forever; run put once "
                f"before line {line}",
            )
        elif putting:
            yield first.call.node, "get is run before any put, and blocks forever; run put once before it"


def never_put(analysis: Analysis) -> Mistakes:
    """STG104."""
    for area in analysis.program.areas:
        gets = analysis.program.methods(area, "get", "unstage")
        if gets and not analysis.program.methods(area, "put", "stage") and not analysis.escapes.area(area):
            yield gets[0].node, "nothing is put into this area: get blocks forever"


def never_got(analysis: Analysis) -> Mistakes:
    """STG105."""
    for area in analysis.program.areas:
        puts = analysis.program.methods(area, "put", "stage")
        taken = analysis.program.methods(area, "get", "unstage", "clear")
        if puts and not taken and not analysis.escapes.area(area):
            yield puts[0].node, "nothing takes elements from this area: memory grows, or put blocks forever"


def left_behind(analysis: Analysis) -> Mistakes:
    """STG107."""
    for area, ahead in _ahead(analysis):
        if not any(_ends_with_the_data(context) for run in ahead for context in run.call.context.around()):
            yield (
                area.call.node,
                "elements put ahead of the last step stay in the area: at the end, run get without put for each "
                "element, or run clear()",
            )


def lost_last_batch(analysis: Analysis) -> Mistakes:
    """STG122."""
    for area, ahead in _ahead(analysis):
        for run, both in analysis.runs_of(area):
            if (
                run in ahead
                and both.gets
                and any(_ends_with_the_data(context) for context in run.call.context.around())
            ):
                yield (
                    run.call.node,
                    "the loop loses its last batch: at the end of the data put fails, and the get of the same run "
                    "with it; after the loop, run get without put for each element that is left",
                )
                break


def _in_sight(analysis: Analysis) -> Iterator[Area]:
    """Yield the areas whose every put and get the file shows, and that are not made in the training loop."""
    for area in analysis.program.areas:
        ops = bit(area, "put") | bit(area, "get")
        out_of_sight = analysis.escapes.ops & ops or analysis.escapes.area(area)
        if not out_of_sight and analysis.training.around(area.call) is None:
            yield area


def _ahead(analysis: Analysis) -> Iterator[tuple[Area, list[Run]]]:
    """Yield the areas in which elements stay, and the runs in loops that put them."""
    if analysis.clears_by_itself or not analysis.program.areas:
        return
    threads = {run for run, _ in analysis.threads.runs}
    for area in _in_sight(analysis):
        if analysis.program.methods(area, "clear"):
            continue
        runs = analysis.runs_of(area)
        if any(run.may & bit(area, "size") for run, _ in runs):
            continue  # a loop asks for the size, and drains the area
        ahead = [run for run, moves in runs if moves.puts and run not in threads and _loops(analysis, run)]
        if not ahead or any(not moves.is_certain for _, moves in runs):
            continue
        if any(moves.gets for _, moves in runs) and not _got_after(analysis, ahead[-1], runs):
            yield area, ahead


def _got_after(analysis: Analysis, ahead: Run, runs: list[tuple[Run, Moves]]) -> bool:
    outermost = _loops(analysis, ahead)[-1]
    end = getattr(outermost.node, "end_lineno", 0)
    for run, moves in runs:
        elsewhere = run.call.scope.function() is not ahead.call.scope.function()
        in_handler = any(here.kind == "try" and here.block != "body" for here in run.call.context.around())
        if moves.gets and not moves.puts and (elsewhere or in_handler or run.call.line > end):
            return True
    # A loop that puts and gets in separate runs leaves the area empty if the get comes last, or if put stops at the
    # end of the data.
    moving = [
        (moves.puts, moves.gets)
        for run, moves in runs
        if outermost in _loops(analysis, run) and (moves.puts or moves.gets)
    ]
    if not moving or any(puts == gets for puts, gets in moving):
        return False
    return moving[-1] == (False, True) or _END_OF_DATA in analysis.program.words


def _loops(analysis: Analysis, run: Run) -> list[Loop]:
    """Return the loops around a run, innermost first."""
    loops = analysis.training.loops
    return [loops[here] for here in run.call.context.around() if here in loops]


def _ends_with_the_data(context: Context) -> bool:
    """Whether a block ends when the data ends: its `try` catches OutOfRangeError."""
    if context.kind != "try" or context.block != "body":
        return False
    handlers: list[ast.ExceptHandler] = getattr(context.node, "handlers", [])
    return any(one.type is not None and _END_OF_DATA in ast.unparse(one.type) for one in handlers)


def _after(run: Run, first: Run) -> bool:
    # In a loop, a later line also runs before an earlier one of the next iteration. The first iteration decides.
    return run.call.scope.function() is first.call.scope.function() and before(first.call, run.call)


RULES = (
    Rule("STG103", "no-warm-up", no_warm_up),
    Rule("STG104", "never-put", never_put),
    Rule("STG105", "never-got", never_got),
    Rule("STG107", "left-behind", left_behind),
    Rule("STG122", "lost-last-batch", lost_last_batch),
)
