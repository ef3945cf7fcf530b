"""`cached()`: builds a cache with random access from any dataset, once; and `CachedSource`, which reads it."""

from __future__ import annotations

import json
import os
from functools import cached_property
from typing import Any, Literal

import numpy as np

from staging_tf1 import arguments
from staging_tf1.arguments import INT64_MAX, MOST_THREADS
from staging_tf1.errors import RecordFileError
from staging_tf1.sources.batches import Options
from staging_tf1.sources.columns.build import built
from staging_tf1.sources.columns.folder import cache_path, mapped
from staging_tf1.sources.columns.inputs import ReadOptions, input_for
from staging_tf1.sources.columns.key import changes, files_key, version_key
from staging_tf1.sources.columns.manifest import decoded
from staging_tf1.sources.order import numbers_of
from staging_tf1.sources.records import RecordSource
from staging_tf1.sources.stacking import stack_records
from staging_tf1.sources.transform import Transform
from staging_tf1.spec import ArraySpec, pack, with_batch_dim


def cached(
    data: Any,
    path: Any,
    *,
    batch_size: int,
    batched: bool = False,
    limit: int | None = None,
    version: str | int | None = None,
    files: Any = None,
    if_changed: Literal["rebuild", "error"] = "rebuild",
    threads: int = 1,
    thread_safe: bool = True,
    progress: bool = True,
    shuffle: bool = False,
    seed: int | None = None,
    epochs: int | None = None,
    shard: tuple[int, int] | None = None,
    drop_remainder: bool = False,
    across_epochs: bool = False,
    transform: Transform | None = None,
) -> CachedSource:
    """Store all records of a dataset in files once, and return the source that reads them in any order.

    If the cache is there and up to date, the data is not read, except for the first record or batch of an object with
    `__getitem__`, or of a source whose batches a function makes, to learn its components. If several processes start at
    the same time, one builds the cache and the others wait. A build that fails or is killed leaves no partial cache.

    The cache is rebuilt if anything that is known without reading the data has changed: `version`, `files`, `limit`,
    `batched`, and, where the data has them, its components, its length, and the options of a source. A change of the
    content alone, or of a function, is not detected: change `version`.

    Args:
      data: a `tf.data.Dataset` of records; a generator function, or another function that returns one of these; an
        iterable of records; an object with `__len__` and `__getitem__`; a nest of arrays; or a source. A record is an
        array, number or string, or a nest of these. Sizes may differ by record. The records of a source are stored
        once, in their own order, after its transform.
      path: the folder of the cache. It is created, with its parent folders.
      batched: whether the elements of `data` are batches of records.
      limit: the most records to store. None stores all.
      version: a string or number that you change when the data has changed.
      files: the files that the data comes from: paths or globs. A new size or time makes the cache out of date.
      if_changed: what to do if the cache is out of date: "rebuild" it, or raise an "error".
      threads, thread_safe: how data with `__getitem__` is read while the cache is built; see `MapSource`.
      progress: whether to show a progress bar if stderr is a terminal.
      batch_size, shuffle, seed, epochs, shard, drop_remainder, across_epochs, transform: of the source that is
        returned, as in `RecordSource`. Pass an augmentation as its `transform`, which is applied to each batch anew.

    Raises:
      SpecError: there are no records, or a record differs from the first in its structure, a dtype or a rank.
      RecordFileError: the cache cannot be written or read, was changed, or is out of date.
      TypeError, ValueError: an argument is invalid, or the data never ends and `limit` is None.

    >>> def squares():
    ...     for i in range(10):
    ...         yield {"i": i, "square": i * i}
    >>> source = cached(squares, "squares", batch_size=4, epochs=1)
    >>> source.num_records, source.batch(2)
    (10, {'i': array([8, 9]), 'square': array([64, 81])})
    """
    options = Options(batch_size, shuffle, seed, epochs, shard, drop_remainder, across_epochs, transform)
    options.checked("cached()")
    name = cache_path("cached()", "path", path)
    if os.path.realpath(name) == os.getcwd():
        expected = "another folder than the current one, which a cache would replace"
        arguments.refuse("cached()", "path", path, expected, ValueError)
    batched = arguments.flag("cached()", "batched", batched)
    if limit is not None:
        limit = arguments.whole("cached()", "limit", limit, 1, INT64_MAX, "records")
    arguments.choice("cached()", "if_changed", if_changed, ("rebuild", "error"))
    threads = arguments.whole("cached()", "threads", threads, 1, MOST_THREADS)
    thread_safe = arguments.flag("cached()", "thread_safe", thread_safe)
    progress = arguments.flag("cached()", "progress", progress)
    known = {"version": version_key(version), "files": files_key(files)}
    read = input_for(data, ReadOptions(batched, limit, threads, thread_safe))
    # As the manifest has it: JSON knows no tuples.
    key: dict[str, Any] = json.loads(json.dumps({**known, "batched": batched, "limit": limit, **read.key}))
    built(name, read._replace(key=key), limit, if_changed, progress)
    source = CachedSource(path, **vars(options))
    others = changes(source._key, key)
    if others:
        raise RecordFileError(
            f"cached(): another program has replaced the cache {source.path!r} just now, from other data: "
            f"{'; '.join(others)}. Give each of them its own path."
        )
    return source


class CachedSource(RecordSource):
    """The records of a cache that exists already. `cached` builds one and returns its `CachedSource`.

    The files are mapped. A batch copies its own records, and reads no others. Records whose sizes differ need `pad`,
    as in a `MapSource`.

    Args:
      path: the folder of the cache.
      batch_size, shuffle, seed, epochs, shard, drop_remainder, across_epochs, transform: as in `RecordSource`.

    Raises:
      RecordFileError: there is no cache, it was written by a release with another format, or a file is missing or was
        changed.
      TypeError, ValueError: an argument is invalid.
    """

    def __init__(
        self,
        path: Any,
        *,
        batch_size: int,
        shuffle: bool = False,
        seed: int | None = None,
        epochs: int | None = None,
        shard: tuple[int, int] | None = None,
        drop_remainder: bool = False,
        across_epochs: bool = False,
        transform: Transform | None = None,
    ) -> None:
        self.path = cache_path(self._owner, "path", path)
        self._opened = _Opened(self.path)
        manifest = self._opened.manifest
        self._key = manifest.key
        self._varies = any(component.varies for component in manifest.components)
        options = Options(batch_size, shuffle, seed, epochs, shard, drop_remainder, across_epochs, transform)
        self._set_up(manifest.num_records, options)

    @property
    def _copies_rows(self) -> bool:  # type: ignore[override]
        # A subclass may do more.
        return type(self) is CachedSource and not self._varies

    def record_spec(self, batch_dim: int | None) -> Any:
        return with_batch_dim(self._specs, batch_dim)

    @cached_property
    def _specs(self) -> Any:
        """The specs of batches of any size. Kept, because every batch of records whose shapes differ needs them."""
        columns = self._opened.columns
        shapes = [column.component.shape for column in columns]
        if self._varies:
            shapes = [column.singles([0])[0].shape for column in columns]
        specs = [
            ArraySpec((None, *shape), column.dtype, column.component.path or None)
            for shape, column in zip(shapes, columns)
        ]
        return pack(self._opened.like, specs)

    def gather(self, records: np.ndarray[Any, Any] | slice) -> Any:
        if not self._varies:
            return pack(self._opened.like, [column.rows(records) for column in self._opened.columns])
        numbers = numbers_of(records)
        paired = self._read_single(numbers)
        return stack_records(self._specs, paired, len(numbers), self._describe, "the cache")

    def _read_single(self, numbers: np.ndarray[Any, Any]) -> list[tuple[int, Any]]:
        listed, like = numbers.tolist(), self._opened.like
        columns = [column.singles(listed) for column in self._opened.columns]
        return [(number, pack(like, row)) for number, row in zip(listed, zip(*columns), strict=True)]

    def fingerprint(self) -> dict[str, int | str]:
        """Return what `Source.fingerprint` describes, with a digest of the records."""
        return {**super().fingerprint(), "content": self._opened.manifest.content}


class _Opened:
    """The mapped files of a cache. Another process maps them again, once for all sources that share this object.

    Args:
      path: the folder of the cache.
      content: the digest of the records that must be in it; None for any.
    """

    def __init__(self, path: str, content: str | None = None) -> None:
        # The other process may have another working directory.
        self._path = os.path.abspath(path)
        self.manifest, self.columns = mapped(path)
        # The nest of columns, for its structure.
        self.like = decoded(self.manifest.structure, self.columns)
        if content not in (None, self.manifest.content):
            raise RecordFileError(
                f"the cache {path!r} was replaced by one with other records while this program uses it. Start the "
                f"program again, or give each cache a path of its own."
            )

    def __reduce__(self) -> Any:
        return _Opened, (self._path, self.manifest.content)
