"""`RemoteFile`: a file with a URL, listed, identified and read by ranges through the package `fsspec`.

Requests go through a `Store`.
"""

from __future__ import annotations

import asyncio
import dataclasses
import functools
import hashlib
import importlib
import re
import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from typing import Any, TypeVar

from staging_tf1.errors import RecordFileError
from staging_tf1.sources.files.store import TIMEOUT_SECS, SlowError, Store, failure, open_driver, retried, submitted

# A request may take a second longer for each MiB that is read at the same time.
_BYTES_PER_SEC = 1 << 20
# A listing consists of many requests.
_LISTING = 10

# What drivers call the entry that changes with the content. The first that a file has identifies it.
_VERSIONS = """generation ETag etag Content-MD5 md5Hash content_md5 checksum VersionId version_id mtime LastModified
    Last-Modified last_modified updated modified modify blob_id sha created""".split()
_LOOKS = 64  # at the same time
# A longer range is read by several requests.
_BLOCK_BYTES = 8 << 20
_BLOCKS = 4
# Records so near to each other are read by one request: it takes longer than these bytes.
_GAP_BYTES = 8 << 10

# The URL that each thread waits for.
_read_by: dict[int, str] = {}
# Called with the URL that some thread waits for, or "".
_noted: Callable[[str], object] = len

_Result = TypeVar("_Result")


@dataclasses.dataclass(frozen=True)
class RemoteFile:
    """A file with a URL, as it was when the source was created.

    Attributes:
      url: the file.
      given: the URL or glob that the user passed. It names the file system, with its options.
      path: the file in that file system.
      size: in bytes.
      version: what tells the file from another one at its URL, such as its ETag; "" if the store does not say.
      version_key: what the driver calls it.
      timeout_secs: how long a request may take, as in `TFRecordSource`.
    """

    url: str
    given: str
    path: str
    size: int
    version: str
    version_key: str
    timeout_secs: float | None

    def __str__(self) -> str:
        return self.url

    @property
    def stamp(self) -> int:
        """The version as a number, which fits where an index has the time of a local file."""
        return int.from_bytes(hashlib.blake2b(self.version.encode(), digest_size=7).digest(), "big")

    @property
    def local_name(self) -> str:
        """A name for what is kept of this file in a local folder. It is that of the URL, not of the version."""
        digest = hashlib.blake2b(self.url.encode(), digest_size=8).hexdigest()
        name = self.path.partition("?")[0].rstrip("/").rpartition("/")[2]
        return f"{re.sub(r'[^A-Za-z0-9_.-]', '_', name)[-100:]}-{digest}"

    def read(self, start: int, end: int) -> bytes:
        """Read the bytes from `start` to `end`, or to the end of the file. See `begin`."""
        return self.begin([start], [min(end, self.size)])()[0]

    def begin(self, starts: Sequence[int], ends: Sequence[int]) -> Callable[[], list[bytes]]:
        """Start to read ranges of bytes, all at the same time. Returns a function that waits for them.

        What may pass is tried again. That function raises RecordFileError if a range cannot be read, or if the file has
        changed.
        """
        reads = _read(self, Store(self.given, self.timeout_secs), list(zip(starts, ends)))
        return functools.partial(_awaited, submitted(reads), self.url)

    def begin_frames(self, starts: Any, ends: Any) -> Callable[[], list[bytes]]:
        """Do what `begin` does. Ranges close to each other are read by one request."""
        merge = importlib.import_module("fsspec.utils").merge_offset_ranges
        pairs = sorted(set(zip(starts.tolist(), ends.tolist())))
        # Blocks are in order, and each range lies in one of them.
        _, firsts, lasts = merge(
            [self.path] * len(pairs), [start for start, _ in pairs], [end for _, end in pairs], _GAP_BYTES, _BLOCK_BYTES
        )
        wait = self.begin(firsts, lasts)

        def frames() -> list[bytes]:
            found, block, blocks = {}, 0, wait()
            for start, end in pairs:
                while end > lasts[block]:
                    block += 1
                found[start] = blocks[block][start - firsts[block] : end - firsts[block]]
            return [found[start] for start in starts.tolist()]

        return frames

    def copy_to(self, path: str, progress: Callable[[int], Any]) -> None:
        """Write the whole content to a new local file. `progress` is called with the bytes of each part."""
        with open(path, "xb") as out:
            for first in range(0, self.size, _BLOCKS * _BLOCK_BYTES):
                starts = range(first, min(first + _BLOCKS * _BLOCK_BYTES, self.size), _BLOCK_BYTES)
                for block in self.begin(starts, [min(start + _BLOCK_BYTES, self.size) for start in starts])():
                    out.write(block)
                    progress(len(block))


def _awaited(future: Future[_Result], url: str) -> _Result:
    """Wait for a read, and note for stall reports that this thread does."""
    ident = threading.get_ident()
    _read_by[ident] = url
    _noted(url)
    try:
        return future.result()
    finally:
        _read_by.pop(ident, None)
        _noted("")


def note_reads(note: Callable[[str], object]) -> None:
    """Let `note` be called with each URL that a thread of this process waits for, and with "" after it."""
    global _noted
    _noted = note


def url_read_by(ident: int | None) -> str:
    """Return the URL that a thread waits for; "" if it waits for none."""
    return "" if ident is None else _read_by.get(ident, "")


async def _read(file: RemoteFile, store: Store, ranges: list[tuple[int, int]]) -> list[bytes]:
    # Requests of one read share the line.
    secs = sum(end - start for start, end in ranges) / _BYTES_PER_SEC
    try:
        blocks = await asyncio.gather(*(retried(_range, file, store, start, end, secs) for start, end in ranges))
        # A store delivers what is there now. A look after the read tells that it was the same file.
        await retried(_check_unchanged, file, store)
    except Exception as error:
        if not isinstance(error, (RecordFileError, SlowError)):
            # If the file has changed, that is the reason.
            try:
                await _check_unchanged(file, store)
            except RecordFileError as reason:
                raise reason from error
            except Exception:
                pass
        raise failure(file.url, error) from error
    return blocks


async def _range(file: RemoteFile, store: Store, start: int, end: int, secs: float) -> bytes:
    if start == end:
        return b""
    data: bytes = await store.call("cat_file", file.path, start=start, end=end, secs=secs)
    if len(data) == end - start:
        return data
    if len(data) == file.size:
        raise SlowError(
            f"the server sent the whole file in place of bytes {start} to {end}. Records are read by ranges: use a "
            f"server that supports them, or copy the file to this machine."
        )
    raise OSError(f"got {len(data)} bytes, expected {end - start}")


async def _check_unchanged(file: RemoteFile, store: Store) -> None:
    # A proxy may answer wrongly once.
    for _ in range(2):
        now = await store.info(file.path)
        size, version = now.get("size"), _text(now.get(file.version_key, file.version))
        if (size, version) == (file.size, file.version):
            return
    change = f"it had {file.size} bytes and has {size}"
    if size == file.size:
        change = f"it still has {size} bytes, but its {file.version_key} was {file.version} and is {version}"
    raise RecordFileError(
        f"record file {file.url} has changed since the source was created: {change}. Create the source again."
    )


def _text(version: Any) -> str:
    """Format a version alike, whether it comes from a listing or from the file itself."""
    return str(version.timestamp() if hasattr(version, "timestamp") else version).strip('"')


def resolved(
    owner: str, urls: Iterable[str], timeout_secs: float | None = TIMEOUT_SECS
) -> dict[str, tuple[bool, list[RemoteFile]]]:
    """Look for files and globs. Returns for each URL whether it is that of a file, and the files, sorted by name.

    A glob takes one listing; it finds what is there now.
    """
    urls = list(dict.fromkeys(urls))
    for url in urls:
        open_driver(owner, "files", url)

    stores = [Store(url, timeout_secs) for url in urls]

    async def look() -> list[tuple[bool, list[RemoteFile]]]:
        limit = asyncio.Semaphore(_LOOKS)
        return await asyncio.gather(*(_look(url, store, limit) for url, store in zip(urls, stores)))

    return dict(zip(urls, submitted(look()).result())) if urls else {}


def versions_of(files: Sequence[RemoteFile]) -> str:
    """Return a text that differs if the content of the files does, as far as their store says. Empty without files."""
    lines = "\n".join(f"{file.size}\0{file.version}" for file in files)
    return hashlib.blake2b(lines.encode(), digest_size=6).hexdigest() if files else ""


async def _look(url: str, store: Store, limit: asyncio.Semaphore) -> tuple[bool, list[RemoteFile]]:
    path = store.path
    # In an http URL, a question mark precedes the query.
    is_glob = any(sign in path for sign in ("*[" if path.startswith(("http:", "https:")) else "*?["))
    infos: dict[str, dict[str, Any]] = {path: {}}

    async def fill(name: str) -> None:
        async with limit:
            infos[name] = await retried(store.info, name)

    try:
        if is_glob:
            # What a driver remembers of an earlier listing may be out of date.
            store.files.invalidate_cache()
            secs = (_LISTING - 1) * (store.timeout_secs or 0)
            listed = await retried(store.call, "glob", path, detail=True, secs=secs)
            infos = {name: info for name, info in sorted(listed.items()) if info.get("type") == "file"}
        await asyncio.gather(*(fill(name) for name, info in infos.items() if info.get("size") is None))
    except Exception as error:
        raise failure(url, error) from error
    if not is_glob:
        return True, [_as_file(url, url, path, infos[path], store.timeout_secs)]
    prefix = url.removesuffix(path)
    whole = store.files.unstrip_protocol if prefix == url else lambda name: prefix + name
    return False, [_as_file(whole(name), url, name, info, store.timeout_secs) for name, info in infos.items()]


def _as_file(url: str, given: str, path: str, info: dict[str, Any], timeout_secs: float | None) -> RemoteFile:
    if info.get("type") == "directory":
        raise RecordFileError(f"record file {url!r} is a folder, expected a file. For the files in it, add '/*'.")
    if not isinstance(info.get("size"), int):
        raise RecordFileError(
            f"record file {url}: the server does not say how many bytes it has. Copy it to this machine."
        )
    key = next((key for key in _VERSIONS if info.get(key)), "")
    return RemoteFile(url, given, path, info["size"], _text(info.get(key, "")), key, timeout_secs)
