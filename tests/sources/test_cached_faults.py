"""sources.cached when its data changes or fails, and when builders are killed.

STAGING_TF1_CACHE_KILLS sets the number of random kills, and STAGING_TF1_KILL_SEED their seed.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from processes import RunPython
from slow import with_slow

from staging_tf1.errors import RecordFileError
from staging_tf1.sources import CachedSource, cached
from staging_tf1.sources.columns.folder import remove
from staging_tf1.sources.columns.manifest import FORMAT_VERSION

CHILD = Path(__file__).parents[1] / "support" / "cached_child.py"
KILLS = int(os.environ.get("STAGING_TF1_CACHE_KILLS", "5"))
SEED = int(os.environ.get("STAGING_TF1_KILL_SEED", "7"))
# A fork must not have threads, such as those of numpy's linear algebra.
ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1"}


def values(path: Path, count: int = 5) -> Any:
    return CachedSource(path, batch_size=count).batch(0).tolist()


def last_line(done: Any) -> Any:
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


# Data that changes.


def counting(count: int) -> Any:
    def data() -> Iterator[int]:
        counting.calls += 1  # type: ignore[attr-defined]
        yield from range(count)

    return data


@pytest.fixture(autouse=True)
def _no_calls() -> None:
    counting.calls = 0  # type: ignore[attr-defined]


CHANGES: dict[str, tuple[Any, dict[str, Any], Any, dict[str, Any], str]] = {
    "version": (np.arange(5), {"version": "a"}, np.arange(5), {"version": "b"}, "version: a in the cache, b now"),
    "no version": (np.arange(5), {"version": 1}, np.arange(5), {}, "version: 1 in the cache, none now"),
    "length": (np.arange(5), {}, np.arange(6), {}, "elements: 5 in the cache, 6 now"),
    "dtype": (np.arange(5), {}, np.arange(5.0), {}, r"spec: record: int64 \[\] in the cache, record: float64 \[\] now"),
    "map-style": ([1, 2], {}, [1, 2, 3], {}, "elements: 2 in the cache, 3 now"),
    "limit": (np.arange(5), {"limit": 2}, np.arange(5), {"limit": 3}, "limit: 2 in the cache, 3 now"),
    "batched": ([[1, 2]], {"batched": True}, [[1, 2]], {}, "batched: True in the cache, False now"),
    "several": (np.arange(5), {"version": 1}, np.arange(6), {}, "version: .*; elements: 5 in the cache, 6 now"),
}


@pytest.mark.parametrize("kind", CHANGES)
def test_a_change_is_named_and_the_cache_built_again(
    kind: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    before, had, after, has, message = CHANGES[kind]
    path = tmp_path / "cache"
    was = cached(before, path, batch_size=1, **had).num_records
    with pytest.raises(RecordFileError, match=rf"is out of date: {message}\. Build it again with if_changed='rebuild'"):
        cached(after, path, batch_size=1, if_changed="error", **has)
    assert CachedSource(path, batch_size=1).num_records == was
    with caplog.at_level("WARNING"):
        made = cached(after, path, batch_size=1, **has)
    assert re.search(f"building the cache .* again: {message}", caplog.text)
    assert made.num_records == CachedSource(path, batch_size=1).num_records
    cached(after, path, batch_size=1, if_changed="error", **has)


def test_a_version_is_a_string_or_a_number_alike(tmp_path: Path) -> None:
    for version in ("3", 3, np.int64(3)):
        cached(counting(5), tmp_path / "cache", batch_size=1, version=version)
    assert counting.calls == 1  # type: ignore[attr-defined]


def test_files_that_change_are_named(tmp_path: Path) -> None:
    path, files = tmp_path / "cache", [tmp_path / f"{name}.csv" for name in "abc"]
    for file in files:
        file.write_text("1")
    options: dict[str, Any] = dict(batch_size=1, files=tmp_path / "*.csv", if_changed="error")
    for _ in range(2):
        cached(counting(5), path, **options)
    assert counting.calls == 1  # type: ignore[attr-defined]
    files[0].write_text("22")
    os.utime(files[1], ns=(1, 1))
    files[2].rename(tmp_path / "d.csv")
    message = (
        r"'.*a\.csv': 1 bytes when the cache was built, 2 now; file '.*b\.csv': modified after the cache was built; "
        r"file '.*c\.csv': not listed any more; file '.*d\.csv': new\."
    )
    with pytest.raises(RecordFileError, match=message):
        cached(counting(5), path, **options)
    with pytest.raises(RecordFileError, match=r"no file matches '.*x\*\.csv'"):
        cached(counting(5), path, batch_size=1, files=str(tmp_path / "x*.csv"))


def test_a_cache_of_another_version_is_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "cache"
    cached(np.arange(5), path, batch_size=1)
    manifest = json.loads((path / "manifest.json").read_text())
    (path / "manifest.json").write_text(json.dumps({"format": manifest["format"], "version": 99}))
    message = f"format version 99, and this release reads version {FORMAT_VERSION}"
    with pytest.raises(RecordFileError, match=f"is a cache of {message}"):
        CachedSource(path, batch_size=1)
    with pytest.raises(RecordFileError, match=f"is out of date: {message}"):
        cached(np.arange(5), path, batch_size=1, if_changed="error")
    with caplog.at_level("WARNING"):
        assert cached(np.arange(5), path, batch_size=5).batch(0).tolist() == [0, 1, 2, 3, 4]
    assert message in caplog.text


def test_a_version_that_no_terminal_can_show_is_escaped(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    for version in ("a", "\ud800"):
        cached(np.arange(4), tmp_path / "cache", batch_size=2, version=version, progress=False)
    assert "version: a in the cache, '\\ud800' now" in caplog.text


# Data that fails.


def test_a_generator_that_fails_halfway_leaves_what_was_there(tmp_path: Path) -> None:
    def failing() -> Iterator[int]:
        yield 1
        raise KeyError("halfway")

    path = tmp_path / "cache"
    for had in ([], [0, 1, 2, 3, 4]):
        with pytest.raises(KeyError, match="halfway") as caught:
            cached(failing, path, batch_size=1)
        assert caught.traceback[-1].name == "failing"
        assert os.listdir(tmp_path) == (["cache"] if had else [])
        cached(np.arange(5), path, batch_size=1)
        assert values(path) == [0, 1, 2, 3, 4]


class Flaky:
    """A dataset whose record 500 cannot be read at first."""

    def __init__(self, count: int = 1000) -> None:
        self.count, self.read, self.works = count, list[int](), False

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, i: int) -> Any:
        if i == 500 and not self.works:
            raise OSError("the network is down")
        self.read.append(i)
        return {"x": np.full(3, i), "text": f"record {i}", "tokens": np.arange(i % 3)}


@pytest.mark.parametrize("threads", [1, 4])
def test_random_access_continues_where_it_failed(tmp_path: Path, threads: int) -> None:
    data, path = Flaky(), tmp_path / "cache"
    with pytest.raises(OSError, match="the network is down"):
        cached(data, path, batch_size=1, threads=threads)
    assert not path.exists()
    data.works, first = True, len(data.read)
    source = cached(data, path, batch_size=1000, threads=threads).pad()
    again = set(data.read[first:]) - {0}
    assert min(again) >= 256 and max(again) == 999, "what came before the failing block is not read again"
    batch = source.batch(0)
    assert batch["x"][:, 1].tolist() == list(range(1000))
    assert batch["text"].tolist() == [b"record %d" % i for i in range(1000)]
    assert batch["tokens"].tolist() == [[0, 1] if i % 3 == 2 else [0, 0] for i in range(1000)]
    assert os.listdir(tmp_path) == ["cache"]


class Broken(Flaky):
    """A dataset whose record 500 raises some exception, and whose code is then changed."""

    error: type[BaseException] = ValueError

    def __getitem__(self, i: int) -> Any:
        if i == 500 and not self.works:
            raise self.error("a bug")
        return i * 10 if self.works else i


def test_records_of_code_that_failed_are_not_kept(tmp_path: Path) -> None:
    data, path = Broken(), tmp_path / "cache"
    with pytest.raises(ValueError, match="a bug"):
        cached(data, path, batch_size=1)
    assert os.listdir(tmp_path) == []
    data.works = True
    assert cached(data, path, batch_size=1000).batch(0).tolist() == list(range(0, 10_000, 10))


def test_a_build_that_was_interrupted_says_that_it_continues(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    data, path = Broken(), tmp_path / "cache"
    data.error = KeyboardInterrupt
    for remains in (True, False):
        data.works = False
        with pytest.raises(KeyboardInterrupt):
            cached(data, path, batch_size=1)
        if not remains:
            assert remove(str(path)) is None and os.listdir(tmp_path) == []
        data.works = True
        with caplog.at_level("WARNING"):
            has_old_records = cached(data, path, batch_size=1000).batch(0)[1] == 1
        message = "continuing the cache .* after 256 records .* run staging-tf1 cache remove .*cache"
        assert has_old_records == remains == bool(re.search(message, caplog.text))
        remove(str(path))
        caplog.clear()


def test_other_data_does_not_continue_what_was_begun(tmp_path: Path) -> None:
    data, path = Flaky(), tmp_path / "cache"
    with pytest.raises(OSError, match="the network is down"):
        cached(data, path, batch_size=1)
    data.works = True
    source = cached(data, path, batch_size=1, version=2)
    assert data.read.count(1) == 2
    assert source.num_records == 1000 and os.listdir(tmp_path) == ["cache"]


def test_a_first_build_is_not_continued_over_a_cache_that_came_meanwhile(tmp_path: Path) -> None:
    data, path = Flaky(), tmp_path / "cache"
    with pytest.raises(OSError, match="the network is down"):
        cached(data, path, batch_size=1)
    cached(np.arange(5), tmp_path / "other", batch_size=1)
    (tmp_path / "other").rename(path)
    data.works, open_now = True, CachedSource(path, batch_size=5)
    cached(data, path, batch_size=1)
    # Files of the same names would have replaced those of the cache that was there before its manifest was.
    assert data.read.count(1) == 2 and all("~" in file.name for file in path.glob("*.npy"))
    assert open_now.batch(0).tolist() == [0, 1, 2, 3, 4]


def test_what_was_begun_is_not_continued_if_its_files_are_short(tmp_path: Path) -> None:
    data, path = Flaky(), tmp_path / "cache"
    with pytest.raises(OSError, match="the network is down"):
        cached(data, path, batch_size=1)
    os.truncate(tmp_path / ".cache.building" / "002-x.npy", 5000)
    data.works = True
    assert cached(data, path, batch_size=1000).pad().batch(0)["x"][:, 0].tolist() == list(range(1000))


# Processes that die.


@pytest.mark.parametrize("streamed", ["", "1"], ids=["random access", "streamed"])
def test_a_kill_at_any_operation_leaves_a_whole_cache_or_none(
    streamed: str, tmp_path: Path, run_python: RunPython
) -> None:
    # With random access, progress is noted many times, always in the same way.
    step = (1 if with_slow() else 3) if streamed else (23 if with_slow() else 47)
    words = ("at_every_operation", tmp_path / "f" / "cache", streamed, step)
    found = last_line(run_python("-W", "ignore", CHILD, *words, env=ONE_THREAD))
    assert found["operations"] > 20 and {1, 2} <= set(found["seen"])


def test_a_kill_at_any_moment_leaves_a_whole_cache_or_none(tmp_path: Path, run_python: RunPython) -> None:
    print(f"STAGING_TF1_KILL_SEED={SEED}")
    path = tmp_path / "f" / "cache"
    done = run_python("-W", "ignore", CHILD, "at_random_records", path, KILLS, SEED, env=ONE_THREAD)
    continued = last_line(done)["continued"]
    # A few kills may all hit generators, or what comes before the first record.
    assert continued > 0 or KILLS < 20
    assert os.listdir(path.parent) == ["cache"]
