"""A shuffle that is computed, not stored.

It maps a place to a record number with integer arithmetic. The order is a pure function of (seed, epoch, number of
records). It is the same on every machine and with every version of numpy, which `np.random` does not guarantee. Its
memory does not grow with the number of records.

Up to `SORTED_RECORDS` records, the order sorts the records by their hashes, which makes every permutation equally
likely. Beyond, it is a bijection on the next power of two. Each round xors a key, multiplies by an odd key, and folds
the upper half onto the lower half. All three steps are invertible, so the rounds are a permutation. It is applied
again to results outside the range of records ("cycle walking": Black and Rogaway, "Ciphers with Arbitrary Finite
Domains", 2002).
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

# Sorting this many hashes takes 0.1 ms. The value is part of the order: changing it reorders resumed runs.
SORTED_RECORDS = 4096

# Six rounds pass tests/sources/test_order.py with a margin. Three leave a visible grid for powers of two.
_ROUNDS = 6

_MASK64 = (1 << 64) - 1
# Spreads consecutive numbers over 64 bits before they are hashed: 2**64 divided by the golden ratio.
_ODD = np.uint64(0x9E3779B97F4A7C15)


def permute(places: np.ndarray[Any, Any], num_records: int, seed: int, epoch: int) -> np.ndarray[Any, Any]:
    """Return the records at `places` in the shuffled order of one epoch, as int64 of the same shape.

    Places are in [0, num_records), `num_records` is at most 2**62, and `seed` is from 0 to 2**63 - 1.

    >>> sorted(permute(np.arange(5), 5, seed=1, epoch=0).tolist())
    [0, 1, 2, 3, 4]
    """
    if num_records <= SORTED_RECORDS:
        order = _sorted_order(num_records, seed, epoch)
        return order.take(places)
    return _walk(places, num_records, _keys(seed, epoch, num_records))


@functools.lru_cache(maxsize=64)
def _sorted_order(num_records: int, seed: int, epoch: int) -> np.ndarray[Any, Any]:
    first_key, second_key = _keys(seed, epoch, num_records)[:2]
    hashes = mix64(mix64(np.arange(num_records, dtype=np.uint64) + np.uint64(first_key)) ^ np.uint64(second_key))
    order: np.ndarray[Any, Any] = np.argsort(hashes, kind="stable").astype(np.int64)
    order.flags.writeable = False
    return order


def _walk(places: np.ndarray[Any, Any], num_records: int, keys: tuple[int, ...]) -> np.ndarray[Any, Any]:
    bits = (num_records - 1).bit_length()
    # Arithmetic is modulo 2**bits, so a narrow type gives the same numbers, faster.
    word = np.uint16 if bits <= 16 else np.uint32 if bits <= 32 else np.uint64
    last = word(num_records - 1)
    walked = _bijection(places.astype(word).ravel(), bits, keys, word)
    outside = np.flatnonzero(walked > last)
    while outside.size:
        again = _bijection(walked[outside], bits, keys, word)
        walked[outside] = again
        outside = outside[again > last]
    return walked.astype(np.int64).reshape(places.shape)


def _bijection(x: np.ndarray[Any, Any], bits: int, keys: tuple[int, ...], word: Any) -> np.ndarray[Any, Any]:
    """Apply a permutation of [0, 2**bits). May overwrite `x`."""
    mask = word((1 << bits) - 1)
    half = word((bits + 1) // 2)
    folded = np.empty_like(x)
    for number in range(_ROUNDS):
        add, multiply = keys[2 * number] & int(mask), (keys[2 * number + 1] | 1) & int(mask)
        x ^= word(add)
        x *= word(multiply)
        x &= mask
        np.right_shift(x, half, out=folded)
        x ^= folded
    return x


@functools.lru_cache(maxsize=64)
def _keys(seed: int, epoch: int, num_records: int) -> tuple[int, ...]:
    state = mix_int(mix_int(seed) ^ mix_int(epoch + 0x632BE59BD9B4E019)) ^ num_records
    return tuple(mix_int(state + (number + 1) * 0x9E3779B97F4A7C15) for number in range(2 * _ROUNDS))


def mix_int(x: int) -> int:
    """The finalizer of SplitMix64 (Steele, Lea, Flood, 2014). Each bit of `x` affects half of the result's."""
    x &= _MASK64
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & _MASK64
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & _MASK64
    return x ^ (x >> 31)


def mix64(x: Any) -> Any:
    """Do what `mix_int` does, for an array of uint64."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def hashed(numbers: np.ndarray[Any, Any], key: int) -> np.ndarray[Any, Any]:
    """Return a hash of each number, as uint64. Consecutive numbers, and consecutive keys, have unrelated hashes."""
    hashes: np.ndarray[Any, Any] = mix64(numbers.astype(np.uint64) * _ODD + np.uint64(key))
    return hashes
