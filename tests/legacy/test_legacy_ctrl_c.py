"""Ctrl-C ends each op that waits in an unmodified program, as in our own sessions (`test_ctrl_c.py`)."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from forked import ForkServer
from waits import ENDS, HANGS, PROGRAM, check, interrupt


# The same ops as in test_ctrl_c.py; what differs is who makes the ops that wake.
@pytest.mark.matrix_cases("two gets|peek|map .*|dequeue|barrier|sparse|iterator")
@pytest.mark.parametrize("op", [*ENDS, *HANGS])
def test_ctrl_c_ends_what_waits_and_names_it(legacy_server: ForkServer, tmp_path: Path, op: str) -> None:
    check(legacy_server, tmp_path, "run", op)


@pytest.mark.parametrize("kind", ["StagingSession", "start"])
def test_only_our_own_session_ends_its_run(legacy_server: ForkServer, tmp_path: Path, kind: str) -> None:
    code, told = interrupt(legacy_server, tmp_path, PROGRAM, kind, "dequeue")
    assert code == -signal.SIGINT and told.count("Ctrl-C ends a run that waits") == 1, told
