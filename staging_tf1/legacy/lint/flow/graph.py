"""Marks, one bit for each thing that an op may do, and which of them a name, a function or an expression reaches.

Circles of names are solved as a whole, so every cell is visited once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from staging_tf1.legacy.lint.flow.program import Area
from staging_tf1.legacy.lint.model.reading import Scope, Variable

# Bits of a mask. Those of area number N begin at `_FIRST + _EACH * N`.
UNKNOWN, GLOBAL_INIT, LOCAL_INIT, QUEUE_PUT, RUNNER, LOCAL_VARIABLE = (1 << place for place in range(6))
_FIRST, _EACH = 8, 4
VERBS = {"put": 0, "stage": 0, "get": 1, "unstage": 1, "peek": 2, "size": 3}


@dataclass(frozen=True)
class Result:
    """What a call of a function of this file returns: one of its elements, all of them (-1), or its whole body."""

    function: Scope
    part: int = -1
    body: bool = False


Cell = Variable | Result


@dataclass(slots=True)
class Reads:
    """What an expression reads: cells and marks, those that it may read and those that it certainly reads."""

    may: set[Cell] = field(default_factory=set)
    must: set[Cell] = field(default_factory=set)
    marks: int = 0
    certain: int = 0


def bit(area: Area, verb: str) -> int:
    """Return the mark of ``area.put()`` and so on."""
    return 1 << (_FIRST + _EACH * area.number + VERBS[verb])


def numbers(marks: int) -> Iterator[int]:
    """Yield the numbers of the areas that a mask names."""
    rest, last = marks >> _FIRST, -1
    while rest:
        lowest = (rest & -rest).bit_length() - 1
        number = lowest // _EACH
        if number != last:
            last = number
            yield number
        rest &= ~(((1 << _EACH) - 1) << (_EACH * number))


_ALL = -1  # every bit
# Marks settle after as many rounds as circles are nested.
_ROUNDS = 8


@dataclass(slots=True)
class Alternative:
    """One of the values that a cell may have."""

    reads: Any  # a Reads record
    adds: bool = False  # it is added to the other values, which stay
    sure: bool = True  # it is certain that the cell has this value, or that it is added


class Solver:
    """Computes the marks of cells: those that may be reached, and those that are reached on every way."""

    def __init__(self, alternatives: Callable[[Any], list[Alternative]]) -> None:
        self._alternatives = alternatives
        self._known: dict[Any, list[Alternative]] = {}
        self._may: dict[Any, int] = {}
        self._must: dict[Any, int] = {}

    def may(self, reads: Any) -> int:
        """Return the marks that what is read may reach."""
        self._solve(reads.may)
        marks: int = reads.marks
        for cell in reads.may:
            marks |= self._may[cell]
        return marks

    def must(self, reads: Any) -> int:
        """Return the marks that what is read reaches on every way."""
        self._solve(reads.may)
        marks: int = reads.certain
        for cell in reads.must:
            marks |= self._must[cell]
        return marks

    def _ways(self, cell: Any) -> list[Alternative]:
        ways = self._known.get(cell)
        if ways is None:
            ways = self._known[cell] = self._alternatives(cell)
        return ways

    def _next(self, cell: Any) -> list[Any]:
        return list({below: None for way in self._ways(cell) for below in way.reads.may})

    def _solve(self, cells: set[Any]) -> None:
        """Tarjan's algorithm, without recursion: circles come out after everything that they depend on."""
        for root in cells:
            if root in self._may:
                continue
            number: dict[Any, int] = {root: 0}
            low: dict[Any, int] = {root: 0}
            stack, on_stack = [root], {root}
            work = [(root, iter(self._next(root)))]
            while work:
                cell, below = work[-1]
                for one in below:
                    if one in self._may:
                        continue
                    if one not in number:
                        number[one] = low[one] = len(number)
                        stack.append(one)
                        on_stack.add(one)
                        work.append((one, iter(self._next(one))))
                        break
                    if one in on_stack:
                        low[cell] = min(low[cell], number[one])
                else:
                    work.pop()
                    if work:
                        low[work[-1][0]] = min(low[work[-1][0]], low[cell])
                    if low[cell] == number[cell]:
                        self._finish(_popped(stack, on_stack, cell))

    def _finish(self, circle: list[Any]) -> None:
        may = 0
        inside = set(circle)
        for cell in circle:
            for way in self._ways(cell):
                may |= way.reads.marks
                for below in way.reads.may:
                    if below not in inside:
                        may |= self._may[below]
        for cell in circle:
            self._may[cell] = may
            self._must[cell] = _ALL
        for _ in range(_ROUNDS):
            before = [self._must[cell] for cell in circle]
            for cell in circle:
                self._must[cell] = self._on_every_way(cell)
            if before == [self._must[cell] for cell in circle]:
                break
        else:
            may = 0  # a circle of circles: nothing is certain
        for cell in circle:
            self._must[cell] &= may

    def _on_every_way(self, cell: Any) -> int:
        every, added = _ALL, 0
        for way in self._ways(cell):
            marks: int = way.reads.certain
            for below in way.reads.must:
                marks |= self._must[below]
            if way.adds:
                added |= marks if way.sure else 0
            else:
                every &= marks if way.sure else 0
        return every | added


def _popped(stack: list[Any], on_stack: set[Any], until: Any) -> list[Any]:
    circle = []
    while True:
        one = stack.pop()
        on_stack.discard(one)
        circle.append(one)
        if one is until or one == until:
            return circle
