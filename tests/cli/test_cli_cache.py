"""`staging-tf1 cache`: show, build and remove."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from processes import RunPython

from staging_tf1.cli.main import main
from staging_tf1.sources import CachedSource, cached

MODULE = """
import itertools
import numpy as np

def train_data():
    for i in range(10):
        yield {"x": np.full(3, i, np.float32), "text": "abc"}

def endless():
    return itertools.count()

def fails():
    yield 1
    raise ValueError("the user's own")

def halves():
    import ml_dtypes
    yield np.zeros(2, ml_dtypes.bfloat16)

class Holder:
    batches = [[1, 2], [3]]

nothing = None
"""


@pytest.fixture(autouse=True)
def _module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "data_for_cache.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)


def run(*words: str) -> int:
    return main(["cache", *words])


def build(name: str, *words: str) -> int:
    return run("build", f"data_for_cache:{name}", "out", *words)


def test_a_cache_is_built_shown_used_and_removed(capsys: pytest.CaptureFixture[str]) -> None:
    assert build("train_data", "--version", "2") == 0
    assert re.fullmatch(r"out: 10 records, 12\.\d KiB, built \S+\n", capsys.readouterr().out)
    import data_for_cache  # type: ignore[import-not-found]

    source = cached(data_for_cache.train_data, "out", batch_size=10, version=2, if_changed="error")
    assert source.batch(0)["x"][:, 0].tolist() == list(range(10))
    assert run("show", "--verify", "out") == 0
    shown = capsys.readouterr().out.splitlines()
    assert shown[1:] == [
        "  text  string []  8.1 KiB  000-text.npy, 000-text.strings.npy",
        "  x  float32 [3]  4.1 KiB  001-x.npy",
        "  key: version = 2",
        "  verified 3 files: 0 damaged",
    ]
    assert run("remove", "out") == 0
    assert re.fullmatch(r"removed out \(10 records, 12\.\d KiB\)\n", capsys.readouterr().out)
    assert "out" not in os.listdir()


def test_options_are_those_of_the_function(capsys: pytest.CaptureFixture[str]) -> None:
    assert build("endless", "--limit", "5") == 0
    assert CachedSource("out", batch_size=5).batch(0).tolist() == [0, 1, 2, 3, 4]
    assert build("endless", "--limit", "6", "--if-changed", "error") == 1
    expected = "staging-tf1 cache build: cached(): the cache 'out' is out of date: limit: 5 in the cache, 6 now"
    assert capsys.readouterr().err.startswith(expected)
    assert build("Holder.batches", "--batched", "--threads", "2", "--files", "data_*.py") == 0
    assert run("show", "out") == 0
    shown = capsys.readouterr().out
    assert "  (record)  int64 []  4.0 KiB  000.npy\n" in shown and "  key: files = 1 files" in shown


REFUSED = {
    "data_for_cache:nothing": "cached() got data=None, expected a tf.data.Dataset",
    "data_for_cache:missing": "module 'data_for_cache' has no 'missing'. Check the name",
    "no_module_of_this_name:x": "found no module 'no_module_of_this_name' in ",
    "data_for_cache": "got 'data_for_cache', expected MODULE:NAME, such as",
    ":x": "got ':x', expected MODULE:NAME, such as",
    ".data_for_cache:data": "got '.data_for_cache:data', expected MODULE:NAME, such as",
}


@pytest.mark.parametrize("name", REFUSED)
def test_names_that_are_no_data_are_refused(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("build", name, "out") == 1
    assert capsys.readouterr().err.startswith(f"staging-tf1 cache build: {REFUSED[name]}")
    assert "out" not in os.listdir()


def test_an_error_of_the_users_module_keeps_its_traceback() -> None:
    with pytest.raises(ValueError, match="the user's own"):
        build("fails")
    assert "out" not in os.listdir()


def test_what_is_no_cache_is_neither_shown_nor_removed(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    for name in ("folder/precious", "file"):
        (tmp_path / name).write_text("x")
    for path in ("folder", "file", "missing"):
        for action in ("show", "remove"):
            assert run(action, path) == 1
            err = capsys.readouterr().err
            assert err.startswith("staging-tf1 cache: ") and err.count("\n") == 1 and path in err
    assert (tmp_path / "folder" / "precious").exists() and (tmp_path / "file").exists()


def test_verify_names_each_damaged_file(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    for name in ("good", "bad"):
        cached({"x": np.arange(1000), "y": np.arange(1000.0), "z": np.zeros(1000)}, name, batch_size=1)
    for name, offset in (("000-x.npy", 4096 + 777), ("001-y.npy", 30)):
        file = tmp_path / "bad" / name
        content = bytearray(file.read_bytes())
        content[offset] ^= 1
        file.write_bytes(content)
    assert run("show", "bad") == 0, "sizes alone are right"
    assert run("show", "--verify", "good", "bad") == 1
    out, err = capsys.readouterr()
    assert "verified 3 files: 0 damaged" in out and "verified 3 files: 2 damaged" in out
    first, second = err.splitlines()
    assert "'bad/000-x.npy' has another checksum than its cache says: its content was changed." in first
    assert "'bad/001-y.npy' has another header than its cache says" in second


def test_an_unfinished_cache_can_be_removed(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / ".out.building").mkdir()
    assert run("remove", str(tmp_path / "out")) == 0
    assert capsys.readouterr().out == f"removed the unfinished cache {tmp_path / 'out'}\n"
    assert not (tmp_path / ".out.building").exists()
    assert run("remove", str(tmp_path / "out")) == 1


def test_a_cache_of_another_version_can_be_removed(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    cached(np.arange(3), "old", batch_size=1)
    manifest = tmp_path / "old" / "manifest.json"
    manifest.write_text(re.sub(r'"version": \d', '"version": 7', manifest.read_text(), count=1))
    assert run("show", "old") == 1
    assert run("remove", "old") == 0
    out, err = capsys.readouterr()
    assert "format version 7" in err and out == "removed old (version 7)\n"


def test_a_process_of_its_own_shows_no_bar_and_knows_all_dtypes(run_python: RunPython, tmp_path: Path) -> None:
    for words in (("build", "data_for_cache:halves", "o"), ("show", "o")):
        done: Any = run_python("-m", "staging_tf1", "cache", *words, cwd=tmp_path)
        assert (done.returncode, done.stderr) == (0, "")
    assert "  (record)  bfloat16 [2]  4.0 KiB  000.npy\n" in done.stdout
