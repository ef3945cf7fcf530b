"""Which records `take`, `skip` and `split` select. Their numbers are computed from their places in the selection.

A split without a key divides the records into equal stretches and picks one record of each, at a place that a hash of
the seed decides. So both parts have an exact size, stay in the order of the records, and need no memory. Picking each
record by a hash of its own would make the sizes random; a permutation would scatter the reads of an unshuffled part.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from staging_tf1 import arguments
from staging_tf1.sources.order import numbers_of
from staging_tf1.sources.permutation import hashed, mix64, mix_int

Records = np.ndarray[Any, Any] | slice


class Selection(NamedTuple):
    """Some of the records of a source.

    Attributes:
      size: how many records there are.
      numbers: a function from places, an int64 array or a slice, to the numbers of the records at these places.
      text: the call that made it, such as "take(5)". Part of the fingerprint.
      keeps_slices: whether the result for a slice is a slice.
    """

    size: int
    numbers: Callable[[Records], Records]
    text: str
    keeps_slices: bool = False


@dataclasses.dataclass(frozen=True)
class Chosen:
    """Which records of a source there are after its selections.

    Attributes:
      own: how many records the source has without them.
    """

    own: int
    selections: tuple[Selection, ...] = ()

    @property
    def size(self) -> int:
        """How many records there are."""
        return self.selections[-1].size if self.selections else self.own

    @property
    def select(self) -> Callable[[Records], Records] | None:
        """Maps places to numbers. None if they are the same."""
        return self.numbers if self.selections else None

    @property
    def keeps_slices(self) -> bool:
        """Whether the numbers at a slice of places are a slice."""
        return all(selection.keeps_slices for selection in self.selections)

    def only(self, selection: Selection) -> Chosen:
        """Return some of these records."""
        return Chosen(self.own, (*self.selections, selection))

    def numbers(self, places: Records) -> Records:
        """Return the numbers of the records at `places`."""
        for selection in reversed(self.selections):
            places = selection.numbers(places)
        return places

    def text(self, whole: str) -> str:
        """Say which records of `whole` these are."""
        return ".".join([whole, *(selection.text for selection in self.selections)])


def stretch(start: int, size: int, text: str) -> Selection:
    """Select `size` records from record `start` on.

    >>> stretch(3, 4, "skip(3)").numbers(slice(0, 4, 2))
    slice(3, 7, 2)
    """

    def numbers(places: Records) -> Records:
        if isinstance(places, slice):
            return slice(places.start + start, places.stop + start, places.step)
        return places + start if start else places

    return Selection(size, numbers, text, keeps_slices=True)


def split_evenly(total: int, first: int, seed: int, text: str) -> tuple[Selection, Selection]:
    """Select `first` of `total` records, spread evenly, and the others. Both are in the order of the records.

    >>> chosen, others = split_evenly(10, 8, seed=1, text="split")
    >>> sorted([*chosen.numbers(np.arange(8)).tolist(), *others.numbers(np.arange(2)).tolist()])
    [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]
    """
    picks = min(first, total - first)
    key = mix_int(mix_int(seed) ^ total)

    def start(stretch: Any) -> Any:
        return stretch * total // picks

    def picked(stretch: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        begin = start(stretch)
        width = (start(stretch + 1) - begin).astype(np.uint64)
        numbers: np.ndarray[Any, Any] = begin + (hashed(stretch, key) % width).astype(np.int64)
        return numbers

    def few(places: Records) -> Records:
        return picked(numbers_of(places))

    def many(places: Records) -> Records:
        wanted = numbers_of(places)
        # Before stretch j there are j picks, which gives the stretch of a record that is not picked.
        stretch = ((wanted + 1) * picks - 1) // (total - picks)
        numbers: np.ndarray[Any, Any] = wanted + stretch
        numbers += numbers >= picked(stretch)
        return numbers

    ordered = (few, many) if first == picks else (many, few)
    sizes = (first, total - first)
    first_part, second_part = (Selection(sizes[i], ordered[i], f"{text}[{i}]") for i in range(2))
    return first_part, second_part


def split_by_key(keys: np.ndarray[Any, Any], fraction: float, seed: int, text: str) -> tuple[Selection, Selection]:
    """Select the records whose key has a hash below `fraction`, and the others. `keys` are hashes, as uint64."""
    hashes = mix64(mix64(keys + np.uint64(mix_int(seed))))
    chosen = (hashes >> np.uint64(11)).astype(np.float64) / 2.0**53 < fraction
    text = f"{text[:-1]}, key={digest(keys)})"
    first, second = (_listed(np.flatnonzero(part), f"{text}[{i}]") for i, part in enumerate((chosen, ~chosen)))
    return first, second


def selected(caller: str, records: Any, total: int) -> Selection:
    """Select the records of a mask, or those with the given numbers, in this order. Checks them."""
    expected = f"a mask of {total} booleans, or record numbers from 0 to {total - 1}"
    array = _array(caller, "records", records, expected)
    if array.ndim == 1 and array.dtype.kind == "b" and len(array) == total:
        array = np.flatnonzero(array)
    elif array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
        arguments.refuse(caller, "records", records, expected)
    elif len(array) == total > 2 and not (array >> 1).any():
        raise ValueError(
            f"{caller} got {total} numbers for {total} records, all of them 0 or 1, which looks like a mask. A mask "
            f"has booleans: np.asarray(mask, bool)."
        )
    if not array.size:
        raise ValueError(f"{caller} selects none of {total} records, expected at least one.")
    outside = np.flatnonzero((array < 0) | (array >= total))
    if outside.size:
        raise ValueError(f"{caller} got the record number {array[outside[0]]}, expected numbers from 0 to {total - 1}.")
    array = array.astype(np.int64)
    return _listed(array, f"select({len(array)}, {digest(array)})")


def _listed(records: np.ndarray[Any, Any], text: str) -> Selection:
    # 4 bytes a record are enough for 2**32 of them.
    kept = records.astype(np.uint32) if not records.size or records.max() < 2**32 else records

    def numbers(places: Records) -> Records:
        return kept[places].astype(np.int64)

    return Selection(len(records), numbers, text)


def _array(caller: str, name: str, values: Any, expected: str) -> np.ndarray[Any, Any]:
    try:
        array = np.asarray(values)
    except ValueError:  # rows of different lengths
        arguments.refuse(caller, name, values, expected)
    # numpy would drop the mask.
    if isinstance(values, np.ma.MaskedArray):
        arguments.refuse(caller, name, values, f"{expected}, without a mask of missing values")
    return array


def one_per_record(caller: str, name: str, values: Any, count: int, expected: str, kinds: str) -> np.ndarray[Any, Any]:
    """Check the argument `name`, which has a value of one of the dtype `kinds` for each of `count` records."""
    array = _array(caller, name, values, expected)
    if array.ndim != 1 or array.dtype.kind not in kinds:
        arguments.refuse(caller, name, values, expected)
    if len(array) != count:
        plural = name if name.endswith("s") else f"{name}s"
        raise ValueError(f"{caller} got {len(array)} {plural}, expected {expected}.")
    return array


def hashed_keys(
    caller: str, keys: Any, count: int, argument: str = "key", kinds: str = "iuOSUT"
) -> np.ndarray[Any, Any]:
    """Check the keys of `count` records, and return a 64-bit hash of each."""
    expected = f"one integer or string for each of the {count} records"
    array = one_per_record(caller, argument, keys, count, expected, kinds)
    if array.dtype.kind in "biu":
        return array.astype(np.uint64)
    listed: list[Any] = array.tolist()
    # One of each type, because a wrong one may have no hash.
    for key in {type(key): key for key in listed}.values():
        arguments.instance(caller, argument, key, (str, bytes, int, np.integer), expected)
    hashes: dict[Any, int] = {}
    for key in set(listed):
        data = key.encode(errors="surrogateescape") if isinstance(key, str) else key  # a file name
        if isinstance(data, bytes):
            hashes[key] = int.from_bytes(hashlib.blake2b(data, digest_size=8).digest(), "little")
        else:
            hashes[key] = int(data) % 2**64
    return np.fromiter((hashes[key] for key in listed), np.uint64, count)


def label_codes(caller: str, argument: str, labels: Any, count: int) -> np.ndarray[Any, Any]:
    """Check the labels of `count` records, and return a number from 0 for each, the same for equal labels."""
    hashes = hashed_keys(caller, labels, count, argument, "biuOSUT")
    codes: np.ndarray[Any, Any] = np.unique(hashes, return_inverse=True)[1]
    return codes


def digest(array: np.ndarray[Any, Any]) -> str:
    """Return a short hash of the content of an array, for fingerprints."""
    content = np.ascontiguousarray(array.astype(array.dtype.newbyteorder("<"), copy=False))
    return hashlib.blake2b(content.data, digest_size=8).hexdigest()
