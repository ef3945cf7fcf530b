"""Readers and ordered delivery, without a session: several threads take from one source and deliver in order."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from pipelines import Numbers

from staging_tf1.feed.readers import IndexReader, Reader, RotationReader, StreamReader
from staging_tf1.feed.source_errors import SkipRule
from staging_tf1.feed.threads import Rotation, Sequencer, Stopped
from staging_tf1.sources import GeneratorSource, StreamSource

LIMIT_SECS = 200.0
NONE, KEYS = SkipRule(), SkipRule((KeyError,))


def in_threads(count: int, work: Callable[[int], None]) -> None:
    """Run `work(0)`, `work(1)`... concurrently, and raise the exception of any of them."""
    begin, errors = threading.Barrier(count), []

    def guarded(number: int) -> None:
        try:
            begin.wait(LIMIT_SECS)
            work(number)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LIMIT_SECS)
    if errors:
        raise errors[0]


def taken(reader: Reader, threads: int = 1) -> list[tuple[int, int | None]]:
    """Return (number, id) of every batch of `reader`; the id of an error in place of a batch is None."""
    found: list[tuple[int, int | None]] = []

    def take(_: int) -> None:
        while (numbered := reader.take()) is not None:
            found.append((numbered.number, None if numbered.error else int(numbered.batch["id"][0])))

    in_threads(threads, take)
    return found


def failing(*bad: int) -> Callable[[int, Any], Any]:
    def trouble(number: int, batch: Any) -> Any:
        if number in bad:
            raise KeyError(number)
        return batch

    return trouble


@pytest.mark.parametrize("threads", [1, 4])
@pytest.mark.parametrize("start", [0, 3, 50, 51])
@pytest.mark.parametrize("kind", ["index", "stream"])
def test_threads_that_share_a_reader_get_each_batch_once(kind: str, start: int, threads: int) -> None:
    source = Numbers(50)
    stream = GeneratorSource(lambda: map(source.batch, range(50)), spec=source.spec, resume="skip")
    if kind == "stream" and start > 50:
        return  # a generator that got shorter is an error; see test_generator.py
    reader = IndexReader(source, start) if kind == "index" else StreamReader(stream, NONE, start)
    found = taken(reader, threads)
    assert sorted(found) == [(number, number) for number in range(start, 50)]
    assert reader.take() is None, "the end stays the end"


@pytest.mark.parametrize("threads", [1, 4])
def test_an_error_keeps_its_number(threads: int) -> None:
    found = dict(taken(IndexReader(Numbers(10, failing(3, 7))), threads))
    assert found == {number: None if number in (3, 7) else number for number in range(10)}


def test_an_error_names_its_batch() -> None:
    reader = IndexReader(Numbers(10, failing(3)), 3)
    numbered = reader.take()
    assert numbered is not None and numbered.error.__notes__ == ["raised while the source made batch 3"]
    assert reader.take().number == 4, "the others can still be taken"  # type: ignore[union-attr]


def test_a_generator_ends_with_the_error_that_was_ignored() -> None:
    assert taken(StreamReader(Numbers(10, failing(3)).stream(), KEYS)) == [(0, 0), (1, 1), (2, 2), (3, None)]


class _Buffer(StreamSource):
    """Yield the same array again and again, with a different number in it."""

    spec = Numbers(1).spec

    def resolve_spec(self) -> Any:
        return self.spec

    def batches(self, start: int = 0) -> Iterator[Any]:
        buffer = np.zeros(1, np.int64)
        for number in range(start, 10):
            buffer[0] = number
            yield {"id": buffer, "double": buffer}


def test_what_a_stream_keeps_is_copied_before_it_goes_on() -> None:
    reader = StreamReader(_Buffer(), NONE)
    batches = [reader.take() for _ in range(10)]
    assert [int(each.batch["id"][0]) for each in batches if each is not None] == list(range(10))


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("towers, count", [(1, 5), (2, 10), (3, 10)])
def test_towers_that_share_a_stream_get_every_nth_batch(towers: int, count: int, threads: int) -> None:
    stream, rotation = StreamReader(Numbers(count).stream(), NONE), Rotation(towers)
    readers = [RotationReader(stream, rotation, n, 0, lambda number, batch: None, NONE) for n in range(towers)]
    found: list[list[tuple[int, int | None]]] = [[] for _ in readers]

    def take(thread: int) -> None:
        tower = thread % towers
        while (numbered := readers[tower].take()) is not None:
            found[tower].append((numbered.number, int(numbered.batch["id"][0])))

    in_threads(towers * threads, take)
    for tower, each in enumerate(found):
        assert sorted(each) == list(enumerate(range(tower, count, towers)))


def test_a_bad_batch_costs_a_tower_no_turn() -> None:
    """A bad batch is skipped in its turn, whether the source or the check raises."""

    def check(number: int, batch: Any) -> None:
        if batch["id"][0] in (4, 5):
            raise KeyError("not as declared")

    stream, rotation = StreamReader(Numbers(10).stream(), KEYS), Rotation(2)
    readers = [RotationReader(stream, rotation, tower, 0, check, KEYS) for tower in range(2)]
    skipped: list[BaseException] = []
    found = []
    while all(numbered := [reader.take(skipped.append) for reader in readers]):
        found.append([int(each.batch["id"][0]) for each in numbered if each is not None])
    assert found == [[0, 1], [2, 3], [6, 7], [8, 9]]
    assert len(skipped) == 2


@pytest.mark.parametrize("start", [0, 5])
def test_the_sequencer_lets_threads_through_in_order(start: int) -> None:
    sequencer, order = Sequencer(start), []

    def deliver(thread: int) -> None:
        for number in range(start + thread, start + 40, 4):
            with sequencer.at(number):
                order.append(number)

    in_threads(4, deliver)
    assert order == list(range(start, start + 40))


def test_nobody_follows_a_batch_that_failed() -> None:
    sequencer, follower = Sequencer(), []

    def deliver(thread: int) -> None:
        if thread == 0:
            with pytest.raises(KeyError), sequencer.at(0):
                raise KeyError
            sequencer.stop()
        else:
            with pytest.raises(Stopped), sequencer.at(1):
                follower.append(1)

    in_threads(2, deliver)
    assert follower == []
