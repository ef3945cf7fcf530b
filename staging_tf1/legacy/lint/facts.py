"""The facts that the rules work on: the calls of one file in order, their places, and dependencies between names."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import libcst as cst

from staging_tf1.legacy.lint.names import Imports

# A name in an expression: "x" for a variable, ".x" for an attribute of any object.
Key = str

AREAS = frozenset({"StagingArea", "MapStagingArea"})


@dataclass(frozen=True)
class Place:
    """The place of a node in a file."""

    line: int
    column: int
    loops: tuple[int, ...]  # the loops around it, outermost first, as indices into Facts.loops
    functions: tuple[str, ...]  # the functions around it, outermost first
    devices: tuple[str, ...]  # the arguments of the tf.device scopes around it, as source text
    guarded: bool  # inside a try statement that catches ImportError
    traced: bool  # inside a function that tf.while_loop or tf.function traces


@dataclass(frozen=True)
class Call:
    """One call."""

    node: cst.Call
    name: str  # the full name according to the imports, or empty
    method: str  # the last part of the name: "run" of sess.run(...)
    receiver: Key  # the object whose method is called, or empty
    place: Place
    reads: frozenset[Key]  # every name in its arguments


@dataclass
class Loop:
    """One `for` or `while` statement."""

    line: int
    last_line: int
    runs: bool = False  # it runs a session, directly or in a function that it calls
    fresh_graph: bool = False  # it makes a new graph in each iteration
    calls: set[str] = field(default_factory=set)  # the functions of this file that it calls


@dataclass
class Area:
    """One call that constructs an area."""

    call: Call
    keys: set[Key]  # the names that the area is bound to
    ours: bool  # it is staging_tf1's area, which avoids some mistakes that contrib's area allows
    escapes: bool = False  # it is passed to other code, which may put or get


@dataclass
class Facts:
    """Everything about one file."""

    path: str
    lines: list[str]
    imports: Imports = field(default_factory=Imports)
    calls: list[Call] = field(default_factory=list)
    loops: list[Loop] = field(default_factory=list)
    areas: list[Area] = field(default_factory=list)
    # The keys that the right-hand sides of a name read, and markers such as "put@3" for the put of area number 3.
    made_of: dict[Key, set[Key]] = field(default_factory=dict)
    # The same, for plain renaming only: x = y, x = ys[i], xs.append(y), for x in ys.
    renamed: dict[Key, set[Key]] = field(default_factory=dict)
    # The expressions assigned to a name, in order.
    assigned: dict[Key, list[cst.BaseExpression]] = field(default_factory=dict)
    # The functions passed to threading.Thread, with that call.
    thread_targets: dict[str, Call] = field(default_factory=dict)
    # The functions that each function of this file calls.
    function_calls: dict[str, set[str]] = field(default_factory=dict)
    # Dotted names: the full name, the spelling (None in an import statement), and the place.
    uses: list[tuple[str, str | None, Place]] = field(default_factory=list)
    writes: list[tuple[Key, Place]] = field(default_factory=list)  # x[...] = value
    returned: set[Key] = field(default_factory=set)  # names that functions return unchanged
    yields: list[tuple[cst.BaseExpression, Place]] = field(default_factory=list)

    def closure(self, keys: Iterable[Key], edges: dict[Key, set[Key]] | None = None) -> set[Key]:
        """Return `keys` and all keys that they depend on."""
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
        """Return the calls of these full names."""
        return (call for call in self.calls if call.name in names)

    def methods(self, area: Area, *methods: str) -> Iterator[Call]:
        """Yield the calls of these methods of `area`."""
        for call in self.calls:
            if call.method in methods and self.is_area(call.receiver, area):
                yield call

    def is_area(self, key: Key, area: Area) -> bool:
        """Whether `key` names `area`."""
        return bool(key) and not area.keys.isdisjoint(self.closure([key], self.renamed))

    def session_runs(self) -> Iterator[Call]:
        """Return the calls of a session's run, in order of lines."""
        return (call for call in self.calls if is_session_run(call))

    def training_loop(self, place: Place) -> Loop | None:
        """Return the outermost loop around `place` that runs a session and keeps its graph."""
        around = [self.loops[index] for index in place.loops]
        if any(loop.fresh_graph for loop in around):
            return None
        return next((loop for loop in around if loop.runs), None)

    def called_in_training_loop(self, place: Place) -> Loop | None:
        """Return the `training_loop` of `place`, or one that calls the function around `place`."""
        if (loop := self.training_loop(place)) is not None:
            return loop
        for loop in self.loops:
            if loop.runs and not loop.fresh_graph and not self.reach(loop.calls).isdisjoint(place.functions[-1:]):
                return loop
        return None

    def reach(self, functions: Iterable[str]) -> set[str]:
        """Return `functions` and the functions that they call."""
        return self.closure(functions, self.function_calls)

    def in_thread(self, place: Place) -> str | None:
        """Return the thread target that runs the code at `place`, or None."""
        for target in self.thread_targets:
            if not self.reach([target]).isdisjoint(place.functions):
                return target
        return None


def is_session_run(call: Call) -> bool:
    """Whether a call looks like a session's run: ``sess.run(...)``, ``self.session.run(...)``."""
    return (
        call.method == "run"
        and not call.name.startswith(("tensorflow.", "absl.", "subprocess.", "asyncio."))
        and bool(call.node.args)
    )


def argument(call: cst.Call, name: str, position: int | None = None) -> cst.BaseExpression | None:
    """Return an argument by keyword or position; None if it is missing."""
    for arg in call.args:
        if arg.keyword is not None and arg.keyword.value == name:
            return arg.value
    plain = [arg for arg in call.args if arg.keyword is None and not arg.star]
    return plain[position].value if position is not None and position < len(plain) else None
