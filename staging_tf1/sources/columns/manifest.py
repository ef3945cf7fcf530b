"""The manifest of a cache: a JSON file, written last, that describes all other files, and the key of its data.

The key is what is known of the data without reading it. If it changes, the cache is out of date.
"""

from __future__ import annotations

import collections
import hashlib
import json
import os
import re
import secrets
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from staging_tf1 import arguments
from staging_tf1.arguments import INT64_MAX, shown
from staging_tf1.errors import RecordFileError, SpecError
from staging_tf1.sources.columns.files import ArrayFile, Component, cannot_read, open_regular
from staging_tf1.sources.files.os_errors import cure_of
from staging_tf1.sources.files.record_paths import local_files
from staging_tf1.spec import is_namedtuple, is_structure

MANIFEST = "manifest.json"
FORMAT_VERSION = 1
_FORMAT = "staging_tf1 cache"
# A manifest is small. A larger file is something else.
_MOST_BYTES = 64 << 20
# Names of the files of components. A cache that replaces another one has a random token in its names.
_TOKEN = re.compile(r"~[0-9a-f]{8}")
_OWN_FILE = re.compile(r"\d{3,}(-\w+)?(~[0-9a-f]{8})?(\.(starts|shapes|strings))?\.npy", re.ASCII)
# Files that the message about a changed key lists.
_MOST_LISTED = 5
# The end of the file: a checksum of all bytes before.
_CHECKSUM = re.compile(rb',\n "checksum": "([0-9a-f]{16})"\n}\Z')


class Manifest(NamedTuple):
    """What a cache holds.

    Attributes:
      num_records: its records.
      structure: the nest of records, encoded.
      components: the leaves of that nest, in order.
      key: what was known of the data when the cache was built.
      built: when that was, in UTC.
    """

    num_records: int
    structure: Any
    components: tuple[Component, ...]
    key: dict[str, Any]
    built: str

    @property
    def size(self) -> int:
        """The size of all files of components, in bytes."""
        return sum(component.size for component in self.components)

    @property
    def files(self) -> list[ArrayFile]:
        """All files of components."""
        return [file for component in self.components for file in component.files.values()]

    @property
    def content(self) -> str:
        """A digest of the records, the same for two caches with the same records."""
        text = json.dumps([self.structure, [_as_json(component) for component in self.components]])
        return _digest(_TOKEN.sub("", text).encode())

    def text(self) -> str:
        """Return the content of the file."""
        fields = {"format": _FORMAT, "version": FORMAT_VERSION, **self._asdict()}
        components = [_as_json(component) for component in self.components]
        body = json.dumps({**fields, "components": components}, indent=1).removesuffix("\n}")
        return f'{body},\n "checksum": "{_digest(body.encode())}"\n}}'


def new_token() -> str:
    """Return a new end of file names."""
    return f"~{secrets.token_hex(4)}"


def is_own_file(name: str) -> bool:
    """Whether a file of a component may have this name.

    >>> is_own_file("000-x.npy"), is_own_file("001~0123abcd.strings.npy"), is_own_file("mine.npy")
    (True, True, False)
    """
    return _OWN_FILE.fullmatch(name) is not None


def manifest_in(folder: str) -> Manifest | int | None:
    """Return the manifest of a cache; its format version if this release cannot read it; None without a manifest.

    Raises RecordFileError if the manifest is damaged, or the folder is no cache.
    """
    path = os.path.join(folder, MANIFEST)
    try:
        with open_regular(path) as file:
            if os.fstat(file.fileno()).st_size > _MOST_BYTES:
                raise _no_manifest(path, "it is too large")
            text = file.read()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except RecordFileError:
        raise
    except OSError as error:
        raise cannot_read(f"{path!r}, the manifest of a cache", error) from error
    try:
        fields = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise _no_manifest(path, "it is not JSON") from error
    if not isinstance(fields, dict) or fields.get("format") != _FORMAT or not isinstance(fields.get("version"), int):
        raise _no_manifest(path, "it has another format")
    if fields["version"] != FORMAT_VERSION:
        return int(fields["version"])
    try:
        _check_text(text)
        return _from_json(fields)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise _no_manifest(path, f"it is damaged ({shown(str(error))})") from error


def _check_text(text: bytes) -> None:
    """Raise ValueError if the text was changed after it was written."""
    checksum = _CHECKSUM.search(text)
    if checksum is None or checksum[1].decode() != _digest(text[: checksum.start()]):
        raise ValueError("its checksum differs: it was changed after the cache was built")


def _digest(body: bytes) -> str:
    return hashlib.blake2b(body, digest_size=8).hexdigest()


def _no_manifest(path: str, reason: str) -> RecordFileError:
    return RecordFileError(
        f"{path!r} should be the manifest of a cache, but is not: {reason}. If the folder is a cache, delete it to "
        f"have it built again."
    )


def _as_json(component: Component) -> dict[str, Any]:
    files = {role: list(file) for role, file in component.files.items()}
    return {"path": component.path, "dtype": component.dtype.name, "shape": list(component.shape), "files": files}


def _from_json(fields: dict[str, Any]) -> Manifest:
    components = tuple(_component(component) for component in fields["components"])
    decoded(fields["structure"], components)
    return Manifest(int(fields["num_records"]), fields["structure"], components, fields["key"], str(fields["built"]))


def _component(fields: dict[str, Any]) -> Component:
    files = {}
    for role, (name, dtype, shape, crc32) in fields["files"].items():
        if os.path.basename(name) != name or not name.endswith(".npy"):
            raise ValueError(f"file {name!r}")
        files[str(role)] = ArrayFile(name, str(np.dtype(dtype).str), tuple(map(int, shape)), int(crc32))
    shape = tuple(None if dim is None else int(dim) for dim in fields["shape"])
    return Component(str(fields["path"]), dtype_named(fields["dtype"]), shape, files)


def dtype_named(name: str) -> np.dtype[Any]:
    """Return the dtype of that name."""
    try:
        return np.dtype(name)
    except TypeError:
        # numpy only knows bfloat16 and its like after this import.
        import ml_dtypes

        extension: np.dtype[Any] = np.dtype(getattr(ml_dtypes, name))
        return extension


def encoded(structure: Any) -> Any:
    """Encode a nest whose leaves are the numbers of components. Raises SpecError for keys that JSON lacks."""
    if isinstance(structure, Mapping):
        return {"dict": [[_encoded_key(key), encoded(child)] for key, child in structure.items()]}
    if is_namedtuple(structure):
        name = type(structure).__name__
        try:
            collections.namedtuple(name, structure._fields)
        except ValueError as error:
            raise SpecError(
                f"a cache got the namedtuple {name!r}, which cannot be made again: {error}. Rename it or its fields."
            ) from error
        return {"namedtuple": name, "fields": dict(zip(structure._fields, map(encoded, structure)))}
    if is_structure(structure):
        return {"tuple" if isinstance(structure, tuple) else "list": [encoded(child) for child in structure]}
    return structure


def _encoded_key(key: Any) -> str | int:
    """Return a plain key: strings of numpy are strings."""
    if isinstance(key, str):
        return str(key)
    if type(key) is not int:
        raise SpecError(f"a cache got the key {shown(key)} in a dict of components, expected a string.")
    return key


def decoded(structure: Any, leaves: Any) -> Any:
    """Return the nest that was encoded, with `leaves[n]` for component `n`."""
    if isinstance(structure, int):
        return leaves[structure]
    if "dict" in structure:
        return {key: decoded(child, leaves) for key, child in structure["dict"]}
    if "namedtuple" in structure:
        fields = structure["fields"]
        kind: Any = collections.namedtuple(structure["namedtuple"], list(fields))  # type: ignore[misc]
        return kind(*(decoded(child, leaves) for child in fields.values()))
    if "tuple" in structure:
        return tuple(decoded(child, leaves) for child in structure["tuple"])
    return [decoded(child, leaves) for child in structure["list"]]


def version_key(owner: str, version: Any) -> str | None:
    """Check `version` and return it as a string: a command line cannot tell 1 from "1"."""
    if version is None or isinstance(version, str):
        return version
    if arguments.as_int(version) is None:
        arguments.refuse(owner, "version", version, "a string or a whole number")
    return str(arguments.whole(owner, "version", version, -INT64_MAX, INT64_MAX))


def files_key(owner: str, files: Any) -> dict[str, list[int]] | None:
    """Return the size and time of each file, by its path. Raises RecordFileError if one is missing."""
    if files is None:
        return None
    key = {}
    for path in local_files(owner, files):
        try:
            status = os.stat(path)
        except OSError as error:
            cure = cure_of(error, "Leave it out of files.")
            raise RecordFileError(f"{owner} cannot read {path!r}, one of files: {error.strerror}. {cure}") from error
        key[os.path.abspath(path)] = [status.st_size, status.st_mtime_ns]
    return key


def changes(before: dict[str, Any], now: dict[str, Any]) -> list[str]:
    """Say what differs between two keys, item by item. Empty if nothing does.

    >>> changes({"num_records": 3, "version": "a"}, {"num_records": 4, "version": "a"})
    ['num_records: 3 in the cache, 4 now']
    """
    differences: list[str] = []
    for name in dict.fromkeys([*before, *now]):
        old, new = before.get(name), now.get(name)
        if old == new:
            continue
        if name == "files":
            differences += _file_changes(old or {}, new or {})
        else:
            differences.append(f"{name}: {_shown(old)} in the cache, {_shown(new)} now")
    return differences


def _shown(value: Any) -> str:
    if isinstance(value, str):
        # A terminal cannot show control characters and lone surrogates.
        return value if value.isprintable() else repr(value)
    return "none" if value is None else shown(value)


def _file_changes(old: dict[str, Any], new: dict[str, Any]) -> list[str]:
    lines: list[str] = []
    for path in dict.fromkeys([*old, *new]):
        if path not in new:
            lines.append(f"file {path!r}: not listed any more")
        elif path not in old:
            lines.append(f"file {path!r}: new")
        elif old[path][0] != new[path][0]:
            lines.append(f"file {path!r}: {old[path][0]} bytes when the cache was built, {new[path][0]} now")
        elif old[path] != new[path]:
            lines.append(f"file {path!r}: modified after the cache was built")
    return _shortened(lines)


def _shortened(lines: list[str]) -> list[str]:
    more = len(lines) - _MOST_LISTED
    return [*lines[:_MOST_LISTED], f"{more} more files"] if more > 0 else lines
