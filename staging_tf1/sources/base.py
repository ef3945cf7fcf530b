"""The two protocols: a `Source` is read by number, a `StreamSource` only from front to back.

Everything that the package promises about order and resume comes from the first: batch `k` is a pure function
of `k`, so several threads can work on different batches, a shard can leave out what is not its own, and a
restarted run goes on at any number without replaying what came before.
"""

from __future__ import annotations

import abc
import itertools
import math
from collections.abc import Iterator
from typing import Any

from staging_tf1.arguments import INT64_MAX, whole
from staging_tf1.spec import flatten

__all__ = ["Source", "StreamSource", "bytes_per_batch"]


class Source(abc.ABC):
    """Batches by number.

    To write one of your own, subclass this and prove it with `staging_tf1.testing.assert_resumes_everywhere`,
    `assert_deterministic` and `assert_shards_partition`.

    Attributes:
      gives_away: True if the arrays that `batch` returns are made for this call and never touched again: they
        are fed without a copy when they start on a 64-byte boundary (see `aligned_empty`). Say False if you
        keep or reuse them: they are copied first.
      features: None, or the `features` of `tf.io.parse_example` with which the graph parses this source's
        batches of serialized records.
    """

    gives_away: bool = True
    features: Any = None

    @property
    @abc.abstractmethod
    def spec(self) -> Any:
        """A nest of `ArraySpec`. The batch dimension is None where a partial batch can occur, else
        `batch_size`."""

    @property
    @abc.abstractmethod
    def batch_size(self) -> int:
        """Records in a full batch."""

    @property
    @abc.abstractmethod
    def num_records(self) -> int | None:
        """Records of this shard in one epoch; None if endless or unknown."""

    @property
    @abc.abstractmethod
    def batches_per_epoch(self) -> int | None:
        """Batches in one epoch; None if endless, unknown, or if batches cross epochs."""

    @property
    @abc.abstractmethod
    def num_batches(self) -> int | None:
        """Batches over all epochs; None if endless."""

    @abc.abstractmethod
    def batch(self, index: int) -> Any:
        """Returns batch `index`, counted from 0 over all epochs, as a nest of numpy arrays like `spec`.

        A pure function of `index`: it gives the same values whenever, in whatever order and from whatever
        thread it is called. Feed threads call it at once.

        Raises:
          IndexError: `index` is negative, or at or beyond `num_batches`.
        """

    @abc.abstractmethod
    def shard(self, index: int, count: int) -> Source:
        """The source of every `count`-th record in order, from the `index`-th: disjoint, complete, balanced
        to one.

        Only its own records are read. Records, not batches, are dealt out: each shard makes full batches.
        """

    # Whether the source drew its seed itself: a restored run then takes the one that the checkpoint holds.
    seed_was_drawn: bool = False

    def with_seed(self, seed: int) -> Source:
        """The same source with another seed, from 0 to 2**63 - 1; itself where nothing is random."""
        whole(type(self).__name__, "seed", seed, 0, INT64_MAX)
        return self

    @abc.abstractmethod
    def fingerprint(self) -> dict[str, int | str]:
        """What decides the sequence of batches: seed, number of records, batch size, and so on.

        A checkpoint holds it; a run that resumes compares it, and is refused where it differs.
        """

    def batches(self, start: int = 0) -> Iterator[Any]:
        """The batches from number `start` on; none where there are fewer.

        Raises:
          TypeError, ValueError: `start` is no number of a batch.
        """
        start = whole(type(self).__name__, "start", start, 0, INT64_MAX, "the number of a batch")
        numbers = itertools.count(start) if self.num_batches is None else range(start, self.num_batches)
        return (self.batch(number) for number in numbers)

    @property
    def bytes_per_batch(self) -> int | None:
        """Bytes in a full batch; None where a dimension other than the first is unknown, or for strings."""
        return bytes_per_batch(self.spec, self.batch_size)


class StreamSource(abc.ABC):
    """Batches from front to back, read by one thread at a time.

    Attributes:
      gives_away: as in `Source`; False because a generator may well reuse its buffers.
      name: what messages call it.
    """

    gives_away: bool = False
    name: str = "stream"
    features: Any = None
    # Whether `batches(start)` can begin elsewhere than at 0.
    can_resume: bool = False
    # Whether `state` and `restore` are there: a checkpoint then holds the state, and nothing is read again.
    keeps_state: bool = False

    @property
    @abc.abstractmethod
    def spec(self) -> Any:
        """A nest of `ArraySpec`, or None as long as it is not known (see `resolve_spec`)."""

    @abc.abstractmethod
    def resolve_spec(self) -> Any:
        """The spec, taken from the first batch if it has to be; that batch is still delivered, first."""

    @abc.abstractmethod
    def batches(self, start: int = 0) -> Iterator[Any]:
        """A new iterator over the batches from number `start` on, each a nest of numpy arrays like `spec`.

        A bad batch that it raises for, and goes on, has a number like the others.

        Raises:
          StagingError: the stream cannot be read again, or not from `start`.
        """

    def state(self, position: int) -> bytes:
        """Where the stream stands behind its first `position` batches; asked when the last of them was delivered.

        Called if `keeps_state`, by the thread that has read the batch, while another may read the next.
        """
        raise NotImplementedError

    def restore(self, position: int, state: bytes) -> None:
        """Makes `batches(position)` begin with a state that `state(position)` gave, in whichever process."""
        raise NotImplementedError

    @property
    def num_batches(self) -> int | None:
        """Always None: nobody knows before the end."""
        return None

    def fingerprint(self) -> dict[str, int | str]:
        """What a checkpoint compares; a stream has nothing but its kind."""
        return {"source": type(self).__name__}


def bytes_per_batch(spec: Any, batch_size: int) -> int | None:
    """Bytes of a batch of `batch_size` records; None where the spec does not tell."""
    total = 0
    for leaf in flatten(spec):
        if leaf.shape is None or leaf.dtype.hasobject or None in leaf.shape[1:]:
            return None
        first = (batch_size if leaf.shape[0] is None else leaf.shape[0],) if leaf.shape else ()
        total += math.prod(first + leaf.shape[1:]) * leaf.dtype.itemsize
    return total
