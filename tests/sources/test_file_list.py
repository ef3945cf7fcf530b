"""A checkpoint knows which files its source reads: their names, their numbers of records and their order."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

import staging_tf1 as staging
from staging_tf1.errors import ResumeError
from staging_tf1.graph.acked import WINDOW, Acked
from staging_tf1.sources import (
    ArrayRecordSource,
    MapSource,
    RecordSource,
    TFRecordSource,
    concatenate,
    mix,
    write_array_records,
    write_tfrecords,
    zip_records,
)

pytestmark = pytest.mark.usefixtures("quick_graphs")

# Names, with how many records each file has.
Files = dict[str, int]
FILES: Files = {"a": 4, "b": 6, "c": 6}


def written(folder: Path, files: Files, write: Callable[..., Any] = write_tfrecords) -> list[str]:
    paths = []
    for name, count in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        write((b"%d" % n for n in range(count)), str(path))
        paths.append(str(path))
    return paths


def tfrecords(folder: Path, files: Files, **options: Any) -> RecordSource:
    return TFRecordSource(written(folder, files), batch_size=2, parse_fn=int, **options)


def array_records(folder: Path, files: Files, **options: Any) -> RecordSource:
    return ArrayRecordSource(written(folder, files, write_array_records), batch_size=2, parse_fn=int, **options)


def one_each(folder: Path, files: Files, **options: Any) -> list[RecordSource]:
    return [tfrecords(folder, {name: count}, **options) for name, count in files.items()]


def concatenated(folder: Path, files: Files, **options: Any) -> RecordSource:
    return concatenate(one_each(folder, files, **options))


def nested(folder: Path, files: Files, **options: Any) -> RecordSource:
    first, *others = one_each(folder, files, **options)
    return concatenate([first, concatenate(others)]) if others else first


def mixed(folder: Path, files: Files, **options: Any) -> RecordSource:
    return mix(one_each(folder, files, **options), seed=1)


def zipped(folder: Path, files: Files, **options: Any) -> RecordSource:
    whole = tfrecords(folder, files, **options)
    return zip_records({"x": whole, "y": whole})


def some(folder: Path, files: Files, **options: Any) -> RecordSource:
    return tfrecords(folder, files, **options).take(9)


def paths_of(folder: Path, files: Files) -> list[str]:
    return [str(folder / f"{name}-{n}") for name, count in files.items() for n in range(count)]


def listed(folder: Path, files: Files, **options: Any) -> RecordSource:
    return MapSource(paths_of(folder, files), load=len, batch_size=2, **options)


def paired(folder: Path, files: Files, **options: Any) -> RecordSource:
    pairs = [(Path(path), 1) for path in paths_of(folder, files)]
    return MapSource(pairs, load=lambda pair: pair[1], batch_size=2, **options)


Make = Callable[..., RecordSource]
SOURCES: dict[str, Make] = {
    "TFRecord": tfrecords,
    "ArrayRecord": array_records,
    "concatenate": concatenated,
    "concatenate, nested": nested,
    "mix": mixed,
    "zip": zipped,
    "take": some,
    "paths": listed,
    "pairs": paired,
}
# What is changed, and what the error says of it.
CHANGES: dict[str, tuple[Files, str]] = {
    "order": ({"b": 6, "a": 4, "c": 6}, "the files are the same in another order: pass them sorted"),
    "order of equal sizes": ({"a": 4, "c": 6, "b": 6}, "the files are the same in another order: pass them sorted"),
    "counts, with the same sum": ({"a": 5, "b": 5, "c": 6}, "files have other numbers of records"),
    "a name": ({"a": 4, "b": 6, "d": 6}, "files have other names"),
    "one file less": ({"a": 4, "b": 12}, "the number of files was 3, is 2"),
}


def resumed(before: RecordSource, now: RecordSource, folder: Path, **staged: Any) -> Any:
    """Restore a checkpoint of `before` with `now`. Return the fingerprint that a checkpoint has then."""
    return restored(folder, now, [3], json.dumps(before.fingerprint()), **staged)


def restored(folder: Path, source: Any, position: Sequence[int], text: str, **staged: Any) -> Any:
    folder.mkdir(parents=True, exist_ok=True)
    with tf.Graph().as_default(), tf.Session() as sess:
        made = (
            tf.get_variable("staged/position", initializer=np.array(position, np.int64), use_resource=True),
            tf.get_variable("staged/fingerprint", initializer=text, use_resource=True),
            tf.train.get_or_create_global_step(),
        )
        sess.run(tf.global_variables_initializer())
        tf.train.Saver(made).save(sess, str(folder / "model.ckpt"), 3)
    with tf.Graph().as_default():
        batch = staging.staged(source, name="staged", **staged)
        step = tf.assign_add(tf.train.get_or_create_global_step(), 1)
        with staging.StagingSession(
            checkpoint_dir=str(folder), save_checkpoint_steps=1, log_step_count_steps=0
        ) as sess:
            sess.run([batch, step])
    latest = tf.train.latest_checkpoint(str(folder))
    return json.loads(tf.train.load_variable(latest, "staged/fingerprint"))


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("name", SOURCES)
def test_other_files_have_another_fingerprint(tmp_path: Path, name: str, change: str) -> None:
    make = SOURCES[name]
    files, _ = CHANGES[change]
    before, now = make(tmp_path / "before", FILES), make(tmp_path / "now", files)
    assert before.fingerprint()["file_list"] != now.fingerprint()["file_list"]
    for other in (before.shard(1, 2), before.with_options(batch_size=3, shuffle=True, seed=1), before.pad()):
        assert other.fingerprint()["file_list"] == before.fingerprint()["file_list"]


@pytest.mark.parametrize("name", SOURCES)
def test_a_moved_folder_makes_no_difference(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    make = SOURCES[name]
    before = make(tmp_path / "before", FILES).fingerprint()
    assert before == make(tmp_path / "now" / "deeper", FILES).fingerprint()
    monkeypatch.chdir(tmp_path)
    assert before == make(Path("relative"), FILES).fingerprint()


# The other changes are told apart by their fingerprints, above.
@pytest.mark.slow_cases("order of equal sizes|a name|one file less")
@pytest.mark.parametrize("change", CHANGES)
def test_an_exact_resume_with_other_files_is_refused(tmp_path: Path, change: str) -> None:
    files, said = CHANGES[change]
    before, now = tfrecords(tmp_path / "1", FILES), tfrecords(tmp_path / "2", files)
    with pytest.raises(ResumeError) as caught:
        resumed(before, now, tmp_path / "run")
    assert f"in another order of batches: {said}. The saved position cannot be mapped" in str(caught.value)
    assert "resume='ignore' to continue at batch 3 of the new order anyway" in str(caught.value)
    assert resumed(before, now, tmp_path / "ignored", resume="ignore") == now.fingerprint()


# What differs beside the files: options of the source, and of `staged()`.
OTHER_LAYOUTS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "batch size": (dict(batch_size=1), {}),
    "towers": ({}, dict(devices=["/cpu:0"] * 3)),
    "dynamic shares": ({}, dict(share="dynamic")),
}


@pytest.mark.parametrize("layout", OTHER_LAYOUTS)
def test_the_files_are_compared_under_another_layout_too(tmp_path: Path, layout: str) -> None:
    files, said = CHANGES["order"]
    options, staged = OTHER_LAYOUTS[layout]
    before = tfrecords(tmp_path / "1", FILES)
    same, other = before.with_options(**options), tfrecords(tmp_path / "2", files).with_options(**options)
    saved, position = before.fingerprint(), [3]
    if layout == "dynamic shares":
        saved, position = {**saved, "share": "dynamic"}, Acked.first(3, WINDOW).cells.tolist()
    found = restored(tmp_path / "run", same, position, json.dumps(saved), **staged)
    assert found["file_list"] == same.fingerprint()["file_list"]
    with pytest.raises(ResumeError, match=said):
        restored(tmp_path / "refused", other, position, json.dumps(saved), **staged)


# Names


@pytest.mark.parametrize(
    ("first", "other", "same"),
    [
        (["x/a", "x/b"], ["y/z/a", "y/z/b"], True),
        (["a", "a"], ["x/a", "x/a"], True),
        (["a", "b"], ["a", "a"], False),
        (["x/a", "y/a"], ["v/x/a", "v/y/a"], True),
        (["x/a", "y/a"], ["y/a", "x/a"], False),
        (["x/a", "y/a"], ["x/a", "x/a"], False),
        (["a", "x/a"], ["/v/a", "/v/x/a"], True),
        (["./a", "a"], ["a", "a"], True),
        (["x\ny"], ["x", "y"], False),
        (["\udcff"], ["\udcfe"], False),
    ],
)
def test_names(first: list[str], other: list[str], same: bool) -> None:
    found, wanted = (MapSource(paths, load=len, batch_size=1).fingerprint()["file_list"] for paths in (first, other))
    assert (found == wanted) is same


def test_a_glob_is_sorted_and_so_the_same_everywhere(tmp_path: Path) -> None:
    written(tmp_path, FILES)
    paths = [str(tmp_path / name) for name in FILES]
    found = TFRecordSource(str(tmp_path / "?"), batch_size=2).fingerprint()
    assert found == TFRecordSource(paths, batch_size=2).fingerprint()
    assert found != TFRecordSource(paths[::-1], batch_size=2).fingerprint()
    os.rename(paths[0], str(tmp_path / "d"))
    assert found != TFRecordSource(str(tmp_path / "?"), batch_size=2).fingerprint()
