"""A main program whose source raises its own exceptions in a worker process; it prints what it has caught."""

from __future__ import annotations

import traceback

from test_workers import pools
from worker_sources import Reporting


class BadImage(ValueError):
    def __init__(self, path, reason):
        super().__init__(f"{path}: {reason}")
        self.path = path


class Own(Exception):
    def __init__(self, *, path):
        self.path = path


def make(index):
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
print({"caught": caught, "traceback": text})
