"""One file as the rules see it: its calls by name, the sessions it runs, its loops, and its areas."""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator
from dataclasses import dataclass

from staging_tf1.legacy.lint.model.reading import Call, Reading, Scope
from staging_tf1.legacy.lint.model.values import Values

AREAS = frozenset({"StagingArea", "MapStagingArea"})
_AREA_MODULES = (
    "tensorflow.contrib.staging.",
    "tensorflow.python.ops.data_flow_ops.",
    "tensorflow.staging.",
    "staging_tf1.",
)
_QUEUES = frozenset({"FIFOQueue", "RandomShuffleQueue", "PaddingFIFOQueue", "PriorityQueue"})


@dataclass(eq=False)
class Area:
    """One call that constructs an area."""

    call: Call
    number: int
    ours: bool  # it is staging_tf1's area, which avoids some mistakes that contrib's area allows


class Program:
    """One parsed file."""

    def __init__(self, path: str, lines: list[str], reading: Reading) -> None:
        self.path = path
        self.lines = lines
        self.reading = reading
        self.values = Values(reading)
        self.areas = self._find_areas()

    @property
    def calls(self) -> list[Call]:
        """All calls, in the order in which they are read."""
        return self.reading.calls

    def name(self, call: Call) -> str:
        """Return the full name of the called function; "" if it is not imported or builtin."""
        return self.values.call_name(call)

    def named(self, *names: str) -> Iterator[Call]:
        """Yield the calls of these full names."""
        return (call for call in self.calls if self.name(call) in names)

    @functools.cached_property
    def names(self) -> frozenset[str]:
        """The full names of everything that is called, and the last part of each called name."""
        names = {self.name(call) for call in self.calls}
        return frozenset(names | {call.method for call in self.calls})

    @functools.cached_property
    def words(self) -> frozenset[str]:
        """Every attribute and imported name in the file, by its last part."""
        words = set()
        for use in self.reading.uses:
            node: ast.AST = use.node
            while isinstance(node, ast.Attribute):
                words.add(node.attr)
                node = node.value
            words.add(use.imported.rpartition(".")[2])
        return frozenset(words | {call.method for call in self.calls})

    # ---- areas and queues

    def _find_areas(self) -> list[Area]:
        areas: list[Area] = []
        for call in self.calls:
            base = self.name(call).removesuffix(".from_tensors")
            if base.rpartition(".")[2] in AREAS and base.startswith(_AREA_MODULES):
                areas.append(Area(call, len(areas), base.startswith("staging_tf1.")))
        return areas

    @functools.cached_property
    def _area_of(self) -> dict[Call, Area]:
        return {area.call: area for area in self.areas}

    def areas_in(self, node: ast.expr | None, scope: Scope) -> list[Area]:
        """Return the areas that an expression may be, or hold."""
        if node is None or not self.areas:
            return []
        origins = self.values.origins(node, scope)
        return [self._area_of[one] for one in origins if isinstance(one, Call) and one in self._area_of]

    @functools.cached_property
    def _methods(self) -> dict[Area, list[Call]]:
        methods: dict[Area, list[Call]] = {area: [] for area in self.areas}
        if self.areas:
            for call in self.calls:
                if call.receiver is not None and not self.name(call):
                    for area in self.areas_in(call.receiver, call.scope):
                        methods[area].append(call)
        return methods

    def methods(self, area: Area, *methods: str) -> list[Call]:
        """Return the calls of these methods of `area`."""
        return [call for call in self._methods[area] if call.method in methods]

    @functools.cached_property
    def area_ops(self) -> frozenset[Call]:
        """The calls that add ops of an area to the graph."""
        verbs = ("put", "get", "peek", "stage", "unstage", "size", "clear")
        return frozenset(call for area in self.areas for call in self.methods(area, *verbs))

    def is_queue_op(self, call: Call) -> bool:
        """Whether a call adds an op that puts into a queue of TensorFlow, or takes from it."""
        if call.method not in ("enqueue", "enqueue_many", "dequeue", "dequeue_many") or call.receiver is None:
            return False
        return any(name.rpartition(".")[2] in _QUEUES for name in self.makers_of(call.receiver, call.scope))

    def makers_of(self, node: ast.expr, scope: Scope) -> list[str]:
        """Return the full names of the calls that a value may come from; those of unknown functions are left out."""
        origins = self.values.origins(node, scope)
        return [name for one in origins if isinstance(one, Call) and (name := self.name(one)).count(".")]


def argument(call: ast.Call, name: str, position: int | None = None) -> ast.expr | None:
    """Return an argument by keyword or position; None if it is missing."""
    for keyword in call.keywords:
        if keyword.arg == name:
            return keyword.value
    plain = [arg for arg in call.args if not isinstance(arg, ast.Starred)]
    return plain[position] if position is not None and position < len(plain) else None
