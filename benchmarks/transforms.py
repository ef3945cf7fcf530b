"""What the workloads do to the rows of a batch. Imports no TensorFlow, because worker processes import this module.

Each takes the gathered rows, a random generator, and a function that allocates the memory of its result: `np.empty` if
TensorFlow copies it, `sources.aligned_empty` if it is fed without a copy.
"""

from __future__ import annotations

import functools
import io
import itertools
import time
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any

import numpy as np

from staging_tf1.sources import Source

Array = np.ndarray[Any, Any]
# Component name to array; the first dimension counts the records.
Batch = dict[str, Array]
Empty = Callable[[Any, Any], Array]
Change = Callable[[Batch, np.random.Generator, Empty], Batch]

_WAIT_SECS = 0.020
_IMAGE, _CROP = 192, 96
# The length of a row of tokens: longer texts are cut, and shorter ones padded with 0.
TOKENS = 32
_UNKNOWN = 1
_LETTERS = "abcdefghijklmnopqrstuvwxyz"


def unchanged(batch: Batch, rng: np.random.Generator, empty: Empty) -> Batch:
    """Return the rows as they are."""
    return batch


def scaled(batch: Batch, rng: np.random.Generator, empty: Empty, before: Change = unchanged) -> Batch:
    """Apply `before`, and convert bytes to float32 from 0 to 1, in one pass."""
    batch = before(batch, rng, empty)
    image = empty(batch["image"].shape, np.float32)
    np.multiply(batch["image"], np.float32(1 / 255), out=image)
    return batch | {"image": image}


def flipped(batch: Batch, rng: np.random.Generator, empty: Empty) -> Batch:
    """Flip a random half of the images, in place: the gathered rows belong to this batch."""
    image = batch["image"]
    for number in np.flatnonzero(rng.random(len(image)) < 0.5):
        image[number] = image[number, :, ::-1].copy()
    return batch


def delayed(batch: Batch, rng: np.random.Generator, empty: Empty) -> Batch:
    """Wait, as for remote storage with a latency of 20 ms and no CPU time."""
    time.sleep(_WAIT_SECS)
    return batch


def cropped(batch: Batch, rng: np.random.Generator, empty: Empty) -> Batch:
    """Decode JPEG files with Pillow, and crop them at random."""
    from PIL import Image

    image = empty((len(batch["image"]), _CROP, _CROP, 3), np.uint8)
    corners = rng.integers(0, _IMAGE - _CROP + 1, size=(len(image), 2)).tolist()
    for row, file, (left, top) in zip(image, batch["image"], corners):
        with Image.open(io.BytesIO(file)) as decoded:
            row[...] = np.asarray(decoded.crop((left, top, left + _CROP, top + _CROP)))
    return batch | {"image": image}


def tokenized(batch: Batch, rng: np.random.Generator, empty: Empty) -> Batch:
    """Cut texts into the longest pieces of the vocabulary, in pure Python, and pad their numbers."""
    pieces = vocabulary()
    tokens = empty((len(batch["text"]), TOKENS), np.int32)
    tokens[...] = 0
    for row, text in zip(tokens, batch["text"].tolist()):
        numbers = _pieces_of(text.decode().lower(), pieces)[:TOKENS]
        row[: len(numbers)] = numbers
    return {"tokens": tokens, "label": batch["label"]}


@functools.cache
def vocabulary() -> dict[str, int]:
    """Return the number of each piece: all single letters and pairs, and a third of the triples."""
    singles, pairs = list(_LETTERS), ["".join(pair) for pair in itertools.product(_LETTERS, repeat=2)]
    triples = ["".join(triple) for triple in itertools.product(_LETTERS, repeat=3)][::3]
    return {piece: number for number, piece in enumerate([*singles, *pairs, *triples], _UNKNOWN + 1)}


def _pieces_of(text: str, pieces: Mapping[str, int]) -> list[int]:
    numbers = []
    for word in text.split():
        start = 0
        while start < len(word):
            end = len(word)
            while end > start and word[start:end] not in pieces:
                end -= 1
            numbers.append(pieces[word[start:end]] if end > start else _UNKNOWN)
            start = max(end, start + 1)
    return numbers


class Numbered:
    """The batches of a source as a map-style dataset: item k is batch k. Each process makes the source itself."""

    def __init__(self, make: Callable[[], Source]) -> None:
        self._make = make

    @cached_property
    def _source(self) -> Source:
        return self._make()

    def __len__(self) -> int:
        return 10**9  # more batches than a measurement takes, for libraries that need a length

    def __getitem__(self, number: int) -> Any:
        return self._source.batch(int(number))
