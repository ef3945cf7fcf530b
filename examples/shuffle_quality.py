"""The quality of a shuffle: how far it moves each of 60,000 records in one epoch.

A shuffle buffer of 1,000 (`tf.data.Dataset.shuffle(1000)`, or a RandomShuffleQueue of that size) moves a record forward
by at most 1,000 places, so the labels of a sorted file stay sorted. An ArraySource shuffles all records.

    python examples/shuffle_quality.py [plot.png]
"""

from __future__ import annotations

import os
import sys
import tempfile

import numpy as np

from staging_tf1.sources import ArraySource

RECORDS = 60_000
BUFFER = 1_000


def main(records: int = RECORDS, buffer: int = BUFFER, plot: str | None = None) -> dict[str, float]:
    """Print the mean displacement of each shuffle; return it relative to that of a uniform permutation."""
    orders = {
        "ArraySource(shuffle=True)": source_order(records),
        f"shuffle buffer of {buffer:,}": buffer_order(records, buffer),
        "numpy permutation": np.random.default_rng(0).permutation(records),
    }
    uniform = (records**2 - 1) / (3 * records)  # the expectation over all permutations
    print(f"mean displacement of {records:,} records (a uniform permutation's expectation: {uniform:,.0f})")
    ratios = {}
    for name, order in orders.items():
        displacement = float(np.abs(order - np.arange(records)).mean())
        ratios[name] = displacement / uniform
        print(f"  {name:27} {displacement:9,.0f} = {ratios[name]:7.2%}")
    if plot is not None:
        draw(orders, plot)
    return ratios


def source_order(records: int) -> np.ndarray:
    """The order of one epoch of an ArraySource."""
    source = ArraySource(np.arange(records), batch_size=128, shuffle=True, seed=42, epochs=1)
    return np.concatenate(list(source.batches()))


def buffer_order(records: int, buffer: int) -> np.ndarray:
    """The order of a shuffle buffer, which yields a random one of the records that it holds."""
    generator = np.random.default_rng(0)
    held = list(range(min(buffer, records)))
    order = []
    for entering in range(len(held), records):
        place = int(generator.integers(len(held)))
        order.append(held[place])
        held[place] = entering
    return np.array(order + generator.permutation(held).tolist())


def draw(orders: dict[str, np.ndarray], path: str) -> None:
    """Plot the new place of each record, if matplotlib is installed."""
    try:
        import matplotlib
    except ImportError:
        print("no plot: matplotlib is not installed (pip install matplotlib)")
        return
    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, len(orders), figsize=(4 * len(orders), 4), sharey=True)
    for axis, (name, order) in zip(axes, orders.items()):
        axis.plot(order, ",", alpha=0.5)
        axis.set(title=name, xlabel="place in the epoch")
    axes[0].set_ylabel("record")
    figure.tight_layout()
    figure.savefig(path, dpi=80)
    pyplot.close(figure)
    print(f"plot: {path}")


if __name__ == "__main__":
    main(plot=sys.argv[1] if len(sys.argv) > 1 else os.path.join(tempfile.gettempdir(), "shuffle_quality.png"))
