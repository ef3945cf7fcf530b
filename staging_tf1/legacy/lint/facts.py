"""What the rules know of one file: calls in order, where each stands, and which names depend on which."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import libcst as cst

from staging_tf1.legacy.lint.names import Imports

# How a name reads from an expression: "x" for a variable, ".x" for an attribute of anything.
Key = str

AREAS = frozenset({"StagingArea", "MapStagingArea"})
TUTORIAL_AREA = "tensorflow.staging.StagingArea"


@dataclass(frozen=True)
class Place:
    """Where a node stands."""

    line: int
    column: int
    loops: tuple[int, ...]  # the loops around it, outermost first, as indices into Facts.loops
    functions: tuple[str, ...]  # the functions around it, outermost first
    devices: tuple[str, ...]  # the arguments of the tf.device scopes around it, as source text
    guarded: bool  # in a try statement that catches a failing import
    traced: bool  # in a function that tf.while_loop or tf.function traces


@dataclass(frozen=True)
class Call:
    """One call."""

    node: cst.Call
    name: str  # its full name by the imports, or empty
    method: str  # the last part: "run" of sess.run(...)
    receiver: Key  # what the method is called on, or empty
    place: Place
    reads: frozenset[Key]  # every name within its arguments


@dataclass
class Loop:
    """One `for` or `while` statement."""

    line: int
    last_line: int
    runs: bool = False  # a session is run in it, here or in a function that it calls
    fresh_graph: bool = False  # it makes a graph of its own at each turn
    calls: set[str] = field(default_factory=set)  # functions of this file that it calls


@dataclass
class Area:
    """One constructor call of an area."""

    call: Call
    keys: set[Key]  # the names that it is bound to
    ours: bool  # staging_tf1's own, which gets more right than contrib's
    escapes: bool = False  # handed to other code, which may put or get


@dataclass
class Facts:
    """Everything about one file."""

    path: str
    lines: list[str]
    imports: Imports = field(default_factory=Imports)
    calls: list[Call] = field(default_factory=list)
    loops: list[Loop] = field(default_factory=list)
    areas: list[Area] = field(default_factory=list)
    # What a name was made of: the keys that its right-hand sides read, and markers such as "put@3" for the put
    # of area number 3.
    made_of: dict[Key, set[Key]] = field(default_factory=dict)
    # The same, for plain renaming only: x = y, x = ys[i], xs.append(y), for x in ys.
    renamed: dict[Key, set[Key]] = field(default_factory=dict)
    # The source text of what a name was assigned, in order.
    assigned: dict[Key, list[cst.BaseExpression]] = field(default_factory=dict)
    # Functions given to threading.Thread, with that call.
    thread_targets: dict[str, Call] = field(default_factory=dict)
    # Local functions: the functions that each calls.
    function_calls: dict[str, set[str]] = field(default_factory=dict)
    # Dotted names: in full, as they are spelled (None in an import statement), and where.
    uses: list[tuple[str, str | None, Place]] = field(default_factory=list)
    writes: list[tuple[Key, Place]] = field(default_factory=list)  # x[...] = value
    returned: set[Key] = field(default_factory=set)  # names that functions return as they are
    yields: list[tuple[cst.BaseExpression, Place]] = field(default_factory=list)

    def closure(self, keys: Iterable[Key], edges: dict[Key, set[Key]] | None = None) -> set[Key]:
        """`keys` and all that they are made of."""
        edges = self.made_of if edges is None else edges
        found: set[Key] = set()
        waiting = list(keys)
        while waiting:
            key = waiting.pop()
            if key not in found:
                found.add(key)
                waiting.extend(edges.get(key, ()))
        return found

    def named(self, *names: str) -> Iterator[Call]:
        """The calls of these full names."""
        return (call for call in self.calls if call.name in names)

    def methods(self, area: Area, *methods: str) -> Iterator[Call]:
        """The calls of an area's methods."""
        for call in self.calls:
            if call.method in methods and self.is_area(call.receiver, area):
                yield call

    def is_area(self, key: Key, area: Area) -> bool:
        """Whether `key` names `area`."""
        return bool(key) and not area.keys.isdisjoint(self.closure([key], self.renamed))

    def session_runs(self) -> Iterator[Call]:
        """The calls of a session's run, in order of lines."""
        return (call for call in self.calls if is_session_run(call))

    def training_loop(self, place: Place) -> Loop | None:
        """The outermost loop around `place` that runs a session and keeps its graph."""
        around = [self.loops[index] for index in place.loops]
        if any(loop.fresh_graph for loop in around):
            return None
        return next((loop for loop in around if loop.runs), None)

    def called_in_training_loop(self, place: Place) -> Loop | None:
        """`training_loop`, or the one from which the function around `place` is called."""
        if (loop := self.training_loop(place)) is not None:
            return loop
        for loop in self.loops:
            if loop.runs and not loop.fresh_graph and not self.reach(loop.calls).isdisjoint(place.functions[-1:]):
                return loop
        return None

    def reach(self, functions: Iterable[str]) -> set[str]:
        """`functions` and those that they call."""
        return self.closure(functions, self.function_calls)

    def in_thread(self, place: Place) -> str | None:
        """The thread target that `place` runs in, or None."""
        for target in self.thread_targets:
            if not self.reach([target]).isdisjoint(place.functions):
                return target
        return None


def is_session_run(call: Call) -> bool:
    """Whether it is a session's run, by its looks: ``sess.run(...)``, ``self.session.run(...)``."""
    return (
        call.method == "run"
        and not call.name.startswith(("tensorflow.", "absl.", "subprocess.", "asyncio."))
        and bool(call.node.args)
    )


def argument(call: cst.Call, name: str, position: int | None = None) -> cst.BaseExpression | None:
    """An argument by keyword or position."""
    for arg in call.args:
        if arg.keyword is not None and arg.keyword.value == name:
            return arg.value
    plain = [arg for arg in call.args if arg.keyword is None and not arg.star]
    return plain[position].value if position is not None and position < len(plain) else None
