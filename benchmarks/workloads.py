"""The workloads W1 to W8: a source, and the training step that it feeds."""

from __future__ import annotations

import functools
import importlib.util
import io
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np
import tensorflow as tf2
import tensorflow.compat.v1 as tf
from transforms import (
    TOKENS,
    Array,
    Batch,
    Change,
    cropped,
    delayed,
    flipped,
    scaled,
    tokenized,
    unchanged,
    vocabulary,
)

from staging_tf1.sources import ArraySource, Source, TFRecordSource, aligned_empty, write_tfrecords
from staging_tf1.sources.files.tfrecord_index import cache_dir

Dataset = tf.data.Dataset
_SIZE, _CROP = 192, 96
# W5: the bytes of a record, and the size of the shuffle buffer, a usual one in tutorials of tf.data.
_BYTES, _BUFFER = 1024, 10_000


class NotApplicable(Exception):
    """A system cannot feed this workload or is not installed, and is skipped. The message says why."""


class Workload:
    """Rows of arrays in memory, in several forms: each system uses the form that suits it best.

    The first line of the docstring of a workload is its title in tables and in `--help`.

    Attributes:
      batch_size: records per batch.
      records: the number of records, and that with `--quick`. Multiples of the batch size: all batches are full.
      spec: component name to (shape of a record, numpy dtype), as passed to the model.
      reference: the system whose time is the bound; None if the bound is computed.
      intra_op: the cores that one op of the step uses; 0 leaves the choice to TensorFlow.
      for_processes: whether worker processes suit it: a batch takes milliseconds of Python, or is large.
      change: transforms the rows while they are bytes. A function of a module that imports no TensorFlow, and no
        method: worker processes import what they call.
      draws: whether `change` draws random numbers. If not, the source need not make a generator for each batch.
      scales: whether the batches are converted from bytes to float32. They have a compact form then: the bytes.
    """

    batch_size: int
    records: tuple[int, int]
    spec: Mapping[str, tuple[tuple[int, ...], Any]]
    reference: str | None = None
    intra_op = 0
    for_processes = False
    change: Change = staticmethod(unchanged)
    draws = False
    scales = True

    @property
    def name(self) -> str:
        return type(self).__name__

    @property
    def title(self) -> str:
        """Return the name and the first line of the docstring."""
        return f"{self.name}: {str(self.__doc__).splitlines()[0].rstrip('.')}"

    def open(self, records: int) -> Any:
        """Make the data: `records` records, always the same."""
        raise NotImplementedError

    def model(self, batch: dict[str, Any]) -> Any:
        """Build the training step on the tensors of a batch, and return its fetches."""
        raise NotImplementedError

    def batches(self, data: Any, seed: int) -> Iterator[Batch]:
        """Yield batches without end, in plain numpy, as written by hand. Each is a dict of new arrays."""
        rng, change = np.random.default_rng(seed), self._whole_change
        while True:
            order = rng.permutation(len(data["label"]))
            for start in range(0, len(order), self.batch_size):
                records = order[start : start + self.batch_size]
                yield change({name: array[records] for name, array in data.items()}, rng, np.empty)

    def source(self, data: Any, seed: int, *, shuffle: bool = True) -> Source:
        """Return an endless source of this package with the same batches."""
        return self._maker(data, seed, self._whole_change, shuffle)()

    def maker(self, data: Any, seed: int) -> Callable[[], Source]:
        """Return a function that makes `source`, in a form that can be sent to worker processes."""
        return self._maker(data, seed, self._whole_change)

    def compact_source(self, data: Any, seed: int) -> Source:
        """Return a source of batches in the smallest dtype, which `expand` converts in the step."""
        if not self.scales:
            raise NotApplicable(f"{self.name} has no smaller form of its batches")
        return self._maker(data, seed, self.change)()

    def mapped(self, data: Any, seed: int) -> tuple[Source, Callable[..., Any]]:
        """Return a source of what is in memory or in a file, and a `map_fn` that does the rest in TensorFlow ops."""
        raise NotApplicable(f"{self.name} does nothing that TensorFlow ops do")

    def rows(self, data: Any, seed: int) -> Source:
        """Return a source of the rows as they are."""
        return ArraySource(data, batch_size=self.batch_size, shuffle=True, seed=seed)

    def expand(self, batch: dict[str, Any]) -> dict[str, Any]:
        """Convert the tensors of a compact batch to those of `spec`."""
        if not self.scales:
            return batch
        return batch | {"image": tf.cast(batch["image"], tf.float32) * np.float32(1 / 255)}

    def named(self, staged: Any) -> dict[str, Any]:
        """Return the tensors of a batch of `source` or `compact_source`, by component name."""
        return staged

    def dataset(self, data: Any, seed: int) -> tuple[Any, dict[Any, Any]]:
        """Return a `tf.data.Dataset` of batches in TensorFlow ops, and the feeds of its iterator's initializer.

        It shuffles record numbers, which needs no buffer of rows. The arrays are fed when the iterator is initialized:
        as constants they would be part of the graph, which is limited to 2 GB.
        """
        holders = {name: tf.placeholder(array.dtype, array.shape) for name, array in data.items()}
        numbers = Dataset.range(len(data["label"])).shuffle(len(data["label"]), seed=seed).repeat()

        def gather(records: Any) -> dict[str, Any]:
            return self.in_graph({name: tf.gather(rows, records) for name, rows in holders.items()})

        batches = numbers.batch(self.batch_size, drop_remainder=True)
        return _prefetched(batches.map(gather, num_parallel_calls=tf.data.AUTOTUNE), holders, data)

    def shuffled_dataset(self, data: Any, seed: int) -> tuple[Any, dict[Any, Any]]:
        """Return `dataset` with a shuffle buffer, for workloads whose `dataset` reads front to back."""
        raise NotApplicable(f"tf_data already shuffles all of {self.name}")

    def in_graph(self, batch: dict[str, Any]) -> dict[str, Any]:
        """Change and convert a batch of gathered rows, in TensorFlow ops."""
        return self.expand(batch)

    @property
    def _whole_change(self) -> Change:
        return functools.partial(scaled, before=self.change) if self.scales else self.change

    def _maker(self, data: Any, seed: int, change: Change, shuffle: bool = True) -> Callable[[], Source]:
        given = {"empty": aligned_empty} if self.draws else {"empty": aligned_empty, "rng": None}
        transform = functools.partial(change, **given)
        return functools.partial(
            ArraySource, data, batch_size=self.batch_size, shuffle=shuffle, seed=seed, transform=transform
        )


class W1(Workload):
    """128x784 float32 from bytes; softmax regression, Adam: overhead per step."""

    batch_size = 128
    records = (128 * 400, 128 * 8)
    spec = MappingProxyType({"image": ((784,), np.float32), "label": ((), np.int32)})

    def open(self, records: int) -> Batch:
        return random_images(records, (784,))

    def model(self, batch: dict[str, Any]) -> Any:
        return tf.train.AdamOptimizer(0.001).minimize(layers_loss(batch["image"], batch["label"], hidden=()))

    def mapped(self, data: Batch, seed: int) -> tuple[Source, Callable[..., Any]]:
        return self.rows(data, seed), lambda batch: self.expand(batch)


class W2(Workload):
    """64x96x96x3 float32 from bytes, flipped; two convolutions, SGD: copies, busy cores."""

    change = staticmethod(flipped)
    draws = True
    batch_size = 64
    records = (64 * 64, 64 * 2)
    spec = MappingProxyType({"image": ((96, 96, 3), np.float32), "label": ((), np.int32)})

    def open(self, records: int) -> Batch:
        return random_images(records, (96, 96, 3))

    def in_graph(self, batch: dict[str, Any]) -> dict[str, Any]:
        return self.expand(batch | {"image": tf.image.random_flip_left_right(batch["image"])})

    def mapped(self, data: Batch, seed: int) -> tuple[Source, Callable[..., Any]]:
        def change(batch: dict[str, Any], seed: Any) -> dict[str, Any]:
            images = tf2.image.stateless_random_flip_left_right(batch["image"], seed)
            return self.expand(batch | {"image": images})

        return self.rows(data, seed), change

    def model(self, batch: dict[str, Any]) -> Any:
        return tf.train.GradientDescentOptimizer(0.01).minimize(convolutional_loss(batch))


class W3(W1):
    """As W1, each batch waits 20 ms like remote storage; two hidden layers of 896, SGD: latency."""

    change = staticmethod(delayed)

    def dataset(self, data: Batch, seed: int) -> tuple[Any, dict[Any, Any]]:
        raise NotApplicable("W3 waits in Python; tf.data cannot make its batches in TensorFlow ops")

    def mapped(self, data: Batch, seed: int) -> tuple[Source, Callable[..., Any]]:
        raise NotApplicable("W3 waits in Python")

    def model(self, batch: dict[str, Any]) -> Any:
        loss = layers_loss(batch["image"], batch["label"], hidden=(896, 896))
        return tf.train.GradientDescentOptimizer(0.01).minimize(loss)


class W4(W2):
    """16x96x96x3 float32 from 192x192 JPEGs, cropped at random by Pillow; the model of W2: decoding in Python."""

    change = staticmethod(cropped)
    for_processes = True
    batch_size = 16
    records = (16 * 32, 16 * 2)

    def open(self, records: int) -> Batch:
        if importlib.util.find_spec("PIL") is None:
            raise NotApplicable("W4 decodes with Pillow, which is not installed (pip install pillow)")
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
        return _prefetched(decoded.batch(self.batch_size, drop_remainder=True), holders, data)

    def mapped(self, data: Batch, seed: int) -> tuple[Source, Callable[..., Any]]:
        return self.rows(data, seed), self.decoded

    def decoded(self, batch: dict[str, Any], seed: Any) -> dict[str, Any]:
        """Decode, crop and convert the JPEGs of a batch."""
        size = self.batch_size
        # A seed for each image of each batch.
        seeds = tf.stack([tf.fill([size], seed[0]), seed[1] * size + tf.range(size, dtype=tf.int64)], axis=1)
        images = tf.map_fn(self._decoded, (batch["image"], seeds), fn_output_signature=tf.uint8)
        return self.expand(batch | {"image": tf.ensure_shape(images, [size, _CROP, _CROP, 3])})

    def _decoded(self, image_and_seed: Any) -> Any:
        image, seed = image_and_seed
        return tf2.image.stateless_random_crop(tf.io.decode_jpeg(image, channels=3), (_CROP, _CROP, 3), seed)


class W5(Workload):
    """256 records of 1 KB from a TFRecord file of 10^6, shuffled; no model: reading.

    The file is made once, in the folder of the indexes. Record `i` starts with `i` as eight bytes.
    """

    reference = "tf_data"
    batch_size = 256
    records = (256 * 3906, 256 * 4)
    spec = MappingProxyType({"record": ((), np.object_)})

    def open(self, records: int) -> str:
        os.makedirs(cache_dir(), exist_ok=True)
        path = os.path.join(cache_dir(), f"w5-{records}x{_BYTES}.tfrecord")
        if not os.path.exists(path):
            noise = np.random.default_rng(0).bytes(_BYTES - 8)
            write_tfrecords((number.to_bytes(8, "little") + noise for number in range(records)), path)
        return path

    def batches(self, data: str, seed: int) -> Iterator[Batch]:
        """Yield the batches front to back: without an index, a TFRecord file does not support random access."""
        while True:
            batch: list[bytes] = []
            for record in tf.io.tf_record_iterator(data):
                batch.append(record)
                if len(batch) == self.batch_size:
                    yield {"record": np.array(batch, dtype=object)}
                    batch = []

    def source(self, data: str, seed: int, *, shuffle: bool = True) -> Source:
        return TFRecordSource(data, batch_size=self.batch_size, shuffle=shuffle, seed=seed)

    def compact_source(self, data: str, seed: int) -> Source:
        return TFRecordSource(data, batch_size=self.batch_size, shuffle=True, seed=seed, as_uint8=True)

    def named(self, staged: Any) -> dict[str, Any]:
        return {"record": staged}

    def expand(self, batch: dict[str, Any]) -> dict[str, Any]:
        """Return the batch unchanged: a model would use the fixed-length bytes directly."""
        return batch

    def dataset(self, data: str, seed: int) -> tuple[Any, dict[Any, Any]]:
        """Return a dataset that reads front to back, which is tf.data's fastest way."""
        return self._batched(tf.data.TFRecordDataset(data).repeat())

    def shuffled_dataset(self, data: str, seed: int) -> tuple[Any, dict[Any, Any]]:
        return self._batched(tf.data.TFRecordDataset(data).repeat().shuffle(_BUFFER, seed=seed))

    def _batched(self, records: Any) -> tuple[Any, dict[Any, Any]]:
        batches = records.batch(self.batch_size, drop_remainder=True).map(lambda record: {"record": record})
        return batches.prefetch(2), {}

    def model(self, batch: dict[str, Any]) -> Any:
        # An op has no value. Fetching the records would copy 256 KB per step.
        return tf.group(batch["record"])


class W6(Workload):
    """256 texts cut into 32 pieces of a vocabulary; an embedding and a layer of 384 on one core: pure Python."""

    change = staticmethod(tokenized)
    scales = False
    intra_op = 1
    for_processes = True
    batch_size = 256
    records = (256 * 32, 256 * 2)
    spec = MappingProxyType({"tokens": ((TOKENS,), np.int32), "label": ((), np.int32)})

    def open(self, records: int) -> Batch:
        texts = np.array(_texts(np.random.default_rng(0), records), dtype=object)
        return {"text": texts, "label": (np.arange(records) % 10).astype(np.int32)}

    def dataset(self, data: Batch, seed: int) -> tuple[Any, dict[Any, Any]]:
        raise NotApplicable("W6 cuts texts in Python; tf.data cannot make its batches in TensorFlow ops")

    def model(self, batch: dict[str, Any]) -> Any:
        embedded = tf.gather(_weights("embedding", [len(vocabulary()) + 2, 64]), batch["tokens"])
        present = tf.cast(batch["tokens"] > 0, tf.float32)[:, :, None]  # token 0 is padding
        mean = tf.reduce_sum(embedded * present, axis=1) / (tf.reduce_sum(present, axis=1) + 1.0)
        return tf.train.GradientDescentOptimizer(0.01).minimize(layers_loss(mean, batch["label"], hidden=(384,)))


class W7(Workload):
    """64x320x320x3 bytes, 20 MB, gathered and staged as they are; no model: large batches."""

    reference = "memcpy"
    scales = False
    for_processes = True
    batch_size = 64
    records = (64 * 8, 64 * 2)
    spec = MappingProxyType({"image": ((320, 320, 3), np.uint8), "label": ((), np.int32)})

    def open(self, records: int) -> Batch:
        return random_images(records, (320, 320, 3))

    def model(self, batch: dict[str, Any]) -> Any:
        # An op has no value. Fetching the images would copy them.
        return tf.group(*batch.values())


class W8(W4):
    """As W4 from a TFRecord file of Examples, flipped at random, too; TensorFlow ops where a system has them."""

    _FEATURES = MappingProxyType(
        {"image": tf.io.FixedLenFeature([], tf.string), "label": tf.io.FixedLenFeature([], tf.int64)}
    )

    def open(self, records: int) -> Batch:
        data = super().open(records)
        os.makedirs(cache_dir(), exist_ok=True)
        if not os.path.exists(self._path(data)):
            write_tfrecords(map(_example, data["image"], data["label"]), self._path(data))
        return data

    def mapped(self, data: Batch, seed: int) -> tuple[Source, Callable[..., Any]]:
        options = dict(batch_size=self.batch_size, shuffle=True, seed=seed, drop_remainder=True)
        return TFRecordSource(self._path(data), **options), self.parsed

    def parsed(self, batch: Any, seed: Any) -> dict[str, Any]:
        """Do the same from the bytes of the records."""
        parsed = tf.io.parse_example(batch, dict(self._FEATURES))
        return self.decoded(parsed | {"label": tf.cast(parsed["label"], tf.int32)}, seed)

    def dataset(self, data: Batch, seed: int) -> tuple[Any, dict[Any, Any]]:
        records = tf.data.TFRecordDataset(self._path(data)).repeat().shuffle(len(data["label"]), seed=seed)

        def decode(record: Any, number: Any) -> dict[str, Any]:
            parsed = tf.io.parse_single_example(record, dict(self._FEATURES))
            image = self._decoded((parsed["image"], tf.stack([tf.constant(seed, tf.int64), number])))
            return self.expand({"image": image, "label": tf.cast(parsed["label"], tf.int32)})

        numbered = Dataset.zip((records, Dataset.range(2**62)))
        decoded = numbered.map(decode, num_parallel_calls=tf.data.AUTOTUNE)
        return decoded.batch(self.batch_size, drop_remainder=True).prefetch(tf.data.AUTOTUNE), {}

    def _decoded(self, image_and_seed: Any) -> Any:
        return tf2.image.stateless_random_flip_left_right(super()._decoded(image_and_seed), image_and_seed[1])

    @staticmethod
    def _path(data: Batch) -> str:
        return os.path.join(cache_dir(), f"w8-{len(data['label'])}x{_SIZE}.tfrecord")


WORKLOADS: dict[str, Workload] = {each.name: each for each in (W1(), W2(), W3(), W4(), W5(), W6(), W7(), W8())}


def random_images(records: int, shape: tuple[int, ...]) -> Batch:
    """Return `records` images of random bytes. The label is the last digit of the record's number."""
    image: Array = np.random.default_rng(0).integers(0, 256, size=(records, *shape), dtype=np.uint8)
    return {"image": image, "label": (np.arange(records) % 10).astype(np.int32)}


def layers_loss(values: Any, labels: Any, hidden: Sequence[int]) -> Any:
    """Return the mean cross-entropy of dense layers. Without hidden layers: a softmax regression."""
    for index, units in enumerate(hidden):
        values = tf.nn.relu(_dense(f"hidden{index}", values, units))
    logits = _dense("logits", values, 10)
    return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits))


def convolutional_loss(batch: dict[str, Any]) -> Any:
    """Return the mean cross-entropy of two 5x5 convolutions with ReLU, a mean over the image, and a dense layer."""
    values = batch["image"]
    for index, (units, strides) in enumerate([(16, 4), (32, 2)]):
        kernel = _weights(f"conv{index}", [5, 5, values.shape[-1], units])
        values = tf.nn.relu(tf.nn.conv2d(values, kernel, strides=strides, padding="SAME"))
    return layers_loss(tf.reduce_mean(values, axis=[1, 2]), batch["label"], hidden=())


def _dense(name: str, values: Any, units: int) -> Any:
    bias = tf.get_variable(f"{name}/bias", [units], initializer=tf.initializers.zeros())
    return tf.matmul(values, _weights(name, [values.shape[1], units])) + bias


def _weights(name: str, shape: list[Any]) -> Any:
    return tf.get_variable(f"{name}/weights", shape, initializer=tf.initializers.glorot_uniform())


def _prefetched(dataset: Any, holders: dict[str, Any], data: Batch) -> tuple[Any, dict[Any, Any]]:
    return dataset.prefetch(tf.data.AUTOTUNE), {holder: data[name] for name, holder in holders.items()}


def _jpeg(rng: np.random.Generator) -> bytes:
    """Return a JPEG with one colour and a texture, so that each crop looks like the whole image."""
    from PIL import Image

    colour = rng.integers(64, 192, size=3)
    texture = np.kron(rng.integers(-32, 33, size=(_SIZE // 8, _SIZE // 8, 1)), np.ones((8, 8, 1), np.int64))
    pixels: Array = (colour + texture + rng.integers(-24, 25, size=(_SIZE, _SIZE, 3))).astype(np.uint8)
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "JPEG", quality=90)
    return file.getvalue()


def _example(image: bytes, label: int) -> bytes:
    feature = {
        "image": tf.train.Feature(bytes_list=tf.train.BytesList(value=[image])),
        "label": tf.train.Feature(int64_list=tf.train.Int64List(value=[label])),
    }
    return bytes(tf.train.Example(features=tf.train.Features(feature=feature)).SerializeToString())


def _texts(rng: np.random.Generator, count: int) -> list[bytes]:
    """Return texts of 6 to 11 words of 2 to 8 letters."""
    words = rng.integers(6, 12, size=count)
    lengths = rng.integers(2, 9, size=words.sum())
    letters = rng.integers(ord("a"), ord("z") + 1, size=lengths.sum(), dtype=np.uint8).tobytes()
    ends = np.cumsum(lengths)
    all_words = [letters[begin:end] for begin, end in zip((ends - lengths).tolist(), ends.tolist())]
    last = np.cumsum(words)
    return [b" ".join(all_words[begin:end]) for begin, end in zip((last - words).tolist(), last.tolist())]
