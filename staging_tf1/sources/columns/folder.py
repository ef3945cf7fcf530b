"""The folder of a cache: its lock, whether it is there and up to date, and how a new one takes its place.

A new cache is built in a hidden folder beside, its manifest last, and that folder is renamed. An older cache gets a
hidden name just before, by which readers find it until the new one is there.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import socket
import stat
from collections.abc import Callable, Iterator
from typing import Any

from absl import logging

from staging_tf1 import arguments
from staging_tf1.arguments import shown
from staging_tf1.errors import RecordFileError
from staging_tf1.replacing import NO_ROOM, free_text, replacing, sync_folder
from staging_tf1.sources.columns.files import Column, MappedArray, cannot_read
from staging_tf1.sources.columns.key import changes
from staging_tf1.sources.columns.manifest import FORMAT_VERSION, MANIFEST, Manifest, manifest_in
from staging_tf1.sources.files.os_errors import cure_of_writing

_OWN_FILE = re.compile(rf"\d{{3,}}(-\w+)?(\.(starts|shapes|strings))?\.npy|{re.escape(MANIFEST)}", re.ASCII)


def cache_path(owner: str, argument: str, value: Any) -> str:
    """Check the path of a cache, which is a folder or nothing yet."""
    name = arguments.path(owner, argument, value).rstrip(os.sep) or os.sep
    if {os.curdir, os.pardir} & set(name.split(os.sep)) or os.path.islink(name):
        # Resolved, because files are made beside the folder.
        name = os.path.realpath(name)
    is_folder = True
    try:
        # A name that is too long is refused here, not after hours of building.
        for each in (_replaced(name), name):
            with contextlib.suppress(FileNotFoundError):
                is_folder = stat.S_ISDIR(os.stat(each).st_mode)
    except OSError as error:
        cure = "Choose another path."
        raise RecordFileError(f"{owner} cannot use {argument}={shown(name)}: {error.strerror}. {cure}") from error
    if not is_folder:
        raise RecordFileError(f"{owner} got {argument}={shown(name)}, which is not a folder. Choose another path.")
    return name


def _beside(path: str, suffix: str) -> str:
    """Return the path of a hidden file or folder beside `path`.

    >>> _beside("data/train", ".lock")
    'data/.train.lock'
    """
    folder, name = os.path.split(path)
    return os.path.join(folder, f".{name}{suffix}")


def _building(path: str) -> str:
    return _beside(path, ".building")


def _replaced(path: str) -> str:
    return _beside(path, ".replaced")


# Reading.


def opened(path: str) -> tuple[str, Manifest]:
    """Return the folder that has the cache of `path`, and its manifest.

    Raises RecordFileError if there is none, or one of another version of the format.
    """
    folder, manifest = _found(path)
    if manifest is None:
        raise RecordFileError(
            f"found no cache at path {path!r} (current folder: {os.getcwd()}), expected a folder that cached() has "
            f"built. Check the path, or build the cache with cached()."
        )
    if isinstance(manifest, int):
        raise RecordFileError(f"{path!r} is a cache of {_version_changed(manifest)}. Build it again with cached().")
    return folder, manifest


def _found(path: str) -> tuple[str, Manifest | int | None]:
    # While one cache replaces another, none is at the path for a moment. If the old one has no other name any more, the
    # new one has come meanwhile.
    for folder in (path, _replaced(path), path):
        if (manifest := manifest_in(folder)) is not None:
            return folder, manifest
    try:
        names = os.listdir(path)
    except FileNotFoundError:
        return path, None
    except OSError as error:
        raise cannot_read(f"the cache {path!r}", error) from error
    if names:
        raise RecordFileError(f"{path!r} is a folder without a {MANIFEST}, so it is not a cache. Choose another path.")
    return path, None


def mapped(path: str) -> tuple[Manifest, list[Column]]:
    """Map the files of the cache at `path`. All belong to one cache, even if another one replaces it meanwhile.

    Raises RecordFileError if there is no cache, or a file is missing or was changed.
    """
    found = folder, manifest = opened(path)
    try:
        columns = [Column(folder, component) for component in manifest.components]
    except RecordFileError:
        if opened(path) == found:
            raise
        return mapped(path)
    return (manifest, columns) if opened(path) == found else mapped(path)


def verified(path: str, progress: Callable[[int], Any]) -> tuple[Manifest, list[str]]:
    """Read all files of a cache, and describe those that were changed. `progress` gets the bytes of each file."""
    found = folder, manifest = opened(path)
    problems = []
    for file in manifest.files:
        try:
            MappedArray(folder, file, verified=True)
        except RecordFileError as error:
            problems.append(str(error))
        progress(file.size)
    # Another cache may have replaced it meanwhile.
    return verified(path, progress) if problems and opened(path) != found else (manifest, problems)


def _version_changed(version: int) -> str:
    return f"format version {version}, and this release reads version {FORMAT_VERSION}"


def reasons_to_build(path: str, key: dict[str, Any]) -> list[str] | None:
    """Return why the cache at `path` is out of date: an empty list if it is not, None if there is no cache."""
    _, manifest = _found(path)
    if manifest is None:
        return None
    return [_version_changed(manifest)] if isinstance(manifest, int) else changes(manifest.key, key)


# The lock.


@contextlib.contextmanager
def locked(path: str) -> Iterator[None]:
    """Hold the lock of the cache at `path`, and remove what a builder has left that died.

    The system releases the lock when its holder dies. Raises RecordFileError if the lock file cannot be written, or if
    this thread holds the lock, because the data of a cache use it.
    """
    name = _beside(path, ".lock")
    lock = _acquired(name, path)
    try:
        # Only people read it, so a full disk must not end the build here.
        with contextlib.suppress(OSError), open(name, "w", encoding="utf-8") as file:
            file.write(f"process {os.getpid()} on {socket.gethostname()}")
        with writing(path):
            _remove_remains(path)
        yield
    finally:
        # While it is held: a process that has opened this file then finds that it has no name, and opens the next one.
        with contextlib.suppress(OSError):
            os.unlink(name)
        lock.release()


def _acquired(name: str, path: str) -> Any:
    import filelock  # 30 ms, for those who build a cache

    lock = filelock.FileLock(name)
    try:
        try:
            lock.acquire(timeout=0)
        except filelock.Timeout:
            logging.warning("waiting for the cache %s: %s", path, _holder(name))
            lock.acquire()
    except (OSError, NotImplementedError) as error:
        cure = cure_of_writing(error) if isinstance(error, OSError) else ""
        raise RecordFileError(
            f"cannot lock the cache {path!r} with {name!r}: {getattr(error, 'strerror', None) or error}. "
            f"{cure or 'Choose a writable folder on a local disk.'}"
        ) from error
    except RuntimeError as error:
        raise RecordFileError(
            f"the data of the cache {path!r} uses this cache while it is built from them, so both would wait for ever. "
            f"Read the original data there, or give the inner cache another path."
        ) from error
    return lock


def _holder(name: str) -> str:
    text = ""
    with contextlib.suppress(OSError, ValueError), open(name, encoding="utf-8") as file:
        text = file.read()
    is_own = text.startswith((f"process {os.getpid()} on ", f"process {os.getppid()} on "))
    return f"{text or 'another process'} is building it{'. If its data use it, both wait for ever' * is_own}"


# Writing. All of this happens with the lock.


@contextlib.contextmanager
def replacing_cache(path: str) -> Iterator[str]:
    """Yield a new folder for a cache. On success it takes the place of what is at `path`, else it is removed."""
    building = _building(path)
    with writing(path):
        os.mkdir(building)
    try:
        yield building
        with writing(path):
            with contextlib.suppress(FileNotFoundError):
                os.rename(path, _replaced(path))
            os.rename(building, path)
            sync_folder(os.path.dirname(path) or os.curdir)
    finally:
        with contextlib.suppress(OSError):
            _remove_remains(path)


def write_manifest(folder: str, manifest: Manifest) -> None:
    """Write the manifest of a new cache. All its other files are on the disk already."""
    with replacing(os.path.join(folder, MANIFEST), durable=True) as file:
        file.write(manifest.text().encode())


def has_remains(path: str) -> bool:
    """Whether a builder replaces the cache at `path` now, or died while it did."""
    return os.path.exists(_replaced(path))


def _remove_remains(path: str) -> None:
    """Remove an unfinished build and a replaced cache. A cache that is not replaced yet gets its name back."""
    replaced = _replaced(path)
    with contextlib.suppress(FileNotFoundError):
        shutil.rmtree(_building(path))
    if not os.path.exists(replaced):
        return
    if not os.path.exists(path):
        os.rename(replaced, path)
        return
    # Files that are no part of the cache stay.
    for name in os.listdir(replaced):
        if _OWN_FILE.fullmatch(name):
            os.unlink(os.path.join(replaced, name))
        else:
            os.rename(os.path.join(replaced, name), os.path.join(path, name))
    os.rmdir(replaced)


@contextlib.contextmanager
def writing(path: str) -> Iterator[None]:
    """Turn errors of the file system into a RecordFileError that names the cache."""
    try:
        yield
    except RecordFileError:
        raise
    except OSError as error:
        room = free_text(os.path.dirname(path)) if error.errno in NO_ROOM else ""
        cure = cure_of_writing(error)
        refused = RecordFileError(
            f"cannot write the cache {path!r}: {error.strerror or error}{room}.{' ' * bool(cure)}{cure} What "
            f"was at that path before is unchanged."
        )
        refused.errno = error.errno
        raise refused from error


def remove(path: str) -> Manifest | int | None:
    """Remove the cache at `path`, and what builders have left beside it. Return its manifest, or its version.

    Returns None if a builder has left something, but no cache. Raises RecordFileError if there is nothing to remove, or
    the folder has other files.
    """
    has_begun = os.path.exists(_building(path))
    with locked(path):
        manifest = manifest_in(path)
        if manifest is None:
            if not has_begun:
                raise RecordFileError(f"found no cache at {path!r}, so nothing was removed. Check the path.")
            return None
        others = [name for name in os.listdir(path) if not _OWN_FILE.fullmatch(name)]
        if others:
            raise RecordFileError(
                f"the folder {path!r} has {shown(min(others))}, which is not part of the cache, so nothing was "
                f"removed. Move it away first."
            )
        # Renamed first, so a process that dies here leaves no partial cache.
        os.rename(path, _building(path))
        _remove_remains(path)
    return manifest
