"""Sources of batches, with random access or as streams."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from staging_tf1.arguments import close_to
from staging_tf1.errors import CorruptRecordError, RecordFileError
from staging_tf1.sources.aligned import aligned_empty
from staging_tf1.sources.array import ArraySource
from staging_tf1.sources.arrayrecord import ArrayRecordSource
from staging_tf1.sources.base import Source, StreamSource
from staging_tf1.sources.cached import CachedSource, cached
from staging_tf1.sources.coerce import as_source
from staging_tf1.sources.concatenate import concatenate
from staging_tf1.sources.files.arrayrecord_write import write_array_records
from staging_tf1.sources.files.tfrecord_write import write_tfrecords
from staging_tf1.sources.generator import GeneratorSource
from staging_tf1.sources.grain import GrainSource
from staging_tf1.sources.map import MapSource
from staging_tf1.sources.mix import mix
from staging_tf1.sources.records import RecordSource
from staging_tf1.sources.sequence import SequenceSource
from staging_tf1.sources.tfrecord import TFRecordSource
from staging_tf1.sources.zipped import zip_records
from staging_tf1.spec.ragged import RaggedValue
from staging_tf1.spec.sparse import SparseValue

__all__ = [
    "ArrayRecordSource",
    "ArraySource",
    "CachedSource",
    "CorruptRecordError",
    "GeneratorSource",
    "GrainSource",
    "MapSource",
    "RaggedValue",
    "RecordFileError",
    "RecordSource",
    "SequenceSource",
    "Source",
    "SparseValue",
    "StreamSource",
    "TFRecordSource",
    "aligned_empty",
    "as_source",
    "cached",
    "concatenate",
    "mix",
    "write_array_records",
    "write_tfrecords",
    "zip_records",
]


def __dir__() -> list[str]:
    # Without the submodules, whose names look like sources: `array`, `map`, `grain`.
    return sorted(__all__)


# Otherwise a type checker would accept any name.
if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        hint = "" if name.startswith("_") else close_to(name, __all__)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}{f'.{hint}' if hint else ''}")
