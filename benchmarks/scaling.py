"""The growth of the time per step with the bytes of a batch, threads, towers, capacity, and the number of steps.

    python benchmarks/scaling.py [bytes threads towers capacity steps] [--plot out.png] [--json out.json]

The time should grow with the work and with nothing else. The step only takes its batch, so all of its time is ours.
Expected:

- bytes: one component of 1 KB to 64 MB; flat up to about 100 KB, then a straight line, because the gather is a copy;
- threads: 1 to 8 on a source that waits 8 ms for each batch; 8 ms divided by the threads, until nothing waits;
- towers: 1 to 4, a batch of 64 KB for each; a straight line, because each tower takes one more batch;
- capacity: 1 to 64 batches of 64 KB; flat;
- steps: 10^2 to 10^5 in one session; flat, because a step does not depend on the steps before it.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow.compat.v1 as tf
from common import finish, flags
from tqdm import tqdm

import staging_tf1 as staging
from staging_tf1.bench.measure import measure
from staging_tf1.bench.rounds import rotated

KB, MB = 2**10, 2**20
WAIT_SECS = 0.008
# For each quantity that is varied: its values, and those of the quick form.
VARIED: dict[str, tuple[list[int], list[int]]] = {
    "bytes": ([KB, 4 * KB, 16 * KB, 64 * KB, 256 * KB, MB, 4 * MB, 16 * MB, 64 * MB], [KB, MB]),
    "threads": ([1, 2, 3, 4, 6, 8], [1, 2]),
    "towers": ([1, 2, 3, 4], [1, 2]),
    "capacity": ([1, 2, 4, 8, 16, 32, 64], [1, 4]),
    "steps": ([100, 1_000, 10_000, 100_000], [10, 20]),
}


def main(argv: list[str] | None = None) -> dict[str, dict[int, float]]:
    """Print and return the median milliseconds per step for each value of each quantity."""
    words = flags(__doc__, plot=True)
    words.add_argument("varied", nargs="*", metavar="WHAT", help=f"some of {', '.join(VARIED)} (default: all)")
    options = words.parse_args(argv)
    if unknown := set(options.varied) - set(VARIED):
        words.error(f"got {', '.join(sorted(unknown))}, expected some of {', '.join(VARIED)}")
    rounds = 1 if options.quick else options.rounds
    rounds_of = {what: measured(what, rounds, options.quick) for what in options.varied or VARIED}
    medians = {
        what: {value: statistics.median(ms) for value, ms in points.items()} for what, points in rounds_of.items()
    }
    for what, points in medians.items():
        print(what, *(f"{value:>12,}: {ms:9.4f} ms per step" for value, ms in points.items()), sep="\n")
    finish(options, {"ms a step": rounds_of, "medians": medians})
    if options.plot:
        draw(medians, options.plot)
    return medians


def measured(what: str, rounds: int, quick: bool) -> dict[int, list[float]]:
    """Milliseconds per step for each value, one per round. The values take turns."""
    values = VARIED[what][1 if quick else 0]
    found: dict[int, list[float]] = {value: [] for value in values}
    with tqdm(total=rounds * len(values), desc=what) as bar:
        for turn in range(rounds):
            for value in rotated(values, turn):
                found[value].append(WAYS[what](value, 0.05 if quick else 0.7))
                bar.update()
    return found


def with_bytes(nbytes: int, secs: float) -> float:
    return one_step(vectors(nbytes), secs)


def with_threads(threads: int, secs: float) -> float:
    return one_step(vectors(KB, wait_secs=WAIT_SECS), secs, num_threads=threads)


def with_towers(towers: int, secs: float) -> float:
    return one_step(vectors(64 * KB, records=16 * towers), secs, devices=["/cpu:0"] * towers)


def with_capacity(capacity: int, secs: float) -> float:
    return one_step(vectors(64 * KB), secs, capacity=capacity)


def with_steps(steps: int, secs: float) -> float:
    return one_step(vectors(KB), secs, steps=steps)


WAYS: dict[str, Callable[[int, float], float]] = {
    "bytes": with_bytes,
    "threads": with_threads,
    "towers": with_towers,
    "capacity": with_capacity,
    "steps": with_steps,
}


def vectors(nbytes: int, *, records: int = 4, wait_secs: float = 0.0) -> Any:
    """A source whose batch is one record of `nbytes` bytes. Each batch may wait, like remote storage."""

    def wait(batch: Any, rng: np.random.Generator) -> Any:
        time.sleep(wait_secs)
        return batch

    rows = np.zeros((records, nbytes // 4), np.float32)
    return staging.sources.ArraySource(rows, batch_size=1, transform=wait if wait_secs else None)


def one_step(source: Any, secs: float, *, steps: int | None = None, **arguments: Any) -> float:
    """Milliseconds of a step that only takes a batch of `source`, staged with those arguments."""
    with tf.Graph().as_default():
        batches = staging.staged(source, **arguments)
        taken = tf.group(*(batches if isinstance(batches, list) else [batches]))
        with staging.StagingSession() as session:
            step = session.make_callable(taken)
            if steps is None:
                return measure(step, secs).wall_ms
            # The number of steps is varied, so the first hundred steps count as well: no warm-up.
            start = time.perf_counter()
            for _ in range(steps):
                step()
            return (time.perf_counter() - start) * 1e3 / steps


def draw(medians: dict[str, dict[int, float]], path: str) -> None:
    """Plot each quantity, on a logarithmic axis if its values are powers."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, len(medians), figsize=(4 * len(medians), 4), squeeze=False)
    for axis, (what, points) in zip(axes[0], medians.items()):
        axis.plot(list(points), list(points.values()), "o-")
        axis.set(xlabel=what, ylabel="ms per step", title=f"time per step against {what}", ylim=(0, None))
        if what in ("bytes", "capacity", "steps"):
            axis.set_xscale("log", base=2 if what == "capacity" else 10)
        if what == "bytes":
            axis.set(yscale="log", ylim=(min(_positive(points.values())), None))
    figure.tight_layout()
    figure.savefig(path, dpi=80)
    pyplot.close(figure)


def _positive(values: Sequence[float] | Any) -> list[float]:
    return [value for value in values if value > 0]


if __name__ == "__main__":
    main()
