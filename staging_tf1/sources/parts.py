"""Sources that are made of other sources: what they have in common, and the checks of their parts."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Sequence
from typing import Any

from staging_tf1 import arguments
from staging_tf1.errors import SpecError
from staging_tf1.sources.base import Source, check_parsed
from staging_tf1.sources.batches import Arrangement, Options
from staging_tf1.sources.content import Content
from staging_tf1.sources.files.file_list import ReadFile
from staging_tf1.sources.records import RecordSource
from staging_tf1.spec import component_name, flatten_with_paths
from staging_tf1.spec.arrays import describe
from staging_tf1.spec.composite import is_composite_spec

# The deepest nesting of combinations. Each level takes about ten of the thousand nested calls that Python allows.
_DEEPEST = 64
_SOURCES = "a list of sources with numbered records, such as ArraySource, TFRecordSource or MapSource"
# Characters of a description in a fingerprint.
_LONGEST = 300


class Combination(RecordSource):
    """A source that is made of others, its `_parts`. Its `_recipe` describes them."""

    def _combine(
        self,
        parts: Sequence[RecordSource],
        num_records: int,
        options: Options,
        arrangement: Arrangement | None = None,
    ) -> None:
        """Do what `__init__` does."""
        self._parts = parts
        self._depth = 1 + max(part._depth for part in parts)
        self._set_up(num_records, options, arrangement=arrangement)

    def content_sample(self) -> Content:
        return {
            f"{named} of source {number}": sample
            for number, part in enumerate(self._parts)
            for named, sample in part.content_sample().items()
        }

    def _read_files(self) -> list[ReadFile]:
        return [file for part in self._parts for file in part._read_files()]

    def fingerprint(self) -> dict[str, int | str]:
        """Return what `Source.fingerprint` describes, with all sources."""
        return {**super().fingerprint(), "records": _shortened(self._recipe())}


def _shortened(text: str) -> str:
    """Cut a long description, and end it with a hash, so that it still differs from others."""
    if len(text) <= _LONGEST:
        return text
    return f"{text[:_LONGEST]}... {hashlib.blake2b(text.encode(), digest_size=8).hexdigest()}"


def listed_parts(caller: str, sources: Any) -> list[RecordSource]:
    """Check a list of sources."""
    if isinstance(sources, Source):  # an iterable of batches
        arguments.refuse(caller, "sources", sources, _SOURCES)
    parts = arguments.listed(caller, "sources", sources, _SOURCES)
    if not parts:
        arguments.refuse(caller, "sources", sources, _SOURCES, ValueError)
    for number, source in enumerate(parts):
        check_part(caller, f"source {number}", source)
    return parts


def check_part(caller: str, name: str, source: Any) -> None:
    """Raise if a source cannot be part of another one."""
    if not isinstance(source, RecordSource):
        raise TypeError(
            f"{caller} got {arguments.shown(source)} as {name}, expected a source with numbered records, such as "
            f"ArraySource, TFRecordSource or MapSource. Batches cannot be divided into records again."
        )
    problem = source._no_part()
    if problem:
        raise ValueError(f"{caller} got {source!r} as {name}, {problem}")
    if source._depth >= _DEEPEST:
        raise ValueError(
            f"{caller} got {source!r} as {name}, which combines sources of sources, {source._depth} deep, expected at "
            f"most {_DEEPEST - 1}. Pass all sources to one call."
        )


def check_plain(caller: str, part: RecordSource, kind: str, result: str) -> None:
    """Raise ValueError if the graph parses a part, or if a transform would get other batches than those of the part."""
    check_parsed(caller, part)
    if part._batching.options.transform is not None:
        raise ValueError(
            f"{caller} got {part!r} with a transform, which would not get the {kind} batch. Pass it to the result: "
            f"{result}.with_options(transform=...)."
        )


def agreed_options(caller: str, parts: Sequence[RecordSource], **given: Any) -> Options:
    """Return the options that all sources share. `given` replaces some of them.

    Raises ValueError if they differ: one source's options would be ignored silently.
    """
    agreed = [dataclasses.replace(part._batching.options, **given) for part in parts]
    for option in vars(agreed[0]):
        values = [getattr(options, option) for options in agreed]
        if option == "seed":  # a source without a seed accepts any
            values = [value for value in values if value is not None] or [None]
        differing = [value for value in values if value is not values[0] and value != values[0]]
        if differing:
            raise ValueError(
                f"{caller} got sources with {option}={arguments.shown(values[0])} and "
                f"{option}={arguments.shown(differing[0])}, expected one for all. Give them the same, for example with "
                f"source.with_options({option}=...), and change the result."
            )
    seeds = [options.seed for options in agreed if options.seed is not None]
    return dataclasses.replace(agreed[0], seed=seeds[0] if seeds else None)


def check_same_specs(caller: str, parts: Sequence[RecordSource], *, shapes: bool) -> None:
    """Raise SpecError if the components of the sources differ, in dtype or rank, or (`shapes`) in shape."""
    # Computed once per part: the spec of a combination is made from those of all its parts.
    specs = [flatten_with_paths(part.record_spec(None)) for part in parts]
    for number, leaves in enumerate(specs):
        _check_arrays(caller, number, leaves)
    first = specs[0]
    for number, other in enumerate(specs[1:], start=1):
        if [path for path, _ in first] != [path for path, _ in other]:
            raise SpecError(
                f"{caller}: source {number} has the components {_names(other)}, but source 0 has {_names(first)}."
            )
        for (path, wanted), (_, got) in zip(first, other):
            same_shape = got.shape == wanted.shape if shapes else len(got.shape) == len(wanted.shape)
            if got.dtype != wanted.dtype or not same_shape:
                raise SpecError(
                    f"{caller}: {component_name(path)} of source {number} is {describe(got.dtype, got.shape)}, but "
                    f"{describe(wanted.dtype, wanted.shape)} in source 0. Cast it, or pad the result: "
                    f"{caller[:-1]}...).pad()."
                )


def _check_arrays(caller: str, number: int, leaves: list[tuple[str, Any]]) -> None:
    for path, leaf in leaves:
        if is_composite_spec(leaf):
            raise SpecError(
                f"{caller}: {component_name(path)} of source {number} is {leaf}, expected an array, because rows of "
                f"several sources are put into one batch. Collate the result: {caller[:-1]}...).ragged()."
            )


def _names(leaves: list[tuple[str, Any]]) -> str:
    return ", ".join(repr(path) for path, _ in leaves)
