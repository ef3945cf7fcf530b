"""Data that use the cache that is built from them: an error, or a warning by those that wait."""

from __future__ import annotations

import logging
import os
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from queue import SimpleQueue

import pytest

from staging_tf1.errors import RecordFileError
from staging_tf1.sources import CachedSource, cached

MESSAGE = (
    r"^the data of the cache '.*outer' uses this cache while it is built from them, so both would wait for ever\. Read "
    r"the original data there, or give the inner cache another path\.$"
)
WAITING = (
    r"waiting for the cache .*outer: process {} on .* is building it \(started\)\. If its data use this cache, both"
)
CHILD = (
    "import sys; from staging_tf1 import sources; print(sources.cached([1, 2], sys.argv[1], batch_size=1).num_records)"
)


def use(path: Path) -> None:
    cached([1, 2], path, batch_size=1)


def in_the_generator(path: Path) -> Iterator[int]:
    use(path)
    yield 1


def after_a_record(path: Path) -> Iterator[int]:
    yield 1
    use(path)


def through_another_cache(path: Path) -> Iterator[int]:
    def inner() -> Iterator[int]:
        use(path)
        yield 1

    cached(inner, path.with_name("inner"), batch_size=1)
    yield 1


def through_a_link(path: Path) -> Iterator[int]:
    link = path.with_name("link")
    link.symlink_to(path.parent)
    use(link / path.name)
    yield 1


class InAnItem:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __len__(self) -> int:
        return 100

    def __getitem__(self, index: int) -> int:
        if index > 50:
            use(self.path)
        return index


WAYS: list[Callable[[Path], Iterator[int]]] = [in_the_generator, after_a_record, through_another_cache, through_a_link]


@pytest.mark.timeout(120)
@pytest.mark.parametrize("way", WAYS)
def test_data_that_use_their_own_cache_are_named(way: Callable[[Path], Iterator[int]], tmp_path: Path) -> None:
    path = tmp_path / "outer"
    with pytest.raises(RecordFileError, match=MESSAGE):
        cached(lambda: way(path), path, batch_size=1)
    assert not path.exists()
    # Nothing is left that the next one would wait for.
    assert cached([1, 2, 3], path, batch_size=1).num_records == 3


def test_items_that_use_their_own_cache_are_named(tmp_path: Path) -> None:
    path = tmp_path / "outer"
    with pytest.raises(RecordFileError, match=MESSAGE):
        cached(InAnItem(path), path, batch_size=1)


def test_a_source_of_the_old_cache_may_be_the_data_of_the_new_one(tmp_path: Path) -> None:
    path = tmp_path / "outer"
    old = cached([1, 2, 3], path, batch_size=1, epochs=1)
    cached(old, path, batch_size=1, version=2)
    assert CachedSource(path, batch_size=3).batch(0).tolist() == [1, 2, 3]


class Said(logging.Handler):
    """Waits for a warning."""

    def __init__(self) -> None:
        super().__init__()
        self.messages: SimpleQueue[str] = SimpleQueue()

    def emit(self, record: logging.LogRecord) -> None:
        self.messages.put(record.getMessage())


def test_a_thread_of_the_data_says_for_whom_it_waits(tmp_path: Path) -> None:
    path, got, said = tmp_path / "outer", list[int](), Said()
    thread = threading.Thread(target=lambda: got.append(cached([1, 2], path, batch_size=1).num_records))

    def data() -> Iterator[int]:
        thread.start()
        assert re.match(WAITING.format(os.getpid()), said.messages.get(timeout=60))
        yield 1

    logging.getLogger("absl").addHandler(said)
    try:
        cached(data, path, batch_size=1)
        thread.join()
    finally:
        logging.getLogger("absl").removeHandler(said)
    assert got == [2]


def test_a_process_of_the_data_says_for_whom_it_waits(tmp_path: Path) -> None:
    path, children = tmp_path / "outer", list[subprocess.Popen[str]]()

    def data() -> Iterator[int]:
        words = [sys.executable, "-c", CHILD, str(path)]
        child = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        children.append(child)
        assert child.stderr is not None
        assert re.search(WAITING.format(os.getpid()), child.stderr.readline())
        yield 1

    cached(data, path, batch_size=1)
    assert children[0].communicate()[0] == "2\n"
