"""W1 to W4: images in memory, as bytes or as JPEG files."""

from __future__ import annotations

import importlib.util
import io
import time
from types import MappingProxyType
from typing import Any

import numpy as np

from staging_tf1._tf import Dataset, tf
from staging_tf1.bench.errors import NotApplicable
from staging_tf1.bench.workloads.arrays import ArrayWorkload, random_images
from staging_tf1.bench.workloads.facts import FACTS
from staging_tf1.bench.workloads.models import convolutional_loss, dense_loss
from staging_tf1.bench.workloads.workload import Array, Batch, Empty

_WAIT_SECS = 0.020
_SIZE, _CROP = 192, 96


class W1(ArrayWorkload):
    """A small step, where feeding takes most of the time.

    128x784 float32 from bytes in memory, gathered and scaled in numpy; softmax regression, Adam.
    """

    name = "W1"
    batch_size = FACTS["W1"].batch_size
    spec = MappingProxyType({"image": ((784,), np.float32), "label": ((), np.int32)})

    def open(self, records: int, folder: str) -> Batch:
        return random_images(records, (784,), classes=10)

    def reshape(self, batch: Batch, rng: np.random.Generator, empty: Empty) -> Batch:
        return batch

    def dataset(self, data: Batch, seed: int) -> tuple[Any, dict[Any, Any]]:
        return self.gathered(data, seed)

    def model(self, batch: dict[str, Any]) -> Any:
        return tf.train.AdamOptimizer(0.001).minimize(dense_loss(batch, hidden=(), classes=10))


class W2(ArrayWorkload):
    """Large batches and a step that keeps the cores busy.

    64x96x96x3 float32 from bytes in memory, gathered, flipped, scaled in numpy; two convolutions, SGD.
    """

    name = "W2"
    draws = True
    batch_size = FACTS["W2"].batch_size
    spec = MappingProxyType({"image": ((96, 96, 3), np.float32), "label": ((), np.int32)})

    def open(self, records: int, folder: str) -> Batch:
        return random_images(records, (96, 96, 3), classes=10)

    def reshape(self, batch: Batch, rng: np.random.Generator, empty: Empty) -> Batch:
        """Flip a random half of the images, in place: the gathered rows belong to this batch."""
        image = batch["image"]
        for number in np.flatnonzero(rng.random(len(image)) < 0.5):
            image[number] = image[number, :, ::-1].copy()
        return batch

    def dataset(self, data: Batch, seed: int) -> tuple[Any, dict[Any, Any]]:
        return self.gathered(data, seed)

    def in_graph(self, batch: dict[str, Any]) -> dict[str, Any]:
        flipped = tf.image.random_flip_left_right(batch["image"])
        return self.expand(batch | {"image": flipped})

    def model(self, batch: dict[str, Any]) -> Any:
        return tf.train.GradientDescentOptimizer(0.01).minimize(convolutional_loss(batch, (16, 32), classes=10))


class W3(W1):
    """Remote storage: like W1, but each batch waits 20 ms; two hidden layers of 896."""

    name = "W3"

    def reshape(self, batch: Batch, rng: np.random.Generator, empty: Empty) -> Batch:
        # The wait is part of the workload: it simulates remote storage with a latency of 20 ms and no CPU time.
        time.sleep(_WAIT_SECS)
        return batch

    def dataset(self, data: Batch, seed: int) -> tuple[Any, dict[Any, Any]]:
        raise NotApplicable("W3 waits in Python; tf.data cannot make its batches in TensorFlow ops")

    def model(self, batch: dict[str, Any]) -> Any:
        return tf.train.GradientDescentOptimizer(0.01).minimize(dense_loss(batch, hidden=(896, 896), classes=10))


class W4(ArrayWorkload):
    """Decoding in Python.

    16x96x96x3 float32 from 192x192 JPEGs, decoded and cropped at random with Pillow; the model of W2.
    """

    name = "W4"
    draws = True
    batch_size = FACTS["W4"].batch_size
    spec = MappingProxyType({"image": ((_CROP, _CROP, 3), np.float32), "label": ((), np.int32)})

    def open(self, records: int, folder: str) -> Batch:
        if importlib.util.find_spec("PIL") is None:
            raise NotApplicable("W4 decodes with Pillow, which is not installed (pip install 'staging-tf1[bench]')")
        rng = np.random.default_rng(0)
        files = [_jpeg(rng) for _ in range(records)]
        return {"image": np.array(files, dtype=object), "label": (np.arange(records) % 10).astype(np.int32)}

    def reshape(self, batch: Batch, rng: np.random.Generator, empty: Empty) -> Batch:
        from PIL import Image

        image = empty((len(batch["image"]), _CROP, _CROP, 3), np.uint8)
        corners = rng.integers(0, _SIZE - _CROP + 1, size=(len(image), 2)).tolist()
        for row, file, (left, top) in zip(image, batch["image"], corners):
            with Image.open(io.BytesIO(file)) as decoded:
                row[...] = np.asarray(decoded.crop((left, top, left + _CROP, top + _CROP)))
        return batch | {"image": image}

    def dataset(self, data: Batch, seed: int) -> tuple[Any, dict[Any, Any]]:
        """Decode the whole image with TensorFlow and crop it, as the other systems do with Pillow."""
        holders = {name: tf.placeholder(tf.as_dtype(array.dtype), array.shape) for name, array in data.items()}

        def decode(record: dict[str, Any]) -> dict[str, Any]:
            decoded = tf.io.decode_jpeg(record["image"], channels=3)
            return self.expand(record | {"image": tf.image.random_crop(decoded, (_CROP, _CROP, 3))})

        records = Dataset.from_tensor_slices(holders).shuffle(len(data["label"]), seed=seed).repeat()
        decoded = records.map(decode, num_parallel_calls=tf.data.AUTOTUNE)
        dataset = decoded.batch(self.batch_size, drop_remainder=True)
        return dataset.prefetch(tf.data.AUTOTUNE), {holder: data[name] for name, holder in holders.items()}

    def model(self, batch: dict[str, Any]) -> Any:
        return tf.train.GradientDescentOptimizer(0.01).minimize(convolutional_loss(batch, (16, 32), classes=10))


def _jpeg(rng: np.random.Generator) -> bytes:
    """Return a JPEG with one colour and a texture, so that each crop looks like the whole image."""
    from PIL import Image

    colour = rng.integers(64, 192, size=3)
    texture = np.kron(rng.integers(-32, 33, size=(_SIZE // 8, _SIZE // 8, 1)), np.ones((8, 8, 1), np.int64))
    pixels: Array = (colour + texture + rng.integers(-24, 25, size=(_SIZE, _SIZE, 3))).astype(np.uint8)
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "JPEG", quality=90)
    return file.getvalue()
