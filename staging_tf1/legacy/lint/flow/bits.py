"""Marks: one bit for each thing that an op may do, and the records of what an expression reads."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from staging_tf1.legacy.lint.flow.program import Area
from staging_tf1.legacy.lint.model.scopes import Scope, Variable

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
