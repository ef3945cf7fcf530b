"""Data that use the cache that is built from them: an error instead of a wait without an end."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from staging_tf1.errors import RecordFileError
from staging_tf1.sources import CachedSource, cached
from staging_tf1.sources.columns import lock

MESSAGE = (
    r"^the data of the cache '.*outer' uses this cache while it is built from them, so both would wait for ever\. Read "
    r"the original data there, or give the inner cache another path\.$"
)
CHILD = """
import sys
from staging_tf1.sources import cached
from staging_tf1.sources.columns import lock
lock._STUCK_SECS = 1.0
try:
    cached([1, 2], sys.argv[1], batch_size=1)
except Exception as error:
    print(error)
"""


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


def in_a_thread(path: Path) -> Iterator[int]:
    errors: list[BaseException] = []

    def run() -> None:
        try:
            use(path)
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    raise errors[0]
    yield 1


def in_a_process(path: Path) -> Iterator[int]:
    done = subprocess.run([sys.executable, "-c", CHILD, str(path)], capture_output=True, text=True, check=True)
    raise RecordFileError(done.stdout.rstrip("\n"))
    yield 1


def in_a_process_of_a_process(path: Path) -> Iterator[int]:
    again = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {CHILD!r}, sys.argv[1]])"
    done = subprocess.run([sys.executable, "-c", again, str(path)], capture_output=True, text=True, check=True)
    raise RecordFileError(done.stdout.rstrip("\n"))
    yield 1


def in_a_thread_through_another_cache(path: Path) -> Iterator[int]:
    def inner() -> Iterator[int]:
        yield from in_a_thread(path)

    cached(inner, path.with_name("inner"), batch_size=1)
    yield 1


class InAnItem:
    """The threads of `threads=` read it."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __len__(self) -> int:
        return 100

    def __getitem__(self, index: int) -> int:
        if index > 50:
            use(self.path)
        return index


WAYS: list[Callable[[Path], Iterator[int]]] = [
    in_the_generator,
    after_a_record,
    through_another_cache,
    through_a_link,
    in_a_thread,
    in_a_process,
    in_a_process_of_a_process,
    in_a_thread_through_another_cache,
]


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lock, "_STUCK_SECS", 1.0)


@pytest.mark.timeout(120)
@pytest.mark.parametrize("way", WAYS)
def test_data_that_use_their_own_cache_are_named(way: Callable[[Path], Iterator[int]], tmp_path: Path) -> None:
    path = tmp_path / "outer"
    with pytest.raises(RecordFileError, match=MESSAGE):
        cached(lambda: way(path), path, batch_size=1)
    assert not path.exists()
    # Nothing is left that the next one would wait for.
    assert cached([1, 2, 3], path, batch_size=1).num_records == 3


@pytest.mark.timeout(120)
@pytest.mark.parametrize("threads", [1, 3])
def test_items_that_use_their_own_cache_are_named(threads: int, tmp_path: Path) -> None:
    path = tmp_path / "outer"
    with pytest.raises(RecordFileError, match=MESSAGE):
        cached(InAnItem(path), path, batch_size=1, threads=threads)


def test_a_source_of_the_old_cache_may_be_the_data_of_the_new_one(tmp_path: Path) -> None:
    path = tmp_path / "outer"
    old = cached([1, 2, 3], path, batch_size=1, epochs=1)
    cached(old, path, batch_size=1, version=2)
    assert CachedSource(path, batch_size=3).batch(0).tolist() == [1, 2, 3]


@pytest.mark.timeout(120)
def test_threads_that_ran_before_wait_for_a_slow_record(tmp_path: Path) -> None:
    path, began, waited, got = tmp_path / "outer", threading.Event(), threading.Event(), list[int]()

    def slow() -> Iterator[int]:
        began.set()
        # Longer than a build may be stuck.
        waited.wait(2.0)
        yield from (1, 2)

    def wait() -> None:
        began.wait()
        got.append(cached([1, 2], path, batch_size=1).num_records)

    thread = threading.Thread(target=wait)
    thread.start()
    cached(slow, path, batch_size=1)
    thread.join()
    assert got == [2]


@pytest.mark.timeout(120)
def test_processes_that_ran_before_wait_for_a_slow_record(tmp_path: Path) -> None:
    path = tmp_path / "outer"
    words = [sys.executable, "-c", "input()\n" + CHILD, str(path)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:

        def slow() -> Iterator[int]:
            assert child.stdin is not None
            child.stdin.write("\n")
            child.stdin.flush()
            threading.Event().wait(4.0)
            yield from (1, 2)

        cached(slow, path, batch_size=1)
        out, _ = child.communicate()
    assert out == ""
