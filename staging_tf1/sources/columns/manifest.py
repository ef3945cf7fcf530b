"""The manifest of a cache: a JSON file, written last, that describes all other files."""

from __future__ import annotations

import collections
import hashlib
import json
import os
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from staging_tf1.arguments import shown
from staging_tf1.errors import RecordFileError, SpecError
from staging_tf1.sources.columns.component import Component
from staging_tf1.sources.columns.npy import ArrayFile
from staging_tf1.sources.columns.snapshot import Snapshot, cannot_read
from staging_tf1.spec import is_namedtuple, is_structure

__all__ = ["FORMAT_VERSION", "MANIFEST", "Manifest", "decoded", "dtype_named", "encoded", "manifest_in"]

MANIFEST = "manifest.json"
FORMAT_VERSION = 1
_FORMAT = "staging_tf1 cache"
# A manifest is small. A larger file is something else.
_MOST_BYTES = 64 << 20
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
        return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()

    def text(self) -> str:
        """Return the content of the file."""
        fields = {"format": _FORMAT, "version": FORMAT_VERSION, **self._asdict()}
        components = [_as_json(component) for component in self.components]
        body = json.dumps({**fields, "components": components}, indent=1).removesuffix("\n}")
        return f'{body},\n "checksum": "{_digest(body.encode())}"\n}}'


def manifest_in(folder: Snapshot) -> Manifest | int | None:
    """Return the manifest of a cache; its format version if this release cannot read it; None without a manifest.

    Raises RecordFileError if the manifest is damaged, or the folder is no cache.
    """
    path = folder.path_of(MANIFEST)
    try:
        with folder.open(MANIFEST) as file:
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
        _check_text(text, fields)
        return _from_json(fields)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise _no_manifest(path, f"it is damaged ({shown(str(error))})") from error


def _check_text(text: bytes, fields: dict[str, Any]) -> None:
    """Raise ValueError if the text was changed after it was written."""
    checksum = _CHECKSUM.search(text)
    if checksum is not None:
        if checksum[1].decode() != _digest(text[: checksum.start()]):
            raise ValueError("its checksum differs: it was changed after the cache was built")
    elif set(fields) != {"format", "version", *Manifest._fields}:
        # Earlier releases wrote no checksum.
        raise ValueError(f"it has the fields {', '.join(map(str, fields))}")


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
    num_records = int(fields["num_records"])
    leaves = list(_leaves(fields["structure"]))
    if leaves != list(range(len(components))) or num_records < 1 or not isinstance(fields["key"], dict):
        raise ValueError("its parts do not fit together")
    decoded(fields["structure"], components)
    for component in components:
        component.check(num_records)
    return Manifest(num_records, fields["structure"], components, fields["key"], str(fields["built"]))


def _component(fields: dict[str, Any]) -> Component:
    files = {}
    for role, (name, dtype, shape, crc32) in fields["files"].items():
        if os.path.basename(name) != name or not name.endswith(".npy"):
            raise ValueError(f"file {name!r}")
        files[str(role)] = ArrayFile(name, str(np.dtype(dtype).str), tuple(map(int, shape)), int(crc32))
    shape = tuple(None if dim is None else int(dim) for dim in fields["shape"])
    component = Component(str(fields["path"]), dtype_named(fields["dtype"]), shape, files)
    roles = {"values"} | ({"starts", "shapes"} if component.varies else set())
    if set(files) != roles | ({"strings"} if component.dtype.hasobject else set()):
        raise ValueError(f"files of component {component.path!r}")
    return component


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


def _leaves(structure: Any) -> list[int]:
    """Return the numbers of components, sorted."""
    if isinstance(structure, int):
        return [structure]
    kind = next(iter(structure), "")
    children = [child for _, child in structure[kind]] if kind == "dict" else structure.get("fields", structure[kind])
    listed = children.values() if isinstance(children, dict) else children
    return sorted(number for child in listed for number in _leaves(child))
