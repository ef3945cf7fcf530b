"""A shuffled batch of a PyTorch dataset: `MapSource` against PyTorch's own DataLoader, into the same step."""

from __future__ import annotations

import contextlib
import importlib.util
import zlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow.compat.v1 as tf
from common import Step, in_turn, ratio

import staging_tf1 as staging
from staging_tf1.sources import MapSource

RECORDS, BATCH, WORKERS = 20_000, 256, 2
SHAPE = (32, 32, 3)
# A worker that hangs fails the experiment. TensorFlow's threads do not survive a fork, so workers are not forked.
LOADER: dict[str, Any] = dict(multiprocessing_context="forkserver", persistent_workers=True, timeout=60)


class Images:
    """Records of 3 KB in memory, as in the tutorials of PyTorch: an image that is scaled, and its label."""

    def __init__(self, count: int) -> None:
        self.images = np.random.default_rng(0).integers(0, 256, (count, *SHAPE)).astype(np.uint8)

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, number: int) -> tuple[np.ndarray[Any, Any], int]:
        return self.images[number].astype(np.float32) / np.float32(255), number % 10


class Compressed(Images):
    """The same, compressed: a record takes longer, mostly without the GIL."""

    def __init__(self, count: int) -> None:
        super().__init__(count)
        self.packed = [zlib.compress(image.tobytes(), 1) for image in self.images]

    def __getitem__(self, number: int) -> tuple[np.ndarray[Any, Any], int]:
        image = np.frombuffer(zlib.decompress(self.packed[number]), np.uint8).reshape(SHAPE)
        return image.astype(np.float32) / np.float32(255), number % 10


def measure(count: int = RECORDS, **turns: Any) -> dict[str, Any]:
    """Print and return how long a step takes with each, in `turns`; an empty dict without PyTorch."""
    if importlib.util.find_spec("torch") is None:
        print("PyTorch is not installed: no comparison with its DataLoader")
        return {}
    return {kind.__name__: _measured(kind(count), turns) for kind in (Images, Compressed)}


def _measured(dataset: Images, turns: dict[str, Any]) -> dict[str, list[float]]:
    source = MapSource(dataset, batch_size=BATCH, shuffle=True, seed=1, drop_remainder=True)
    # torch is no dependency of the project, not even of its tests.
    data: Any = importlib.import_module("torch.utils.data")
    loader = data.DataLoader(dataset, BATCH, shuffle=True, drop_last=True, num_workers=WORKERS, **LOADER)
    with tf.Graph().as_default(), contextlib.ExitStack() as stack:
        batches = {
            "MapSource": staging.staged(source, num_threads=WORKERS, name="map"),
            "DataLoader": staging.staged(lambda: _endless(loader), name="loader"),
        }
        losses = {name: _loss(*batch) for name, batch in batches.items()}
        session = stack.enter_context(staging.StagingSession(stall_secs=0))
        steps: dict[str, Step] = {name: session.make_callable(loss) for name, loss in losses.items()}
        found = in_turn(steps, **turns)
    median, least, most = ratio(found, "DataLoader", "MapSource")
    middle = {name: sorted(times)[len(times) // 2] / 1000 for name, times in found.items()}
    print(
        f"{type(dataset).__name__}: a step takes {middle['MapSource']:.1f} ms with MapSource and "
        f"{middle['DataLoader']:.1f} ms with DataLoader, {median:.2f} times as long ({least:.2f} to {most:.2f})"
    )
    return found


def _endless(loader: Any) -> Iterator[Any]:
    while True:
        for image, label in loader:
            yield image.numpy(), label.numpy()


def _loss(image: Any, label: Any) -> Any:
    weights = tf.Variable(tf.zeros([int(np.prod(SHAPE)), 10]))
    logits = tf.matmul(tf.reshape(image, [BATCH, -1]), weights)
    return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=label, logits=logits))
