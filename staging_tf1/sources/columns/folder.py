"""The folder of a cache: its lock, whether it is there and up to date, and how a new cache takes its place.

A new cache is built in a hidden folder beside. If there is none yet, that folder is renamed. Otherwise its files, which
have names of their own, are moved in, and then its manifest replaces the old one in one step. So readers find one whole
cache at any moment, and other files in the folder stay.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import socket
import stat
import threading
from collections.abc import Callable, Iterator
from typing import Any

from absl import logging

from staging_tf1 import arguments
from staging_tf1.arguments import shown
from staging_tf1.errors import RecordFileError
from staging_tf1.replacing import NO_ROOM, free_text, replacing, sync_folder
from staging_tf1.sources.columns.files import HEADER_BYTES, Column, MappedArray, cannot_read
from staging_tf1.sources.columns.manifest import FORMAT_VERSION, MANIFEST, Manifest, changes, is_own_file, manifest_in
from staging_tf1.sources.files.os_errors import cure_of_writing

_PROGRESS = "progress.json"
_MOST_NAME_BYTES = 255
# How often a cache is opened again, because it was replaced meanwhile.
_TRIES = 20
# Seconds between two tries to take a lock, and between two lines in the log of a process that waits.
_TRY_SECS, _LOG_SECS = 0.1, 15.0
# The caches that are being built: by the thread, which is the same in a fork of it, and the path.
_held: set[tuple[int, str]] = set()


def cache_path(owner: str, argument: str, value: Any) -> str:
    """Check the path of a cache, which is a folder or nothing yet."""
    name = arguments.path(owner, argument, value).rstrip(os.sep) or os.sep
    if {os.curdir, os.pardir} & set(name.split(os.sep)) or os.path.islink(name):
        # Resolved, because files are made beside the folder.
        name = os.path.realpath(name)
    try:
        mode = os.stat(name).st_mode
    except (FileNotFoundError, NotADirectoryError):
        return name
    except OSError as error:  # mostly a name that is too long: refused here, not after hours of building
        cure = "Choose another path."
        raise RecordFileError(f"{owner} cannot use {argument}={shown(name)}: {error.strerror}. {cure}") from error
    if not stat.S_ISDIR(mode):
        raise RecordFileError(f"{owner} got {argument}={shown(name)}, which is not a folder. Choose another path.")
    return name


def _beside(path: str, suffix: str) -> str:
    """Return the path of a hidden file or folder beside `path`.

    >>> _beside("data/train", ".lock")
    'data/.train.lock'
    """
    folder, name = os.path.split(path.rstrip(os.sep) or path)
    hidden = f".{name}{suffix}"
    if len(os.fsencode(hidden)) > _MOST_NAME_BYTES:
        hidden = f".{hashlib.blake2b(os.fsencode(name), digest_size=16).hexdigest()}{suffix}"
    return os.path.join(folder, hidden)


# The lock.


@contextlib.contextmanager
def locked(path: str) -> Iterator[Callable[[str], None]]:
    """Hold the lock of the cache at `path`. Yields a function that reports the progress to waiting processes.

    The system releases the lock when its holder dies. Raises RecordFileError if the lock file cannot be written, or if
    this thread holds the lock, because the data of a cache use it.
    """
    name, key = _beside(path, ".lock"), (threading.get_ident(), os.path.realpath(path))
    if key in _held:
        raise RecordFileError(
            f"the data of the cache {path!r} uses this cache while it is built from them, so both would wait for ever. "
            f"Read the original data there, or give the inner cache another path."
        )
    try:
        lock = _acquired(name, path)
    except (OSError, NotImplementedError) as error:
        reason = getattr(error, "strerror", None) or error
        cure = cure_of_writing(error) if isinstance(error, OSError) else ""
        cure = cure or "Choose a writable folder on a local disk."
        raise RecordFileError(f"cannot lock the cache {path!r} with {name!r}: {reason}. {cure}") from error

    def report(how_far: str) -> None:
        note = {"pid": os.getpid(), "host": socket.gethostname(), "how_far": how_far}
        # Only people read it, so a full disk must not end the build here.
        with contextlib.suppress(OSError), open(name, "w", encoding="utf-8") as file:
            json.dump(note, file)

    try:
        _held.add(key)
        report("started")
        yield report
    finally:
        _held.discard(key)
        # While it is held: a process that has opened this file then finds that it has no name, and opens the next one.
        with contextlib.suppress(OSError):
            os.unlink(name)
        lock.release()


def _acquired(name: str, path: str) -> Any:
    import filelock  # 30 ms, for those who build a cache

    lock, wait_secs = filelock.FileLock(name), 0.0
    while True:
        try:
            lock.acquire(timeout=wait_secs, poll_interval=_TRY_SECS)
            return lock
        except filelock.Timeout:
            wait_secs = _LOG_SECS
            logging.warning("waiting for the cache %s: %s", path, _holder(name))


def _holder(name: str) -> str:
    try:
        with open(name, encoding="utf-8") as file:
            note = json.load(file)
        message = f"process {note['pid']} on {note['host']} is building it ({note['how_far']})"
    except (OSError, ValueError, KeyError, TypeError):
        return "another process is building it"
    if note["pid"] in (os.getpid(), os.getppid()):
        message += ". If its data use this cache, both wait for ever"
    return message


# Reading.


def opened(path: str) -> Manifest:
    """Return the manifest of the cache at `path`.

    Raises RecordFileError if there is none, or one of another version of the format.
    """
    manifest = _found(path)
    if manifest is None:
        raise RecordFileError(
            f"found no cache at path {path!r} (current folder: {os.getcwd()}), expected a folder that cached() has "
            f"built. Check the path, or build the cache with cached()."
        )
    if isinstance(manifest, int):
        raise RecordFileError(f"{path!r} is a cache of {_version_changed(manifest)}. Build it again with cached().")
    return manifest


def _found(path: str) -> Manifest | int | None:
    manifest = manifest_in(path)
    if manifest is not None:
        return manifest
    try:
        names = os.listdir(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise cannot_read(f"the cache {path!r}", error) from error
    if names:
        raise RecordFileError(f"{path!r} is a folder without a {MANIFEST}, so it is not a cache. Choose another path.")
    return None


def mapped(path: str) -> tuple[Manifest, list[Column]]:
    """Map the files of the cache at `path`. All belong to one cache, even if it is replaced meanwhile.

    Raises RecordFileError if there is no cache, or a file is missing or was changed.
    """
    manifest = opened(path)
    for _ in range(_TRIES):
        try:
            return manifest, [Column(path, component) for component in manifest.components]
        except RecordFileError:
            before, manifest = manifest, opened(path)
            if manifest == before:
                raise
    raise RecordFileError(
        f"the cache {path!r} was replaced each of the {_TRIES} times that it was opened. Do several programs build it "
        f"from different data? Give each of them its own path."
    )


def damaged(path: str, manifest: Manifest, progress: Callable[[int], Any]) -> list[str] | None:
    """Read all files of a cache, and describe those that were changed. `progress` gets the bytes of each file.

    Returns None if another cache has replaced it meanwhile.
    """
    problems = []
    for file in manifest.files:
        try:
            MappedArray(path, file, verified=True)
        except RecordFileError as error:
            problems.append(str(error))
        progress(file.size)
    return None if problems and opened(path) != manifest else problems


def _version_changed(version: int) -> str:
    return f"format version {version}, and this release reads version {FORMAT_VERSION}"


def reasons_to_build(path: str, key: dict[str, Any]) -> list[str] | None:
    """Return why the cache at `path` is out of date: an empty list if it is not, None if there is no cache."""
    manifest = _found(path)
    if manifest is None:
        return None
    return [_version_changed(manifest)] if isinstance(manifest, int) else changes(manifest.key, key)


# Writing.


def building_folder(path: str) -> str:
    """Return the folder in which the cache of `path` is built."""
    return _beside(path, ".building")


def remove_remains(path: str) -> None:
    """Remove an unfinished build that will not be continued."""
    with contextlib.suppress(FileNotFoundError):
        shutil.rmtree(building_folder(path))


def commit(path: str, manifest: Manifest) -> None:
    """Write the manifest of the cache that was built, and move it to `path`, replacing the cache that is there."""
    building, files = building_folder(path), [file.name for file in manifest.files]
    for name in set(os.listdir(building)).difference(files):
        # The progress, and what a builder has left that was killed while it saved that.
        os.unlink(os.path.join(building, name))
    _write_whole(os.path.join(building, MANIFEST), manifest.text())
    if _found(path) is None:
        os.rename(building, path)
        sync_folder(os.path.dirname(path) or os.curdir)
        return
    for name in files:
        os.rename(os.path.join(building, name), os.path.join(path, name))
    sync_folder(path)
    os.rename(os.path.join(building, MANIFEST), os.path.join(path, MANIFEST))
    sync_folder(path)
    remove_replaced(path)


def has_replaced(path: str) -> bool:
    """Whether a builder died after it replaced a cache, and before it removed the files of the old one."""
    try:
        return not os.listdir(building_folder(path))
    except FileNotFoundError:
        return False


def remove_replaced(path: str) -> None:
    """Remove the files of an older cache, and the empty folder in which the new one was built."""
    manifest = manifest_in(path)
    if isinstance(manifest, Manifest):
        files = {file.name for file in manifest.files}
        for name in os.listdir(path):
            if is_own_file(name) and name not in files:
                os.unlink(os.path.join(path, name))
    os.rmdir(building_folder(path))


def save_progress(path: str, progress: dict[str, Any]) -> None:
    """Save the progress of the build. Its records are on the disk already."""
    _write_whole(os.path.join(building_folder(path), _PROGRESS), json.dumps(progress))


def saved_progress(path: str, key: dict[str, Any]) -> dict[str, Any] | None:
    """Return the progress of a builder that has died, if its data had the same key; else None."""
    building = building_folder(path)
    try:
        with open(os.path.join(building, _PROGRESS), encoding="utf-8") as file:
            progress: dict[str, Any] = json.load(file)
        # Files without a token may have the names of those of a cache that has come meanwhile.
        if progress["key"] != key or not (progress["token"] or _found(path) is None):
            return None
        written = [file for component in progress["records"]["components"] for file in component["files"]["written"]]
        sizes = [os.path.getsize(os.path.join(building, name)) for name, _ in written]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return progress if all(size >= HEADER_BYTES + least for size, (_, least) in zip(sizes, written)) else None


def _write_whole(path: str, text: str) -> None:
    with replacing(path, durable=True) as file:
        file.write(text.encode())


@contextlib.contextmanager
def writing(owner: str, path: str) -> Iterator[None]:
    """Turn errors of the file system into a RecordFileError that names the cache."""
    try:
        yield
    except RecordFileError:
        raise
    except OSError as error:
        problem = f"{error.strerror or error}{free_text(os.path.dirname(path)) if error.errno in NO_ROOM else ''}."
        cure = cure_of_writing(error)
        blocked = _file_above(path)
        if blocked is not None:
            problem, cure = f"its parent {blocked!r} is a file, not a folder.", "Choose another path."
        refused = RecordFileError(
            f"{owner} cannot write the cache {path!r}: {' '.join(filter(None, [problem, cure]))} What was at that path "
            f"before is unchanged."
        )
        refused.errno = error.errno
        raise refused from error


def _file_above(path: str) -> str | None:
    """Return the first parent of a path that is not a folder."""
    parent = os.path.dirname(path)
    while parent and not os.path.lexists(parent):
        parent = os.path.dirname(parent)
    return parent if parent and not os.path.isdir(parent) else None


def remove(path: str) -> Manifest | int | None:
    """Remove the cache at `path`, and what builders have left beside it. Return its manifest, or its version.

    Returns None if a builder has left something, but no cache. Raises RecordFileError if there is nothing to remove, or
    the folder has other files.
    """
    with locked(path):
        manifest = manifest_in(path)
        if manifest is None:
            if not os.path.isdir(building_folder(path)):
                raise RecordFileError(f"found no cache at {path!r}, so nothing was removed. Check the path.")
            remove_remains(path)
            return None
        others = [name for name in os.listdir(path) if name != MANIFEST and not is_own_file(name)]
        if others:
            raise RecordFileError(
                f"the folder {path!r} has {shown(min(others))}, which is not part of the cache, so nothing was "
                f"removed. Move it away first."
            )
        # Renamed first, so a process that dies here leaves no partial cache.
        remove_remains(path)
        os.rename(path, building_folder(path))
        os.unlink(os.path.join(building_folder(path), MANIFEST))
        remove_remains(path)
    return manifest
