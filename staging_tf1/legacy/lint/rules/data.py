"""The values put: contradicting dtypes, and buffers that are overwritten after they are fed."""

from __future__ import annotations

import libcst as cst

from staging_tf1.legacy.lint.facts import Area, Call, Facts, argument
from staging_tf1.legacy.lint.rule import Found, Rule

# Position of the dtype argument in calls whose result has that dtype; None if it is keyword-only.
_DTYPE_POSITION = {
    "tensorflow.placeholder": 0,
    "tensorflow.cast": 1,
    "tensorflow.constant": 1,
    "tensorflow.zeros": 1,
    "tensorflow.ones": 1,
    "tensorflow.to_float": None,
    "tensorflow.random_normal": 3,
    "tensorflow.random_uniform": 3,
    "tensorflow.convert_to_tensor": 1,
    "numpy.zeros": 1,
    "numpy.ones": 1,
    "numpy.empty": 1,
    "numpy.array": 1,
    "numpy.full": 2,
    "numpy.arange": None,
}
_ALLOCATING = ("numpy.zeros", "numpy.empty", "numpy.ones", "numpy.full", "numpy.ndarray", "numpy.zeros_like")
_SAME_DTYPE = {"float": "float64", "int": "int64", "bool_": "bool", "half": "float16"}


def contradicting_dtypes(facts: Facts) -> Found:
    """STG109."""
    for area in facts.areas:
        declared = _declared(facts, area)
        for put in facts.methods(area, "put"):
            values = argument(put.node, "values", 0)
            if not isinstance(values, (cst.List, cst.Tuple)) or len(values.elements) != len(declared):
                continue
            for index, (element, expected) in enumerate(zip(values.elements, declared)):
                got = _dtype(facts, element.value)
                if got and expected and got != expected:
                    yield (
                        put.place,
                        f"component {index} is {got}, but the area declares {expected}: write "
                        f"tf.cast(..., tf.{expected}), or declare tf.{got}",
                    )


def reused_buffer(facts: Facts) -> Found:
    """STG114."""
    for key, place in facts.writes:
        allocated = [value for value in facts.assigned.get(key, []) if _allocates(facts, value)]
        if not allocated or not place.loops:
            continue
        if any(_made_in_loop(facts, key, loop) for loop in place.loops):
            continue
        given = _given_away(facts, key, place.loops)
        if given is not None:
            yield (
                given.place if isinstance(given, Call) else place,
                f"the buffer {key!r} is fed and then overwritten: a fed array may be staged without a copy, so the "
                "staged batch changes; make a new array for each batch, or feed a copy",
            )


def _declared(facts: Facts, area: Area) -> list[str]:
    dtypes = argument(area.call.node, "dtypes", 0)
    if area.call.name.endswith("from_tensors") or not isinstance(dtypes, (cst.List, cst.Tuple)):
        return []
    return [_dtype_name(facts, element.value) for element in dtypes.elements]


def _dtype_name(facts: Facts, node: cst.BaseExpression) -> str:
    full = facts.imports.meaning(node)
    package, _, name = full.rpartition(".")
    if package in ("tensorflow", "numpy", "tensorflow.dtypes"):
        return _SAME_DTYPE.get(name, name)
    return ""


def _dtype(facts: Facts, node: cst.BaseExpression, depth: int = 0) -> str:
    """Return the dtype of a value if the source states it, else empty."""
    if isinstance(node, cst.Name) and depth < 3:
        values = facts.assigned.get(node.value, [])
        return _dtype(facts, values[0], depth + 1) if len(values) == 1 else ""
    if isinstance(node, cst.Call):
        name = facts.imports.meaning(node.func)
        if name == "tensorflow.to_float":
            return "float32"
        if name in _DTYPE_POSITION:
            said = argument(node, "dtype", _DTYPE_POSITION[name])
            return "" if said is None else _dtype_name(facts, said)
    return ""


def _allocates(facts: Facts, value: cst.BaseExpression) -> bool:
    return isinstance(value, cst.Call) and facts.imports.meaning(value.func) in _ALLOCATING


def _made_in_loop(facts: Facts, key: str, loop: int) -> bool:
    span = facts.loops[loop]
    return any(
        call.node is value and span.line <= call.place.line <= span.last_line
        for value in facts.assigned.get(key, [])
        for call in facts.calls
    )


def _given_away(facts: Facts, key: str, loops: tuple[int, ...]) -> Call | bool | None:
    for run in facts.session_runs():
        if run.place.loops[:1] == loops[:1] and _feeds(run, key):
            return run
    for value, place in facts.yields:
        if place.loops[:1] == loops[:1] and _stands_bare(value, key):
            return True
    return None


def _feeds(run: Call, key: str) -> bool:
    feed = argument(run.node, "feed_dict", 1)
    if isinstance(feed, cst.Dict):
        return any(_stands_bare(element.value, key) for element in feed.elements)
    return False


def _stands_bare(node: cst.BaseExpression, key: str) -> bool:
    if isinstance(node, (cst.Tuple, cst.List)):
        return any(_stands_bare(element.value, key) for element in node.elements)
    if isinstance(node, cst.Dict):
        return any(_stands_bare(element.value, key) for element in node.elements)
    return isinstance(node, cst.Name) and node.value == key


RULES = (
    Rule("STG109", "contradicting-dtypes", contradicting_dtypes),
    Rule("STG114", "reused-buffer", reused_buffer),
)
