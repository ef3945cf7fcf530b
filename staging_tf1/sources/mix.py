"""The records of several sources in fixed proportions."""

from __future__ import annotations

import functools
import numbers
from collections.abc import Iterable, Mapping, Sequence, Set
from fractions import Fraction
from typing import Any

import numpy as np

from staging_tf1 import arguments
from staging_tf1.sources.batches import Arrangement, Options
from staging_tf1.sources.concatenate import Concatenation
from staging_tf1.sources.order import CHUNK, Order
from staging_tf1.sources.parts import agreed_options, listed_parts
from staging_tf1.sources.pattern import Pattern, proportions, records_without_repetition
from staging_tf1.sources.permutation import SORTED_RECORDS, mix64, mix_int, permute
from staging_tf1.sources.records import RecordSource
from staging_tf1.sources.selection import Chosen

_CALLER = "mix()"
# How many chunks of the order are computed at once, in up to 5 ms.
_MOST_CHUNKS = 4


def mix(
    sources: Iterable[RecordSource],
    weights: Sequence[float] | np.ndarray[Any, Any] | None = None,
    *,
    seed: int | None = None,
) -> Mixture:
    """Make one source that takes its records from several sources in fixed proportions.

    Among any first `n` records, each source has its share of `n`, to less than one record. The order of the sources is
    random within that limit. Each source is read in its own order, shuffled if the option `shuffle` is set, and begins
    again when all its records were read: a source with a large weight is repeated more often.

    An epoch is as long as the first source to end: until then, no source repeats a record. The next epoch continues in
    all sources where the last one ended.

    All sources must have the same options, which the result keeps.

    Args:
      sources: a list of sources.
      weights: a positive number for each source. Only their proportions matter: [7, 3] is [0.7, 0.3]. They are rounded
        to fractions with a denominator of at most 16,384; `Mixture.weights` returns those. The default is equal
        weights.
      seed: from 0 to 2**63 - 1, for the order of the sources and for the shuffles. None takes the sources' common seed,
        or draws one.

    Raises:
      TypeError, ValueError: an argument is invalid; or as in `concatenate`.
      SpecError: as in `concatenate`.

    >>> arrays = [np.zeros(700), np.ones(300)]
    >>> parts = [ArraySource(array, batch_size=10) for array in arrays]
    >>> mixture = mix(parts, weights=[0.7, 0.3], seed=1)
    >>> mixture.num_records, [int(mixture.batch(k).sum()) for k in range(4)]
    (1000, [3, 3, 3, 3])
    """
    parts = listed_parts(_CALLER, sources)
    counts = proportions(_checked_weights(weights, len(parts)))
    if seed is not None:
        options = agreed_options(_CALLER, parts, seed=arguments.seed(_CALLER, seed))
    else:
        options = agreed_options(_CALLER, parts)
    return Mixture(parts, counts, options)


def _checked_weights(weights: Any, count: int) -> np.ndarray[Any, Any]:
    """Return shares, whose sum is 1."""
    if weights is None:
        weights = [1] * count
    expected = f"a positive number for each of the {count} sources"
    if isinstance(weights, (Set, Mapping)):
        arguments.refuse(_CALLER, "weights", weights, f"{expected}, in their order")
    given = arguments.listed(_CALLER, "weights", weights, expected)
    for weight in given:
        if isinstance(weight, (bool, np.bool_)) or not isinstance(weight, numbers.Real):
            arguments.refuse(_CALLER, "weights", weights, expected)
        if not 0 < arguments.as_float(weight) < float("inf"):
            cure = f"{expected}. Leave out a source without weight"
            arguments.refuse(_CALLER, "weights", weights, cure, ValueError)
    if len(given) != count:
        arguments.refuse(_CALLER, "weights", weights, expected, ValueError)
    # Divided before they are added, because the sum of large ones may be infinite.
    shares = np.array([arguments.as_float(weight) for weight in given])
    shares /= shares.max()
    shares /= shares.sum()
    return shares


class Mixture(Concatenation):
    """What `mix` makes. Record numbers are those of the concatenated sources."""

    def __init__(self, parts: Sequence[RecordSource], counts: tuple[int, ...], options: Options) -> None:
        self._counts = counts
        sizes = [part.num_records for part in parts]
        mixing = Arrangement(
            _CALLER,
            "which arranges the records. Call {caller} on its sources.",
            "which arranges its records. Mix all sources in one call, and take, skip or split them before.",
            is_random=True,
            text="",
            order=functools.partial(_MixedOrder, counts, np.cumsum([0, *sizes])),
        )
        super().__init__(_CALLER, parts, options, records_without_repetition(counts, sizes), mixing)

    @property
    def weights(self) -> tuple[Fraction, ...]:
        """The exact share of each source."""
        return tuple(Fraction(count, sum(self._counts)) for count in self._counts)

    def _recipe(self) -> str:
        listed = ", ".join(f"{count}/{sum(self._counts)}" for count in self._counts)
        return f"{super()._recipe()[:-1]}, weights=[{listed}])"


class _MixedOrder(Order):
    """Sources in the proportions of `counts`. `starts` are the numbers of their first records, and of all records."""

    def __init__(
        self,
        counts: tuple[int, ...],
        starts: np.ndarray[Any, Any],
        chosen: Chosen,
        seed: int,
        shuffle: bool,
        shard: tuple[int, int],
    ) -> None:
        super().__init__(chosen.size, seed, *shard)
        self._pattern, self._starts, self._shuffle = Pattern(counts, seed), starts, shuffle
        # Each source is shuffled on its own, and numpy's overhead per call outweighs the work for few places.
        self._chunk_size = CHUNK * min(len(starts) - 1, _MOST_CHUNKS)

    def _at(self, places: np.ndarray[Any, Any], epoch: int) -> np.ndarray[Any, Any]:
        return self._continued(places + epoch * self.total_records)

    def _chunk(self, epoch: int, number: int) -> np.ndarray[Any, Any]:
        together = self._chunk_size // self.num_records
        if together < 2:
            return super()._chunk(epoch, number)
        # A small source makes short epochs, which are computed together.
        first, row = divmod(epoch, together)

        def make() -> np.ndarray[Any, Any]:
            epochs = np.arange(first * together, (first + 1) * together, dtype=np.int64)
            records = self._continued((epochs[:, None] * self.total_records + self._places(0)).ravel())
            return records.reshape(together, -1)

        chunk: np.ndarray[Any, Any] = self._kept((first, -1), make)[row]
        return chunk

    def _continued(self, places: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """Return the records at places that are counted over all epochs. They ascend."""
        which, draws = self._pattern.draws(places)
        records = np.empty_like(places)
        for part, (start, stop) in enumerate(zip(self._starts[:-1].tolist(), self._starts[1:].tolist())):
            rows = np.flatnonzero(which == part)
            if rows.size:
                records[rows] = start + self._drawn(draws[rows], stop - start, part)
        return records

    def _drawn(self, draws: np.ndarray[Any, Any], size: int, part: int) -> np.ndarray[Any, Any]:
        """Return the records of a source's draws, which go on through its epochs."""
        if not self._shuffle:
            return draws % size
        assert self.seed is not None
        seed = mix_int(self.seed ^ mix_int(part + 1)) >> 1
        first = int(draws[0]) // size
        if size > SORTED_RECORDS and first == int(draws[-1]) // size:  # a division for each draw takes longer
            return permute(draws - first * size, size, seed, first)
        epochs, places = np.divmod(draws, size)
        if size <= SORTED_RECORDS:
            return _small_orders(epochs, places, size, seed)
        for epoch in range(int(epochs[0]), int(epochs[-1]) + 1):
            rows = epochs == epoch
            places[rows] = permute(places[rows], size, seed, epoch)
        return places


def _small_orders(
    epochs: np.ndarray[Any, Any], places: np.ndarray[Any, Any], size: int, seed: int
) -> np.ndarray[Any, Any]:
    """Return the records at the places of many epochs of a small source, each sorted by hashes of its own."""
    first = int(epochs[0])
    keys = mix64(np.arange(first, int(epochs[-1]) + 1, dtype=np.uint64) + np.uint64(mix_int(seed)))
    orders = np.argsort(mix64(mix64(keys[:, None] + np.arange(size, dtype=np.uint64))), axis=1, kind="stable")
    records: np.ndarray[Any, Any] = orders[epochs - first, places]
    return records
