"""Shows through which files of the package a start, a step and an end go: `python tools/visits.py`.

A flow enters a file each time that a function of another file calls one of it.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import staging_tf1 as staging
from staging_tf1._tf import tf

PACKAGE = str(Path(staging.__file__).parent) + "/"


def visits(flow: Callable[[], Any]) -> Counter[str]:
    """Return how often `flow`, in this thread, enters each file of the package."""
    found: Counter[str] = Counter()
    files = [""]

    def note(frame: Any, event: str, _: Any) -> None:
        if event == "call":
            path = frame.f_code.co_filename
            # A call of another library stays in the file that has made it.
            file = path.removeprefix(PACKAGE) if path.startswith(PACKAGE) else files[-1]
            if file != files[-1]:
                found[file] += 1
            files.append(file)
        elif event == "return" and len(files) > 1:
            files.pop()

    sys.setprofile(note)
    try:
        flow()
    finally:
        sys.setprofile(None)
    return found


def flows() -> dict[str, Counter[str]]:
    """Return the visits of the flows of one `StagingSession`."""
    found = {}
    with tf.Graph().as_default():
        x = staging.staged(staging.sources.ArraySource(np.arange(64), batch_size=1))
        fails = tf.placeholder_with_default(False, [])
        with tf.control_dependencies([x]):
            check = tf.debugging.Assert(tf.logical_not(fails), ["asked to"])
        sessions: list[Any] = []
        found["start"] = visits(lambda: sessions.append(staging.StagingSession()))
        (session,) = sessions
        for _ in range(8):
            session.run(x)
        found["hot step"] = visits(lambda: session.run(x))

        def fail() -> None:
            try:
                session.run(check, {fails: True})
            except tf.errors.InvalidArgumentError:
                return

        fail()
        found["failed step"] = visits(fail)
        found["close"] = visits(session.close)
    return found


if __name__ == "__main__":
    tf.disable_v2_behavior()
    for name, entered in flows().items():
        most = ", ".join(f"{file} {count}" for file, count in entered.most_common(6))
        print(f"{name}: {len(entered)} files, entered {entered.total()} times; most: {most}")
