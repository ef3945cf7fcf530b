"""A main program without a guard, whose source makes and raises what it defines; it prints what it gets."""

from __future__ import annotations

import enum
import traceback
from collections import namedtuple

from pools import pools
from worker_sources import Reporting


class BadImage(ValueError):
    def __init__(self, path, reason):
        super().__init__(f"{path}: {reason}")
        self.path = path


class Own(Exception):
    def __init__(self, *, path):
        self.path = path


class Pair(namedtuple("Pair", "first second")):
    def total(self):
        return self.first + self.second


class Mode(enum.Enum):
    A = 1
    B = 2


def make(index):
    if index == 1:
        return Pair(2, 3), Mode.B
    try:
        raise OSError(5, "input/output error")
    except OSError as error:
        if index == 2:
            raise BadImage(f"{index}.png", reason="dark") from error
    raise Own(path=None)


caught, text = [], ""
with pools(Reporting(9, make)) as (pool,):
    for number in (2, 3):
        try:
            pool.make(number)
        except (BadImage, Own) as error:
            text = text or "".join(traceback.format_exception(type(error), error, error.__traceback__))
            cause = error.__cause__ and type(error.__cause__).__name__
            caught.append((type(error).__name__, error.args, error.path, cause))
    pair, mode = pool.make(1)["x"]
print({"kept": [type(pair) is Pair, pair.total(), mode is Mode.B], "caught": caught, "traceback": text})
