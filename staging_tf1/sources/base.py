"""Base classes: `Source` with random access, `StreamSource` read in order.

Order and exact resume rest on `Source`: batch `k` is a pure function of `k`. Several threads can therefore make batches
at once, a shard reads only its own records, and a restarted run continues at any batch without replaying earlier ones.
"""

from __future__ import annotations

import abc
import itertools
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from staging_tf1 import arguments
from staging_tf1.spec import bytes_per_batch


class _OnRecords:
    """A method that only sources with numbered records have. On other sources it raises and says so."""

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, source: Any, kind: type) -> Any:
        raise AttributeError(
            f"{kind.__name__} has no {self._name}(): it delivers batches, which cannot be divided into records again. "
            f"Call {self._name}() on a source with numbered records (RecordSource), or do the same in the pipeline "
            f"before it makes batches."
        )


class _Batched:
    """What both kinds of sources have in common."""

    # A __getattr__ would also replace the message of an AttributeError in a property of the user's source.
    if not TYPE_CHECKING:
        # Without it, `in` would read all batches, of an endless source forever.
        __contains__ = None
        take, skip, select, split, without, pad, ragged, packed = (_OnRecords() for _ in range(8))
        by_length, weighted, balanced, with_options = (_OnRecords() for _ in range(4))

    def __bool__(self) -> bool:
        # Otherwise `if source` would use its length.
        return True

    @property
    def element_spec(self) -> Any:
        """The `spec`, by its name in `tf.data`: that of a batch."""
        return self.spec  # type: ignore[attr-defined]

    def __iter__(self) -> Iterator[Any]:
        """Iterate over all batches, which may be endless."""
        return self.batches()  # type: ignore[attr-defined, no-any-return]


class Source(_Batched, abc.ABC):
    """Batches with random access, numbered from 0.

    To write your own source, subclass this class, or `RecordSource` if your records have numbers. Test it with
    `assert_resumes_everywhere`, `assert_deterministic`, `assert_shards_partition` and `assert_works_in_processes` of
    `staging_tf1.testing`.

    Attributes:
      gives_away: True if the arrays that `batch` returns are created for the call and never used again. Such arrays are
        fed without a copy if they start on a 64-byte boundary (see `aligned_empty`). Set it to False if the source
        keeps or reuses its arrays. They are then copied before they are fed.
      features: the `features` argument of `tf.io.parse_example` with which the graph parses batches of serialized
        records, or None.
      seed: what its random numbers are made from, from 0 to 2**63 - 1; None if there is none. A `map_fn` that takes a
        seed needs it.
    """

    gives_away: bool = True
    features: Any = None
    seed: int | None = None

    @property
    @abc.abstractmethod
    def spec(self) -> Any:
        """A nest of `ArraySpec`. The batch dimension is `batch_size`, or None if a batch can be partial."""

    @property
    @abc.abstractmethod
    def batch_size(self) -> int:
        """Records in a full batch."""

    @property
    @abc.abstractmethod
    def num_records(self) -> int | None:
        """Records of this shard in one epoch. None if endless or unknown."""

    @property
    @abc.abstractmethod
    def batches_per_epoch(self) -> int | None:
        """Batches in one epoch. None if endless, unknown, or if batches cross epochs."""

    @property
    @abc.abstractmethod
    def num_batches(self) -> int | None:
        """Batches over all epochs. None if endless."""

    @abc.abstractmethod
    def batch(self, index: int) -> Any:
        """Return batch `index`, counted from 0 over all epochs.

        A batch is a nest of numpy arrays like `spec`. The result depends on `index` only, not on earlier calls or the
        calling thread. Several feed threads call this method at the same time.

        Raises:
          IndexError: `index` is negative, or not below `num_batches`.
        """

    @abc.abstractmethod
    def shard(self, index: int, count: int) -> Source:
        """Return the source of every `count`-th record, starting at `index`.

        Shards are disjoint and complete, and their sizes differ by at most one record. A shard reads only its own
        records and fills its batches from them.
        """

    # Whether a batch may be left out, for which `is_left_out` is then asked.
    leaves_out: bool = False

    # Whether the source drew its own seed. A restored run then uses the seed in the checkpoint.
    seed_was_drawn: bool = False

    def with_seed(self, seed: int) -> Source:
        """Return this source with another seed, from 0 to 2**63 - 1, or itself if nothing is random."""
        arguments.seed(type(self).__name__, seed)
        return self

    @abc.abstractmethod
    def fingerprint(self) -> dict[str, int | str]:
        """Return what determines the sequence of batches, with the seed, the number of records and the batch size.

        Checkpoints store the fingerprint. A restored run raises if it differs.
        """

    def batches(self, start: int = 0) -> Iterator[Any]:
        """Return an iterator over the batches from `start` on, except those that are left out.

        Raises:
          TypeError, ValueError: `start` is not a valid batch index.
        """
        start = arguments.batch_start(type(self).__name__, start)
        numbers = itertools.count(start) if self.num_batches is None else range(start, self.num_batches)
        return (self.batch(number) for number in numbers if not self.is_left_out(number))

    def is_left_out(self, index: int) -> bool:
        """Whether batch `index` has no record, because all of them are left out. No step gets such a batch."""
        return False

    @property
    def bytes_per_batch(self) -> int | None:
        """Bytes in a full batch. None for strings, and if a dimension other than the first is unknown."""
        return bytes_per_batch(self.spec, self.batch_size)


class StreamSource(_Batched, abc.ABC):
    """Batches that are read in order, by one thread at a time.

    Attributes:
      gives_away: as in `Source`. False by default, because generators often reuse their buffers.
      name: the name of the source, for messages.
      can_resume: whether `batches(start)` supports other values than 0.
      keeps_state: whether `state` and `restore` are implemented. Checkpoints then store the state, and a restored run
        reads no batch twice.
    """

    gives_away: bool = False
    name: str = "stream"
    features: Any = None
    can_resume: bool = False
    keeps_state: bool = False

    @property
    @abc.abstractmethod
    def spec(self) -> Any:
        """A nest of `ArraySpec`, or None while it is unknown (see `resolve_spec`)."""

    @abc.abstractmethod
    def resolve_spec(self) -> Any:
        """Return the spec. If it is unknown, read the first batch, which `batches` still delivers."""

    @abc.abstractmethod
    def batches(self, start: int = 0) -> Iterator[Any]:
        """Return a new iterator over the batches from `start` on.

        Each is a nest of numpy arrays like `spec`. If the iterator raises for a bad batch and can continue, the bad
        batch counts like any other.

        Raises:
          StagingError: the stream cannot be read again, or not from `start`.
        """

    def state(self, position: int) -> bytes:
        """Return the state of the stream after its first `position` batches.

        Called if `keeps_state` is True, when batch `position - 1` was delivered, by the thread that read it. Another
        thread may be reading the next batch.
        """
        raise NotImplementedError

    def restore(self, position: int, state: bytes) -> None:
        """Make `batches(position)` start from a result of `state(position)`, possibly from another process."""
        raise NotImplementedError

    @property
    def num_batches(self) -> int | None:
        """Always None. The length of a stream is unknown."""
        return None

    def fingerprint(self) -> dict[str, int | str]:
        """Return what checkpoints compare. For a stream, this is its class only."""
        return {"source": type(self).__name__}


def check_parsed(caller: str, source: Source) -> None:
    """Raise ValueError if the graph parses the records: the source has only their bytes."""
    if source.features is not None:
        raise ValueError(f"{caller} got {source!r} with features=, which the graph parses. Use parse_fn=.")
