"""Every argument of every public function against values of the wrong kind, out of range, or huge.

The function must reject a value within a second, with an error that names the argument, the value and what it expects,
and must make no op, thread or file. What an argument accepts follows from its annotation; see
argument_rows.py.
"""

from __future__ import annotations

import gc
import inspect
import os
import re
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow.compat.v1 as tf
from argument_calls import CALLS, RECORDS, built, opened, running
from argument_rows import (
    DESCRIBED,
    FLAGS,
    INT64,
    NEVER_NONE,
    NONE,
    RANGES,
    SAYS,
    SECS,
    STRINGS,
    UNTRIED,
    VALUES,
    Row,
    ints,
    table,
)
from hostile import HOSTILE
from public_arguments import public_arguments

import staging_tf1 as staging
from staging_tf1 import data, sources
from staging_tf1.arguments import shown
from staging_tf1.cli.main import main
from staging_tf1.errors import RecordFileError, StagingError
from staging_tf1.lifecycle.monitored import check_monitored
from staging_tf1.sources.files import arrayrecord_read, tfrecord_read

# How a message says what is expected, or what to do.
_WANTS = re.compile(
    r"expected|must|takes|declared|out of range|no file|no such file|neither|numbered|interpreted|a component\b"
    r"|may|Cannot be None|\b(give|name|put|write|use|declare|raise|pass|leave|convert|know[ns]|wrap)\b|got no",
    re.IGNORECASE,
)


@pytest.fixture(autouse=True)
def _close_the_session() -> Iterator[None]:
    yield
    while opened:
        opened.pop().close()


_TABLE = table()


def test_the_tables_name_public_functions_and_arguments() -> None:
    arguments = {f"{function}({argument})" for function, argument, _ in public_arguments()}
    functions, words = zip(*(name[:-1].split("(") for name in arguments))
    assert set(functions) - set(CALLS) == set(), "called nowhere"
    tables = (CALLS, DESCRIBED, NEVER_NONE, RANGES, SAYS, UNTRIED, VALUES)
    assert {name for each in tables for name in each} - arguments - {*functions, *words} == set(), "of no function"


@pytest.fixture
def ignored(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Collect what Python prints as "Exception ignored in", for example from a `__del__`."""
    found: list[str] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda args: found.append(f"{args.exc_value!r} in {args.object!r}"))
    yield found


@pytest.mark.parametrize("name", sorted(_TABLE))
def test_an_argument_takes_its_values_or_names_them(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ignored: list[str]
) -> None:
    if name.startswith("Grain"):
        pytest.importorskip("grain")
    monkeypatch.chdir(tmp_path)
    row, argument = _TABLE[name], name[name.index("(") + 1 : -1]
    problems = []
    for kind, value in HOSTILE.items():
        if kind in row.untried:
            continue
        problem = _problem(row, argument, kind, value)
        if problem:
            problems.append(f"{kind}: {problem}")
        for left in os.listdir():
            if not left.startswith("r.") and os.path.isfile(left):
                os.remove(left)
    # Garbage is collected once, below, because a collection takes a quarter of a second.
    assert problems + ignored == []


def test_the_garbage_of_the_table_is_collected_without_a_word(ignored: list[str]) -> None:
    gc.collect()
    assert ignored == []


def _problem(row: Row, argument: str, kind: str, value: Any) -> str:
    """Return what is wrong with the function's answer to the value; "" if nothing is."""
    with tf.Graph().as_default() as graph:
        built.clear()
        running.clear()
        running.update(threading.enumerate())
        began, files = time.thread_time(), set(os.listdir())
        try:
            made = row.call(value)
        except (TypeError, ValueError, IndexError, StagingError) as error:
            text, took = str(error), time.thread_time() - began
        except BaseException as error:
            return f"{type(error).__name__}: {error}"
        else:
            if hasattr(made, "close"):
                made.close()
            return "" if kind in row.takes else "was taken"
        wrong = ["was refused"] if kind in row.takes else []
        if not any(re.search(rf"(?<![a-z_]){re.escape(word)}", text) for word in (argument, *row.says)):
            wrong.append("does not name the argument")
        if row.shows and not any(shape in text for shape in _shapes(value)):
            wrong.append("does not show the value")
        if not _WANTS.search(text):
            wrong.append("does not say what it wants")
        if took > 1:
            wrong.append(f"took {took:.1f} s")
        if len(graph.get_operations()) > max(built, default=0):
            wrong.append("added ops")
        if left := set(threading.enumerate()) - running:
            wrong.append(f"left threads {left}")
        if new := {name for name in set(os.listdir()) - files if not name.startswith("r.")}:
            wrong.append(f"left files {new}")
        return f"{', '.join(wrong)}: {text}" if wrong else ""


def _shapes(value: Any) -> list[str]:
    """Return what a message may show for the value: itself, its type, or one of its elements."""
    nothing = ("", b"", [], ())
    if value is None or (isinstance(value, (str, bytes, list, tuple)) and value in nothing):
        return ["None", "no ", "empty", "[]", "0 entries", "''", "not declared"]
    shown_as = [shown(value)[:60], type(value).__name__]
    if isinstance(value, str):
        shown_as.append(value)
    if isinstance(value, type):
        shown_as += [value.__name__, "returns"]
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, (list, tuple, set, bytes)) or (isinstance(value, np.ndarray) and value.ndim):
        shown_as += [shown(each) for each in value] + [f"{len(value)} entries", "no ", "empty"]
    elif isinstance(value, (int, np.integer, np.ndarray)) and abs(int(value)) < 2**64:
        shown_as.append(str(int(value)))
    return shown_as


# Arguments that StagingSession passes to tf.train.MonitoredTrainingSession.

_MONITORED: dict[str, set[str]] = {
    "master": STRINGS,
    "is_chief": FLAGS,
    "scaffold": NONE,
    "chief_only_hooks": {"none", "empty_list", "np_empty"},
    "save_checkpoint_secs": NONE | SECS,
    "save_checkpoint_steps": NONE | ints(-(2**63), INT64),
    "save_summaries_secs": NONE | SECS,
    "save_summaries_steps": NONE | ints(-(2**63), INT64),
    "log_step_count_steps": NONE | ints(-(2**63), INT64),
    "max_wait_secs": SECS,
    "summary_dir": {"none", "digit", "word"},
    "save_graph_def": FLAGS,
}


def test_the_table_of_monitored_arguments_is_whole() -> None:
    own = {"checkpoint_dir", "hooks", "config", "stop_grace_period_secs"}
    assert set(inspect.signature(tf.train.MonitoredTrainingSession).parameters) - own == set(_MONITORED)


@pytest.mark.parametrize("name", sorted(_MONITORED))
def test_a_monitored_argument_takes_its_values_or_names_them(name: str) -> None:
    row = Row(lambda value: check_monitored({name: value}), _MONITORED[name])
    problems = [f"{kind}: {found}" for kind, value in HOSTILE.items() if (found := _problem(row, name, kind, value))]
    assert problems == []


def test_an_unknown_monitored_argument_is_named(graph: Any) -> None:
    with pytest.raises(
        TypeError, match=r"^StagingSession got unknown argument 'max_wait'\. Did you mean 'max_wait_secs'\?"
    ):
        staging.StagingSession(max_wait=3)


# A constructor that fails.


class _TooEarly(staging.StagingSession):
    """Fails before it calls the session's own constructor."""

    def __init__(self) -> None:
        raise ValueError("too early")


def test_a_subclass_that_fails_early_is_collected_without_a_word(ignored: list[str]) -> None:
    with pytest.raises(ValueError, match="too early"):
        _TooEarly()
    gc.collect()
    assert ignored == []


def test_an_open_file_whose_name_cannot_be_is_collected_without_a_word(ignored: list[str]) -> None:
    for opens in (tfrecord_read._OpenFile, arrayrecord_read._OpenFile):
        with pytest.raises(Exception):  # noqa: B017
            opens(object(), "mmap")  # type: ignore[arg-type]
    gc.collect()
    assert ignored == []


@pytest.mark.parametrize("shape", [-1, (-1,), (-1, -1), (-1, 0), (-1, -1, 3), (2, -3), (True, 3), [1.5]])
def test_a_shape_has_no_negative_dimension(shape: Any) -> None:
    for dtype in (np.uint8, np.float64, object):
        with pytest.raises(
            (TypeError, ValueError), match=r"^aligned_empty\(\) got shape=.*, expected a whole number or a tu"
        ):
            sources.aligned_empty(shape, dtype)


# Paths that are not regular files.


@pytest.fixture
def pipe(tmp_path: Path) -> Path:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    return path


def test_a_named_pipe_is_no_record_file(pipe: Path) -> None:
    message = rf"^record file '{pipe}' is a named pipe, expected a regular file\.$"
    for make in (sources.TFRecordSource, sources.ArrayRecordSource):
        with pytest.raises(RecordFileError, match=message):
            make(pipe, batch_size=1)


def test_a_named_pipe_in_place_of_an_index_is_named(tmp_path: Path) -> None:
    path = str(tmp_path / "a.tfrecord")
    sources.write_tfrecords(RECORDS, path)
    os.unlink(path + ".index.npy")
    os.mkfifo(path + ".index.npy")
    with pytest.raises(RecordFileError, match=r"but is not: it has another format\. Delete it to have it recreated"):
        sources.TFRecordSource(path, batch_size=1)


@pytest.mark.parametrize("place", ["pipe", "device", "folder"])
def test_what_is_written_is_a_regular_file(pipe: Path, place: str) -> None:
    path, kind = {
        "pipe": (str(pipe), "a named pipe"),
        "device": ("/dev/full", "a device"),
        "folder": (str(pipe.parent), "a folder"),
    }[place]
    message = rf"='{path}', which is {kind}, expected the path of a regular file\.$"
    for write in (sources.write_tfrecords, sources.write_array_records):
        with pytest.raises(ValueError, match=rf"^{write.__name__} got out" + message):
            write(RECORDS, path)
    assert os.path.exists(path) and not os.path.isfile(path)


def test_a_named_pipe_is_no_npz_file(pipe: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(data.DataFileError, match="is a named pipe, expected an .npz file"):
        data.load_images(pipe)
    assert main(["index", "--write", str(tmp_path / "o"), "--from", str(pipe)]) == 1
    assert f"{pipe} is a named pipe, expected an .npz file of named arrays" in capsys.readouterr().err


# The command line.


@pytest.mark.parametrize(
    "words",
    [
        ["train", flag, value]
        for flag in ("--batch-size", "--epochs")
        for value in ("1.5", "-1", "nan", "", "x", str(2**31), str(2**70), "9" * 5000)
    ]
    + [["index", "--write", "o", "--from", "d", "--shards", value] for value in ("0", "1.5", str(2**70))],
    ids=lambda words: " ".join(words)[:40],
)
def test_a_flag_names_its_value(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(words)
    err = capsys.readouterr().err
    assert caught.value.code == 2 and words[-2] in err and "expected" in err and err.count("\n") == 1
