"""W1 to W4, W6 and W7: arrays of images and texts in memory, and the models that they train.

Their batches are shuffled record numbers, a gather and a conversion.
"""

from __future__ import annotations

import functools
import importlib.util
import io
from collections.abc import Callable, Iterator, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np

from staging_tf1._tf import Dataset, tf
from staging_tf1.bench import NotApplicable
from staging_tf1.bench.workloads import FACTS
from staging_tf1.bench.workloads.transforms import (
    TOKENS,
    Change,
    cropped,
    delayed,
    flipped,
    scaled,
    tokenized,
    unchanged,
    vocabulary,
)
from staging_tf1.bench.workloads.workload import Array, Batch, Workload
from staging_tf1.sources import ArraySource, Source, aligned_empty

_SIZE, _CROP = 192, 96


class ArrayWorkload(Workload):
    """A workload whose records are rows of arrays: `data` is a dict of arrays, all of the same length."""

    # Transforms the rows before their conversion, while they are bytes. A function of a module that imports no
    # TensorFlow, and no method: worker processes import what they call.
    reshape: Change = staticmethod(unchanged)
    # Whether `reshape` draws random numbers. If not, the source need not make a generator for each batch.
    draws = False

    @property
    def convert(self) -> Change:
        """Converts gathered rows to the model's input."""
        return functools.partial(scaled, before=self.reshape)

    def batches(self, data: Batch, seed: int) -> Iterator[Batch]:
        rng, convert = np.random.default_rng(seed), self.convert
        while True:
            order = rng.permutation(len(data["label"]))
            for start in range(0, len(order), self.batch_size):
                records = order[start : start + self.batch_size]
                yield convert({name: array[records] for name, array in data.items()}, rng, np.empty)

    def source(self, data: Batch, seed: int, *, shuffle: bool = True) -> Source:
        return self._maker(data, seed, shuffle, self.convert)()

    def maker(self, data: Batch, seed: int) -> Callable[[], Source]:
        return self._maker(data, seed, True, self.convert)

    def compact_source(self, data: Batch, seed: int) -> Source:
        return self._maker(data, seed, True, self.reshape)()

    def _maker(self, data: Batch, seed: int, shuffle: bool, change: Change) -> Callable[[], Source]:
        given = {"empty": aligned_empty} if self.draws else {"empty": aligned_empty, "rng": None}
        transform = functools.partial(change, **given)
        return functools.partial(
            ArraySource, data, batch_size=self.batch_size, shuffle=shuffle, seed=seed, transform=transform
        )

    def expand(self, batch: dict[str, Any]) -> dict[str, Any]:
        return batch | {"image": tf.cast(batch["image"], tf.float32) * np.float32(1 / 255)}

    def gathered(self, data: Batch, seed: int) -> tuple[Any, dict[Any, Any]]:
        """Return a dataset of gathered rows. It shuffles record numbers, which needs no buffer of rows.

        The arrays are fed when the iterator is initialized. As constants they would be part of the graph, which is
        limited to 2 GB.
        """
        holders = {name: tf.placeholder(array.dtype, array.shape) for name, array in data.items()}
        numbers = Dataset.range(len(data["label"])).shuffle(len(data["label"]), seed=seed).repeat()

        def gather(records: Any) -> dict[str, Any]:
            return {name: tf.gather(rows, records) for name, rows in holders.items()}

        dataset = numbers.batch(self.batch_size, drop_remainder=True).map(
            lambda records: self.in_graph(gather(records)), num_parallel_calls=tf.data.AUTOTUNE
        )
        return dataset.prefetch(tf.data.AUTOTUNE), {holder: data[name] for name, holder in holders.items()}

    def in_graph(self, batch: dict[str, Any]) -> dict[str, Any]:
        """Convert a batch as `convert` does, in TensorFlow ops."""
        return self.expand(batch)


def random_images(records: int, shape: tuple[int, ...], classes: int) -> Batch:
    """Return `records` images of random bytes. The label is the record's number modulo `classes`."""
    image: Array = np.random.default_rng(0).integers(0, 256, size=(records, *shape), dtype=np.uint8)
    return {"image": image, "label": (np.arange(records) % classes).astype(np.int32)}


class W1(ArrayWorkload):
    """A small step, where feeding takes most of the time.

    128x784 float32 from bytes in memory, gathered and scaled in numpy; softmax regression, Adam.
    """

    name = "W1"
    batch_size = FACTS["W1"].batch_size
    spec = MappingProxyType({"image": ((784,), np.float32), "label": ((), np.int32)})

    def open(self, records: int, folder: str) -> Batch:
        return random_images(records, (784,), classes=10)

    def dataset(self, data: Batch, seed: int) -> tuple[Any, dict[Any, Any]]:
        return self.gathered(data, seed)

    def model(self, batch: dict[str, Any]) -> Any:
        return tf.train.AdamOptimizer(0.001).minimize(dense_loss(batch, hidden=(), classes=10))


class W2(ArrayWorkload):
    """Large batches and a step that keeps the cores busy.

    64x96x96x3 float32 from bytes in memory, gathered, flipped, scaled in numpy; two convolutions, SGD.
    """

    name = "W2"
    reshape = staticmethod(flipped)
    draws = True
    batch_size = FACTS["W2"].batch_size
    spec = MappingProxyType({"image": ((96, 96, 3), np.float32), "label": ((), np.int32)})

    def open(self, records: int, folder: str) -> Batch:
        return random_images(records, (96, 96, 3), classes=10)

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
    reshape = staticmethod(delayed)

    def dataset(self, data: Batch, seed: int) -> tuple[Any, dict[Any, Any]]:
        raise NotApplicable("W3 waits in Python; tf.data cannot make its batches in TensorFlow ops")

    def model(self, batch: dict[str, Any]) -> Any:
        return tf.train.GradientDescentOptimizer(0.01).minimize(dense_loss(batch, hidden=(896, 896), classes=10))


class W4(ArrayWorkload):
    """Decoding in Python.

    16x96x96x3 float32 from 192x192 JPEGs, decoded and cropped at random with Pillow; the model of W2.
    """

    name = "W4"
    reshape = staticmethod(cropped)
    draws = True
    batch_size = FACTS["W4"].batch_size
    spec = MappingProxyType({"image": ((_CROP, _CROP, 3), np.float32), "label": ((), np.int32)})

    def open(self, records: int, folder: str) -> Batch:
        if importlib.util.find_spec("PIL") is None:
            raise NotApplicable("W4 decodes with Pillow, which is not installed (pip install 'staging-tf1[bench]')")
        rng = np.random.default_rng(0)
        files = [_jpeg(rng) for _ in range(records)]
        return {"image": np.array(files, dtype=object), "label": (np.arange(records) % 10).astype(np.int32)}

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


class W6(ArrayWorkload):
    """Pure Python, which holds the GIL.

    256 short texts, each cut into the longest pieces of a vocabulary and padded; an embedding, a hidden layer, SGD.
    """

    name = "W6"
    reshape = staticmethod(tokenized)
    batch_size = FACTS["W6"].batch_size
    spec = MappingProxyType({"tokens": ((TOKENS,), np.int32), "label": ((), np.int32)})

    @property
    def convert(self) -> Change:
        return self.reshape

    def open(self, records: int, folder: str) -> Batch:
        rng = np.random.default_rng(0)
        texts = np.array(_texts(rng, records), dtype=object)
        return {"text": texts, "label": (np.arange(records) % 10).astype(np.int32)}

    def compact_source(self, data: Batch, seed: int) -> Source:
        raise NotApplicable("W6 has no compact form of its batches")

    def dataset(self, data: Batch, seed: int) -> tuple[Any, dict[Any, Any]]:
        raise NotApplicable("W6 cuts texts in Python; tf.data cannot make its batches in TensorFlow ops")

    def model(self, batch: dict[str, Any]) -> Any:
        loss = text_loss(batch, pieces=len(vocabulary()) + 2, width=64, hidden=(384,), classes=10)
        return tf.train.GradientDescentOptimizer(0.01).minimize(loss)


class W7(ArrayWorkload):
    """Large batches from small work.

    64x320x320x3 bytes, 20 MB, gathered from memory and staged as they are; no model.
    """

    name = "W7"
    batch_size = FACTS["W7"].batch_size
    spec = MappingProxyType({"image": ((320, 320, 3), np.uint8), "label": ((), np.int32)})

    @property
    def convert(self) -> Change:
        return self.reshape

    def open(self, records: int, folder: str) -> Batch:
        return random_images(records, (320, 320, 3), classes=10)

    def compact_source(self, data: Batch, seed: int) -> Source:
        raise NotApplicable("W7 stages bytes in any case")

    def expand(self, batch: dict[str, Any]) -> dict[str, Any]:
        return batch

    def dataset(self, data: Batch, seed: int) -> tuple[Any, dict[Any, Any]]:
        return self.gathered(data, seed)

    def model(self, batch: dict[str, Any]) -> Any:
        # An op has no value. Fetching the images would copy them.
        return tf.group(*batch.values())


def _jpeg(rng: np.random.Generator) -> bytes:
    """Return a JPEG with one colour and a texture, so that each crop looks like the whole image."""
    from PIL import Image

    colour = rng.integers(64, 192, size=3)
    texture = np.kron(rng.integers(-32, 33, size=(_SIZE // 8, _SIZE // 8, 1)), np.ones((8, 8, 1), np.int64))
    pixels: Array = (colour + texture + rng.integers(-24, 25, size=(_SIZE, _SIZE, 3))).astype(np.uint8)
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "JPEG", quality=90)
    return file.getvalue()


def _texts(rng: np.random.Generator, count: int) -> list[bytes]:
    """Return texts of 6 to 11 words of 2 to 8 letters."""
    words = rng.integers(6, 12, size=count)
    lengths = rng.integers(2, 9, size=words.sum())
    letters = rng.integers(ord("a"), ord("z") + 1, size=lengths.sum(), dtype=np.uint8).tobytes()
    ends = np.cumsum(lengths)
    all_words = [letters[begin:end] for begin, end in zip((ends - lengths).tolist(), ends.tolist())]
    last = np.cumsum(words)
    return [b" ".join(all_words[begin:end]) for begin, end in zip((last - words).tolist(), last.tolist())]


def dense_loss(batch: dict[str, Any], hidden: Sequence[int], classes: int) -> Any:
    """Return the mean cross-entropy of dense layers on flat images. Without hidden layers: a softmax regression."""
    return _layers_loss(batch["image"], batch["label"], hidden, classes)


def convolutional_loss(batch: dict[str, Any], channels: Sequence[int], classes: int) -> Any:
    """Return the mean cross-entropy of 5x5 convolutions with ReLU, a mean over the image, and a dense layer."""
    values = batch["image"]
    for index, units in enumerate(channels):
        kernel = _weights(f"conv{index}", [5, 5, values.shape[-1], units])
        values = tf.nn.relu(tf.nn.conv2d(values, kernel, strides=4 if index == 0 else 2, padding="SAME"))
    return _cross_entropy(_dense("logits", tf.reduce_mean(values, axis=[1, 2]), classes), batch["label"])


def text_loss(batch: dict[str, Any], pieces: int, width: int, hidden: Sequence[int], classes: int) -> Any:
    """Return the mean cross-entropy of dense layers on the mean embedding of a text's tokens. Token 0 is padding."""
    embedded = tf.gather(_weights("embedding", [pieces, width]), batch["tokens"])
    present = tf.cast(batch["tokens"] > 0, tf.float32)[:, :, None]
    mean = tf.reduce_sum(embedded * present, axis=1) / (tf.reduce_sum(present, axis=1) + 1.0)
    return _layers_loss(mean, batch["label"], hidden, classes)


def _layers_loss(values: Any, labels: Any, hidden: Sequence[int], classes: int) -> Any:
    for index, units in enumerate(hidden):
        values = tf.nn.relu(_dense(f"hidden{index}", values, units))
    return _cross_entropy(_dense("logits", values, classes), labels)


def _dense(name: str, values: Any, units: int) -> Any:
    bias = tf.get_variable(f"{name}/bias", [units], initializer=tf.initializers.zeros())
    return tf.matmul(values, _weights(name, [values.shape[1], units])) + bias


def _weights(name: str, shape: list[Any]) -> Any:
    return tf.get_variable(f"{name}/weights", shape, initializer=tf.initializers.glorot_uniform())


def _cross_entropy(logits: Any, labels: Any) -> Any:
    return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits))
