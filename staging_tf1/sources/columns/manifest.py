"""The manifest of a cache: a JSON file, written last, that describes all other files, and the key of its data."""

from __future__ import annotations

import collections
import hashlib
import json
import os
from collections.abc import Mapping
from typing import Any, NamedTuple

from staging_tf1.arguments import shown
from staging_tf1.errors import RecordFileError, SpecError
from staging_tf1.sources.columns.files import ArrayFile, Component, cannot_read, open_regular
from staging_tf1.spec import is_namedtuple, is_structure

MANIFEST = "manifest.json"
FORMAT_VERSION = 2
_FORMAT = "staging_tf1 cache"


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
    components: list[Component]
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
        return _digest([self.structure, [component._asdict() for component in self.components]])

    def text(self) -> str:
        """Return the content of the file."""
        components = [component._asdict() for component in self.components]
        fields = {"format": _FORMAT, "version": FORMAT_VERSION, **self._asdict(), "components": components}
        return json.dumps({**fields, "checksum": _digest(fields)}, indent=1)


def manifest_in(folder: str) -> Manifest | int | None:
    """Return the manifest of a cache; its format version if this release cannot read it; None without a manifest.

    Raises RecordFileError if the manifest is damaged, or the folder is no cache.
    """
    path = os.path.join(folder, MANIFEST)
    try:
        with open_regular(path) as file:
            text = file.read()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise cannot_read(f"{path!r}, the manifest of a cache", error) from error
    try:
        return _parsed(text)
    except (ValueError, RecursionError) as error:
        raise RecordFileError(
            f"{path!r} should be the manifest of a cache, but is not: {shown(str(error))}. If the folder is a cache, "
            f"delete it to have it built again."
        ) from error


def _parsed(text: bytes) -> Manifest | int:
    fields = json.loads(text)
    if not isinstance(fields, dict) or fields.get("format") != _FORMAT or not isinstance(fields.get("version"), int):
        raise ValueError("it has another format")
    if fields["version"] != FORMAT_VERSION:
        return int(fields["version"])
    if fields.pop("checksum", None) != _digest(fields):
        raise ValueError("its checksum differs: it was changed after the cache was built")
    for component in fields["components"]:
        component["files"] = {role: ArrayFile(*file) for role, file in component["files"].items()}
    components = [Component(**component) for component in fields["components"]]
    return Manifest(fields["num_records"], fields["structure"], components, fields["key"], fields["built"])


def _digest(value: Any) -> str:
    return hashlib.blake2b(json.dumps(value).encode(), digest_size=8).hexdigest()


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
