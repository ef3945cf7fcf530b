"""A path with a scheme is refused at once unless TensorFlow opens it; nothing is written to a folder `s3:`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

import staging_tf1 as staging
from staging_tf1 import data, sources
from staging_tf1.cli.main import main

PATHS = {
    "s3": "s3://bucket/x",
    "gs": "gs://bucket/x",
    "memory": "memory://x",
    "file": "file:///tmp/x",
    "chained": "simplecache::s3://bucket/x",
    "pathlib": Path("s3://bucket/x"),  # has one slash
    "glob": "gs://bucket/*",
}


def _never() -> Any:
    raise AssertionError("the data was read")


# What a user calls with a path, and the argument or flag that the message names.
WAYS: dict[str, tuple[Callable[[Any], Any], str]] = {
    "cached": (lambda path: sources.cached(_never, path, batch_size=1), "cached() got path="),
    "cached files": (lambda path: sources.cached(_never, "c", files=[path], batch_size=1), "cached() got files="),
    "CachedSource": (lambda path: sources.CachedSource(path, batch_size=1), "CachedSource got path="),
    "TFRecordSource": (
        lambda path: sources.TFRecordSource("a", batch_size=1, local_cache=path),
        "TFRecordSource got local_cache=",
    ),
    "ArrayRecordSource": (
        lambda path: sources.ArrayRecordSource("a", batch_size=1, local_cache=path),
        "ArrayRecordSource got local_cache=",
    ),
    "load_images": (data.load_images, "load_images() got path="),
}
COMMANDS: dict[str, tuple[str, str]] = {
    "index from": ("index --write out.tfrecord --from PATH", "argument --from: got path="),
    "cache show": ("cache show PATH", "PATH="),
    "cache remove": ("cache remove PATH", "PATH="),
    "cache build": ("cache build data_of_schemes:never PATH", "path="),
    "cache build files": ("cache build data_of_schemes:never c --files PATH", "files="),
    "train data": ("train --data PATH", "argument --data: got path="),
}
REFUSAL = "expected a path of this machine, without '{scheme}'. Copy the files here, or mount the storage as a folder."


def _scheme(path: Any) -> str:
    return str(path)[: str(path).index("/")]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder to work in, beside the module that the commands name."""
    (tmp_path / "data_of_schemes.py").write_text("def never():\n    raise AssertionError('the data was read')\n")
    np.savez(tmp_path / "x.npz", x=np.ones(2))
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


@pytest.mark.thinned
@pytest.mark.parametrize("path", PATHS.values(), ids=PATHS)
@pytest.mark.parametrize("way", WAYS)
def test_a_function_refuses_a_path_with_a_scheme(way: str, path: Any, folder: Path) -> None:
    before = sorted(folder.iterdir())
    call, named = WAYS[way]
    with pytest.raises(ValueError) as caught:
        call(path)
    assert str(caught.value).startswith(f"{named}{str(path)!r}, ")
    assert str(caught.value).endswith(REFUSAL.format(scheme=_scheme(path)))
    assert sorted(folder.iterdir()) == before


@pytest.mark.thinned
@pytest.mark.parametrize("path", PATHS.values(), ids=PATHS)
@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_refuses_a_path_with_a_scheme(
    command: str, path: Any, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = sorted(folder.iterdir())
    words, named = COMMANDS[command]
    try:
        assert main(words.replace("PATH", str(path), 1).split(" ")) == 1
    except SystemExit as exited:
        assert exited.code == 2
    err = capsys.readouterr().err
    assert f"{named}{str(path)!r}, {REFUSAL.format(scheme=_scheme(path))}" in err
    assert err.count("\n") == 1
    assert {each.name for each in folder.iterdir()} - {"__pycache__"} == {each.name for each in before}


# What only TensorFlow opens: these may have its schemes.
OF_TENSORFLOW: dict[str, tuple[Callable[[Any], Any], str]] = {
    "checkpoint_dir": (lambda path: staging.StagingSession(checkpoint_dir=path), "StagingSession got checkpoint_dir="),
    "summary_dir": (lambda path: staging.StagingSession(summary_dir=path), "StagingSession got summary_dir="),
    "output_dir": (lambda path: staging.StagingSummaryHook(output_dir=path), "StagingSummaryHook got output_dir="),
}
UNKNOWN = (
    "expected a path without a scheme, or with one that this TensorFlow opens (file:, gs:, ram:). Import the package "
    "that adds '{scheme}' to TensorFlow first, or mount the storage as a folder."
)
ONE_SLASH = "two slashes after '{scheme}'. Pass a string, because pathlib removes one."
REFUSED: dict[str, tuple[Any, str]] = {
    **{name: (path, UNKNOWN) for name, path in PATHS.items() if name not in ("gs", "file", "glob")},
    "case": ("GS://bucket/x", UNKNOWN),
    "pathlib gs": (Path("gs://bucket/x"), f"expected {ONE_SLASH}"),
    "one slash": ("ram:/x", f"expected {ONE_SLASH}"),
}


@pytest.mark.parametrize(("path", "refusal"), REFUSED.values(), ids=REFUSED)
@pytest.mark.parametrize("way", OF_TENSORFLOW)
def test_a_path_that_tensorflow_does_not_open_is_refused(way: str, path: Any, refusal: str, folder: Path) -> None:
    before = sorted(folder.iterdir())
    call, named = OF_TENSORFLOW[way]
    with pytest.raises(ValueError) as caught:
        call(path)
    assert str(caught.value) == f"{named}{str(path)!r}, {refusal.format(scheme=_scheme(path))}"
    assert sorted(folder.iterdir()) == before


@pytest.mark.parametrize("command", ["train --logdir PATH"])
def test_a_command_refuses_a_path_that_tensorflow_does_not_open(
    command: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(command.replace("PATH", "s3://bucket/x").split()) == 1
    *progress, line = capsys.readouterr().err.splitlines()
    assert line.startswith(f"staging-tf1 {command.split()[0]}: ")
    assert line.endswith(f"='s3://bucket/x', {UNKNOWN.format(scheme='s3:')}")
    assert "Traceback" not in "".join(progress)


@pytest.mark.parametrize("scheme", ["ram", "file"])
def test_checkpoints_in_a_file_system_of_tensorflow_are_saved_and_restored(scheme: str, folder: Path) -> None:
    steps = []
    for _ in range(2):
        with tf.Graph().as_default():
            step = tf.assign_add(tf.train.get_or_create_global_step(), 1)
            with staging.StagingSession(checkpoint_dir=f"{scheme}://{folder}/run") as sess:
                steps.append(int(sess.run(step)))
    assert steps == [1, 2]


RECORDS: dict[str, tuple[Callable[[Any], Any], str]] = {
    "TFRecordSource": (lambda path: sources.TFRecordSource(path, batch_size=1), "TFRecordSource got files="),
    "ArrayRecordSource": (lambda path: sources.ArrayRecordSource([path], batch_size=1), "ArrayRecordSource got files="),
    "write_tfrecords": (lambda path: sources.write_tfrecords([b""], path), "write_tfrecords got out="),
    "write_array_records": (lambda path: sources.write_array_records([b""], path), "write_array_records got out="),
}


@pytest.mark.parametrize("way", RECORDS)
def test_the_url_of_a_record_file_has_two_slashes(way: str, folder: Path) -> None:
    before = sorted(folder.iterdir())
    call, named = RECORDS[way]
    with pytest.raises(ValueError) as caught:
        call(Path("s3://bucket/x"))
    assert str(caught.value) == f"{named}'s3:/bucket/x', expected {ONE_SLASH.format(scheme='s3:')}"
    assert sorted(folder.iterdir()) == before


@pytest.mark.parametrize("path", ["./s3:/x", "C:/x", "a/b://c", "12:/x", "a b:/x", ":/x", "s3:x"])
def test_other_paths_with_a_colon_stay_local(path: str, folder: Path) -> None:
    source = sources.cached([1, 2], path, batch_size=2, epochs=1)
    assert source.batch(0).tolist() == [1, 2]
    assert (folder / path).is_dir()


def test_the_folder_of_indexes_is_local(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STAGING_TF1_CACHE", "s3://bucket/x")
    sources.write_tfrecords([b"a"], "a.tfrecord")
    with pytest.raises(ValueError) as caught:
        sources.TFRecordSource("a.tfrecord", batch_size=1).batch(0)
    assert str(caught.value).startswith("the environment got STAGING_TF1_CACHE='s3://bucket/x', ")
