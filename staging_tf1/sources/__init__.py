"""Sources of batches, with random access or as streams."""

from __future__ import annotations

from staging_tf1.errors import CorruptRecordError, RecordFileError
from staging_tf1.sources.aligned import aligned_empty
from staging_tf1.sources.array import ArraySource
from staging_tf1.sources.arrayrecord import ArrayRecordSource
from staging_tf1.sources.base import Source, StreamSource
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

__all__ = [
    "ArrayRecordSource",
    "ArraySource",
    "CorruptRecordError",
    "GeneratorSource",
    "GrainSource",
    "MapSource",
    "RecordFileError",
    "RecordSource",
    "SequenceSource",
    "Source",
    "StreamSource",
    "TFRecordSource",
    "aligned_empty",
    "as_source",
    "concatenate",
    "mix",
    "write_array_records",
    "write_tfrecords",
    "zip_records",
]
