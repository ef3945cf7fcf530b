"""The cost of arranging and combining records, and of reading map-style datasets.

    python benchmarks/datasets.py [--part compose|cache|torch|reading] [--rounds 21] [--json out.json]

Parts:
  compose: what `take`, `split`, `concatenate`, `mix` and `by_length` add to the time in which the records of a batch of
    128 are determined: at most 20 us for each layer. Also how much padding `by_length` saves, and how good its shuffle
    still is, by the mean displacement of a record relative to a uniform permutation.
  cache: `sources.cached` with 20,000 records of 3 KB that `tf.data` decodes and resizes. Building it takes at most 1.15
    of the time of iterating the dataset once. A later epoch, shuffled, takes less time than `Dataset.cache(file)` and
    `snapshot` in order, and than LMDB with random reads (python-lmdb; skipped where it is missing). All files are in
    the page cache. Then the memory of a process that builds and reads 10^4 and 10^6 records, and the bytes that one of
    64 shards brings into the page cache, which is emptied before and inspected with mincore(2).
  torch: a step with a shuffled batch of 256 from a `MapSource` over a PyTorch dataset, with two threads, against one
    from PyTorch's own DataLoader, with two workers. Needs PyTorch.
  reading: the memory of reading 10^4 and 10^6 records, and the bytes that each of 64 shards reads.

No TensorFlow runs in the first part. Records are determined for consecutive batches, as feed threads do, so the figures
include the chunks of the order that are computed once for many batches.
"""

from __future__ import annotations

import argparse
import itertools
from typing import Any

import datasets_caches
import datasets_reading
import datasets_torch
import numpy as np
from common import Step, difference, finish, flags, in_turn, turns

from staging_tf1.sources import ArraySource, RecordSource, concatenate, mix

PARTS = ("compose", "cache", "torch", "reading")
BATCH = 128
RECORDS = 1_000_000
# Lengths like those of sentences: most are short, few are long.
LENGTHS = np.random.default_rng(0).lognormal(3.5, 0.6, RECORDS).astype(np.int64) + 1


def main(argv: list[str] | None = None) -> dict[str, Any]:
    """Print the figures of a part, and return those that it is about."""
    parser = flags(__doc__, rounds=21)
    parser.add_argument("--part", choices=PARTS, default="compose", help="what to measure (default: %(default)s)")
    options = parser.parse_args(argv)
    if options.part == "compose":
        return compose(options)
    found = measured(options)
    finish(options, {options.part: found})
    return found


def measured(options: argparse.Namespace) -> dict[str, Any]:
    """Measure one of the other parts, and return its figures."""
    if options.part == "cache":  # a round takes some ten seconds
        return datasets_caches.measure(1 if options.quick else min(options.rounds, 7), options.quick)
    if options.part == "torch":
        return datasets_torch.measure(**turns(options, 0.5), **({"count": 600} if options.quick else {}))
    return datasets_reading.measure(quick=options.quick)


def compose(options: argparse.Namespace) -> dict[str, Any]:
    """Print what each layer adds; return its median, minimum and maximum in microseconds."""
    sources = layers(10_000 if options.quick else RECORDS)
    found = in_turn({name: next_records(source) for name, source in sources.items()}, **turns(options, 0.1))
    over = {name: difference(found, name, "one source") for name in sources if name != "one source"}
    for name, (median, least, most) in over.items():
        print(f"{name}: {median:+.1f} us per batch of {BATCH} ({least:+.1f} to {most:+.1f})")
    print("one source: {:.1f} us per batch of 128".format(sorted(found["one source"])[len(found["one source"]) // 2]))
    blocks = {block: by_length(block, 10_000 if options.quick else 100_000) for block in (0, 5, 20, 50, 200)}
    for block, (padding, displacement, correlation) in blocks.items():
        name = f"by_length, block={block}" if block else "no by_length"
        print(
            f"{name}: {padding:.1%} padding, displacement {displacement:.1%}, neighbours correlate {correlation:+.2f}"
        )
    finish(options, {"us a batch": found, "by_length": {str(block): figures for block, figures in blocks.items()}})
    return over


def layers(count: int) -> dict[str, RecordSource]:
    """One source, and what is made of it in one and in several layers."""
    source = ArraySource(np.arange(count), batch_size=BATCH, shuffle=True, seed=1)
    parts = [source.take(count // 2), source.skip(count // 2)]
    return {
        "one source": source,
        "take": source.take(count - 1),
        "split": source.split(0.9, seed=1)[0],
        "split, the small part": source.split(0.9, seed=1)[1],
        "split by key": source.split(0.9, seed=1, key=np.arange(count))[0],
        "take, skip, split": source.take(count - 1).skip(1).split(0.9, seed=1)[0],
        "concatenate": concatenate(parts),
        "concatenate twice": concatenate([concatenate(parts), source]),
        "mix of 2": mix(parts, [0.7, 0.3], seed=1),
        "mix of 5": mix([source] * 5, [5, 4, 3, 2, 1], seed=1),
        "by_length": source.by_length(LENGTHS[:count]),
    }


def next_records(source: RecordSource) -> Step:
    """A function that determines the records of the next batch, down to the sources that hold them."""
    numbers = itertools.count()
    return lambda: down(source, source.record_ids(next(numbers)))


def down(source: RecordSource, numbers: np.ndarray[Any, Any]) -> None:
    """Determine which records of its parts a concatenation reads."""
    parts = getattr(source, "_parts", ())
    if not parts:
        return
    for part, _, places in source._by_part(numbers):  # type: ignore[attr-defined]
        down(parts[part], parts[part]._batching.chosen.numbers(places))


def by_length(block: int, count: int) -> tuple[float, float, float]:
    """The share of padding, the displacement, and the correlation of the lengths of neighbouring batches."""
    lengths = LENGTHS[:count]
    source = ArraySource(np.arange(count), batch_size=32, shuffle=True, seed=1, drop_remainder=True)
    arranged = source.by_length(lengths, block=block) if block else source
    order = np.concatenate([arranged.record_ids(k) for k in range(arranged.batches_per_epoch or 0)])
    batches = lengths[order].reshape(-1, 32)
    displacement = np.abs(order - np.arange(len(order))).mean() / (count / 3)
    means = batches.mean(axis=1)
    correlation = float(np.corrcoef(means[:-1], means[1:])[0, 1])
    return 1 - batches.sum() / (32 * batches.max(axis=1).sum()), float(displacement), correlation


if __name__ == "__main__":
    main()
