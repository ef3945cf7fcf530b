"""Every command where nobody reads its output, the disk is full, or the locale is ASCII."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from processes import RunPython

from staging_tf1.cli.main import COMMANDS
from staging_tf1.sources import cached

NAME = "name-ü"
OLD = """import tensorflow as tf

# größer
sess = tf.Session()
for step in range(3):
    area = tf.contrib.staging.StagingArea([tf.int32])
    sess.run(area.get())
"""
ASCII = {"LC_ALL": "C", "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with what the commands need; its name and those of its files are not ASCII."""
    folder = tmp_path / NAME
    folder.mkdir()
    (folder / "old.py").write_text(OLD, encoding="utf-8")
    np.savez(folder / "data.npz", **{NAME: np.arange(5)})  # type: ignore[arg-type]
    cached([{NAME: 1}] * 3, folder / "cache", batch_size=1)
    (folder / "dataset_of_mine.py").write_text("data = [1, 2, 3]\n")
    return folder


# What each command does here; its paths are in the folder. `run` has the streams of the program that it runs.
ROWS: dict[str, list[str]] = {
    "train": ["train", "--epochs", "1"],
    "run": ["run", "--help"],
    "contrib": ["contrib", "--help"],
    "launch": ["launch", "--workers", "1", "--", "-m", "dataset_of_mine"],
    "check": ["check", "old.py"],
    "migrate": ["migrate", "--diff", "old.py"],
    "index": ["index", "--write", "records.tfrecord", "--from", "data.npz"],
    "cache": ["cache", "show", "--verify", "cache"],
    "cache build": ["cache", "build", "dataset_of_mine:data", "other"],
    "cache remove": ["cache", "remove", "cache"],
    "help": ["--help"],
    "version": ["--version"],
}
QUIET_ROWS = [name for name in ROWS if name != "launch"]


@pytest.fixture
def run(run_python: RunPython, folder: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run a row in the folder."""

    def run(name: str, **options: Any) -> subprocess.CompletedProcess[str]:
        return run_python("-m", "staging_tf1", *ROWS[name], cwd=folder, **options)

    return run


def test_every_command_has_a_row() -> None:
    assert {words[0] for words in ROWS.values() if words[0] in COMMANDS} == set(COMMANDS)


@pytest.fixture
def no_reader() -> Iterator[int]:
    """The end of a pipe whose other end is closed."""
    reading, writing = os.pipe()
    os.close(reading)
    yield writing
    os.close(writing)


# Buffered, Python learns of an error when the command is done.
BUFFERED, UNBUFFERED = {"PYTHONUNBUFFERED": ""}, {"PYTHONUNBUFFERED": "1"}


@pytest.mark.thinned
@pytest.mark.parametrize("stream", ["no reader", "full"])
@pytest.mark.parametrize("env", [BUFFERED, UNBUFFERED], ids=["buffered", "unbuffered"])
@pytest.mark.parametrize("name", QUIET_ROWS)
@pytest.mark.slow_cases("train-buffered-no reader")
@pytest.mark.matrix_cases(r"(?!(train-buffered-no reader|check-unbuffered-no reader|index-buffered-full)$).*")
def test_the_output_cannot_be_written(run: Any, name: str, env: dict[str, str], stream: str, no_reader: int) -> None:
    with open("/dev/full", "w") as full:
        stdout = no_reader if stream == "no reader" else full
        done = run(name, env=env, capture_output=False, stdout=stdout, stderr=subprocess.PIPE)
    assert "Traceback" not in done.stderr
    if stream == "no reader":
        assert done.returncode == 128 + signal.SIGPIPE
        assert not any(word in done.stderr for word in ("Exception", "Error"))
    else:
        assert done.returncode == 1
        command = ROWS[name][0] if ROWS[name][0] in COMMANDS else ""
        last = f"staging-tf1 {command}".strip() + ": the output cannot be written: No space left on device"
        assert [line for line in done.stderr.splitlines() if "it/s" not in line][-1] == last


@pytest.mark.parametrize("stream", ["no reader", "full"])
@pytest.mark.parametrize("words", [["check", "missing.py"], ["trian"], ["cache", "show", "missing"]])
def test_nobody_reads_the_errors(
    run_python: RunPython, folder: Path, words: list[str], stream: str, no_reader: int
) -> None:
    with open("/dev/full", "w") as full:
        stderr = no_reader if stream == "no reader" else full
        options = {"cwd": folder, "capture_output": False, "stdout": subprocess.PIPE}
        done = run_python("-m", "staging_tf1", *words, stderr=stderr, **options)
    assert done.returncode == (128 + signal.SIGPIPE if stream == "no reader" else 1)
    assert done.stdout == ""


@pytest.mark.parametrize("name", ROWS)
# The default run has two that import no TensorFlow.
@pytest.mark.matrix_cases(r"(?!(check|cache build)$).*")
def test_an_ascii_locale(run: Any, name: str) -> None:
    expected, done = run(name), run(name, env=ASCII)
    if name == "cache remove":  # the second one finds nothing to remove
        assert (expected.returncode, done.returncode) == (0, 1)
    else:
        assert done.returncode == expected.returncode, done.stderr
    assert "Error" not in done.stderr.replace("RecordFileError", "")
    escaped = expected.stdout.encode("ascii", "backslashreplace").decode()
    if name in ("check", "migrate", "cache", "index", "launch"):
        assert done.stdout == escaped or name == "index"
    assert done.stdout or name in ("launch", "cache remove")


def test_a_path_that_is_not_text(run_python: RunPython, tmp_path: Path) -> None:
    path = os.path.join(os.fsencode(tmp_path), b"\xff\xfe.py")
    with open(path, "w") as file:
        file.write(OLD)
    for env in ({}, ASCII):
        done = run_python("-m", "staging_tf1", "check", os.fsdecode(path), env=env, text=False)
        assert done.returncode in (0, 1), done.stderr
        assert b"\xff\xfe.py:6" in done.stdout
