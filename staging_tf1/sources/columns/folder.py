"""The folder of a cache: whether it is there and up to date, and how a new one replaces it."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import shutil
import stat
from collections.abc import Callable, Iterator
from typing import Any

from staging_tf1 import arguments
from staging_tf1.arguments import shown
from staging_tf1.errors import RecordFileError
from staging_tf1.sources.columns.component import Column
from staging_tf1.sources.columns.key import changes
from staging_tf1.sources.columns.lock import beside, locked
from staging_tf1.sources.columns.manifest import FORMAT_VERSION, MANIFEST, Manifest, manifest_in
from staging_tf1.sources.columns.npy import HEADER_BYTES, MappedArray
from staging_tf1.sources.columns.snapshot import Snapshot, cannot_read, has_changed, settled
from staging_tf1.sources.files.os_errors import cure_of_writing

__all__ = [
    "building_folder",
    "cache_path",
    "check_only_cache",
    "commit",
    "damaged",
    "mapped",
    "move_built",
    "opened",
    "put_back",
    "reasons_to_build",
    "remove",
    "remove_remains",
    "saved_progress",
    "save_progress",
    "writing",
]

_PROGRESS = "progress.json"
_NO_SPACE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def cache_path(owner: str, argument: str, value: Any) -> str:
    """Check the path of a cache, which is a folder or nothing yet."""
    name = arguments.path(owner, argument, value).rstrip(os.sep) or os.sep
    if {os.curdir, os.pardir} & set(name.split(os.sep)) or os.path.islink(name):
        # Resolved, because files are made beside the folder, and it is renamed.
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


def opened(path: str) -> Manifest:
    """Return the manifest of the cache at `path`.

    Raises RecordFileError if there is none, or one of another version of the format.
    """
    return settled(path, lambda folder: _opened(path, folder))


def mapped(path: str) -> tuple[Manifest, list[Column]]:
    """Map the files of the cache at `path`. All belong to one cache, even if it is replaced meanwhile.

    Raises RecordFileError if there is no cache, or a file is missing or was changed.
    """

    def look(folder: Snapshot | None) -> tuple[Manifest, list[Column]]:
        manifest = _opened(path, folder)
        assert folder is not None
        return manifest, [Column(folder, component) for component in manifest.components]

    return settled(path, look)


def _opened(path: str, folder: Snapshot | None) -> Manifest:
    manifest = _manifest(folder)
    if manifest is None:
        raise RecordFileError(
            f"found no cache at path {path!r} (current folder: {os.getcwd()}), expected a folder that cached() has "
            f"built. Check the path, or build the cache with cached()."
        )
    if isinstance(manifest, int):
        raise RecordFileError(f"{path!r} is a cache of {_version_changed(manifest)}. Build it again with cached().")
    return manifest


def damaged(path: str, manifest: Manifest, progress: Callable[[int], Any]) -> list[str] | None:
    """Read all files of a cache, and describe those that were changed. `progress` gets the bytes of each file.

    Returns None if another cache has replaced it meanwhile.
    """

    def look(folder: Snapshot | None) -> list[str] | None:
        if _opened(path, folder) != manifest:
            return None
        assert folder is not None
        problems = []
        for file in manifest.files:
            try:
                MappedArray(folder, file, verified=True)
            except RecordFileError as error:
                problems.append(str(error))
            progress(file.size)
        return None if problems and has_changed(path, folder) else problems

    return settled(path, look)


def _manifest(folder: Snapshot | None) -> Manifest | int | None:
    if folder is None:
        return None
    manifest = manifest_in(folder)
    if manifest is None:
        with contextlib.suppress(FileNotFoundError):
            if os.listdir(folder.path):
                raise RecordFileError(
                    f"{folder.path!r} is a folder without a {MANIFEST}, so it is not a cache. Choose another path."
                )
    return manifest


def _version_changed(version: int) -> str:
    return f"format version {version}, and this release reads version {FORMAT_VERSION}"


def reasons_to_build(path: str, key: dict[str, Any]) -> list[str] | None:
    """Return why the cache at `path` is out of date: an empty list if it is not, None if there is no cache."""
    try:
        manifest = settled(path, _manifest)
    except PermissionError as error:
        raise cannot_read(f"the cache {path!r}", error) from error
    if manifest is None:
        return None
    return [_version_changed(manifest)] if isinstance(manifest, int) else changes(manifest.key, key)


def building_folder(path: str) -> str:
    """Return the folder in which the cache of `path` is built."""
    return beside(path, ".building")


def put_back(path: str) -> None:
    """Put back a cache that was moved away for a new one, or remove it if the new one is there."""
    replaced = beside(path, ".replaced")
    if os.path.isdir(replaced):
        if os.path.isdir(path):
            shutil.rmtree(replaced)
        else:
            os.rename(replaced, path)


def check_only_cache(path: str) -> None:
    """Raise RecordFileError if the folder has files that are no part of its cache: they would be deleted with it."""
    manifest = settled(path, _manifest)
    if manifest is None:
        return
    names = set(os.listdir(path)) - {MANIFEST}
    if isinstance(manifest, Manifest):
        others = names - {file.name for file in manifest.files}
    else:
        others = {name for name in names if not name.endswith(".npy")}
    if others:
        raise RecordFileError(
            f"the folder {path!r} has {shown(min(others))}, which is not part of the cache, so nothing was removed. "
            f"Move it away first."
        )


def remove_remains(path: str) -> None:
    """Remove an unfinished build that will not be continued."""
    with contextlib.suppress(FileNotFoundError):
        shutil.rmtree(building_folder(path))


def commit(path: str, manifest: Manifest) -> None:
    """Write the manifest into the folder that was built, and move it to `path`."""
    building = building_folder(path)
    # A builder that was killed while it saved its progress has left both.
    for name in (_PROGRESS, _unfinished(_PROGRESS)):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(os.path.join(building, name))
    _write_whole(os.path.join(building, MANIFEST), manifest.text())
    move_built(path)


def move_built(path: str) -> None:
    """Move the folder that was built to `path`, replacing what is there."""
    building, replaced = building_folder(path), beside(path, ".replaced")
    check_only_cache(path)
    if os.path.isdir(path) and os.listdir(path):
        # A folder with files cannot be replaced in one step. If this process dies in between, `put_back` restores it.
        os.rename(path, replaced)
    os.rename(building, path)
    _sync_folder(os.path.dirname(path) or os.curdir)
    shutil.rmtree(replaced, ignore_errors=True)


def save_progress(path: str, progress: dict[str, Any]) -> None:
    """Save the progress of the build. Its records are on the disk already."""
    _write_whole(os.path.join(building_folder(path), _PROGRESS), json.dumps(progress))


def saved_progress(path: str, key: dict[str, Any]) -> dict[str, Any] | None:
    """Return the progress of a builder that has died, if its data had the same key; else None."""
    building = building_folder(path)
    try:
        with open(os.path.join(building, _PROGRESS), encoding="utf-8") as file:
            progress: dict[str, Any] = json.load(file)
        if progress["key"] != key:
            return None
        written = [file for component in progress["records"]["components"] for file in component["files"]["written"]]
        sizes = [os.path.getsize(os.path.join(building, name)) for name, _ in written]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return progress if all(size >= HEADER_BYTES + least for size, (_, least) in zip(sizes, written)) else None


def _unfinished(path: str) -> str:
    return f"{path}.new"


def _write_whole(path: str, text: str) -> None:
    temporary = _unfinished(path)
    with open(temporary, "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)
    _sync_folder(os.path.dirname(path))


def _sync_folder(folder: str) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def writing(owner: str, path: str) -> Iterator[None]:
    """Turn errors of the file system into a RecordFileError that names the cache."""
    try:
        yield
    except RecordFileError:
        raise
    except OSError as error:
        what = f"{error.strerror or error}{_free(path) if error.errno in _NO_SPACE else ''}."
        cure = cure_of_writing(error)
        blocked = _file_above(path)
        if blocked is not None:
            what, cure = f"its parent {blocked!r} is a file, not a folder.", "Choose another path."
        refused = RecordFileError(
            f"{owner} cannot write the cache {path!r}: {' '.join(filter(None, [what, cure]))} What was at that path "
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


def _free(path: str) -> str:
    with contextlib.suppress(OSError):
        return f" ({shutil.disk_usage(os.path.dirname(path) or os.curdir).free >> 20} MiB are free)"
    return ""


def remove(path: str) -> Manifest | int | None:
    """Remove the cache at `path`, and what builders have left beside it. Return its manifest, or its version.

    Returns None if a builder has left something, but no cache. Raises RecordFileError if there is nothing to remove, or
    the folder has other files.
    """
    with locked(path):
        put_back(path)
        manifest = manifest_in(Snapshot(path))
        if manifest is None:
            if not os.path.isdir(building_folder(path)):
                raise RecordFileError(f"found no cache at {path!r}, so nothing was removed. Check the path.")
            remove_remains(path)
            return None
        check_only_cache(path)
        # Renamed first, so a process that dies here leaves no partial cache.
        remove_remains(path)
        os.rename(path, building_folder(path))
        os.unlink(os.path.join(building_folder(path), MANIFEST))
        remove_remains(path)
    return manifest
