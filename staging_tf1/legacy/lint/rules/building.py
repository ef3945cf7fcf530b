"""Areas and ops built inside the training loop, where each iteration makes the graph larger and the step slower."""

from __future__ import annotations

from staging_tf1.legacy.lint.facts import Area, Call, Facts, Place
from staging_tf1.legacy.lint.rule import Found, Rule

_OPTIMIZING = ("minimize", "apply_gradients", "compute_gradients")
_ASSIGNING = ("assign", "assign_add", "assign_sub")
_VARIABLES = ("tensorflow.Variable", "tensorflow.get_variable", "tensorflow.train.get_or_create_global_step")
_FEEDING = ("enqueue", "enqueue_many", "dequeue", "dequeue_many")


def area_in_loop(facts: Facts) -> Found:
    """STG101."""
    for area in facts.areas:
        place = area.call.place
        if place.traced:
            yield (
                place,
                "the area is made in a function that TensorFlow traces (tf.while_loop, tf.function): build it outside",
            )
        elif (loop := facts.called_in_training_loop(place)) is not None:
            yield (
                place,
                f"the training loop at line {loop.line} makes a new, empty area in every iteration, and the graph "
                "grows; build the area once, before the loop",
            )


def ops_in_loop(facts: Facts) -> Found:
    """STG102."""
    in_loop = {id(call) for area in facts.areas for call in _area_ops(facts, area)}
    for call in facts.calls:
        what = _op(facts, call, in_loop)
        if what and facts.in_thread(call.place) is None:
            loop = facts.called_in_training_loop(call.place)
            if loop is not None and not _area_made_in_loop(facts, call.place):
                yield (
                    call.place,
                    f"{what} adds ops to the graph in every iteration of the training loop at line {loop.line}; "
                    "call it once, before the loop, and run what it returns",
                )


def ops_in_thread(facts: Facts) -> Found:
    """STG113."""
    for call in facts.calls:
        target = facts.in_thread(call.place)
        if target is None:
            continue
        area_op = any(call is other for area in facts.areas for other in _area_ops(facts, area))
        if area_op or (call.method in _FEEDING and call.receiver):
            yield (
                call.place,
                f"{call.method}() builds an op in the thread {target}(), and building a graph is not thread-safe; "
                "build the op before the thread starts, and run it in the thread",
            )


def _area_ops(facts: Facts, area: Area) -> list[Call]:
    return list(facts.methods(area, "put", "get", "peek", "stage", "unstage", "size", "clear"))


def _op(facts: Facts, call: Call, area_ops: set[int]) -> str | None:
    if id(call) in area_ops or (call.method in _FEEDING and call.receiver):
        return f"{call.method}()"
    if call.name in {f"tensorflow.{name}" for name in _ASSIGNING}:
        return f"tf.{call.method}()"
    if call.method in _ASSIGNING and _is_variable(facts, call.receiver):
        return f"{call.method}()"
    if call.name.startswith("tensorflow.train.") and call.name.endswith("Optimizer"):
        return f"tf.train.{call.method}()"
    if call.method in _OPTIMIZING and call.receiver:
        return f"{call.method}()"
    return None


def _is_variable(facts: Facts, key: str) -> bool:
    return any(
        facts.imports.meaning(value.func) in _VARIABLES
        for name in facts.closure([key], facts.renamed)
        for value in facts.assigned.get(name, [])
        if hasattr(value, "func")
    )


def _area_made_in_loop(facts: Facts, place: Place) -> bool:
    """Whether an area is made at `place`: then its ops are part of that mistake."""
    return any(
        area.call.place.loops == place.loops
        and area.call.place.functions == place.functions
        and facts.called_in_training_loop(area.call.place) is not None
        for area in facts.areas
    )


RULES = (
    Rule("STG101", "area-in-loop", area_in_loop),
    Rule("STG102", "ops-in-loop", ops_in_loop),
    Rule("STG113", "ops-in-thread", ops_in_thread),
)
