"""What can be wrong with record files."""

from __future__ import annotations

from staging_tf1.errors import StagingError

__all__ = ["CorruptRecordError", "RecordFileError"]


class RecordFileError(StagingError, OSError):
    """A record file or its index is gone, has changed, or is not what its name says."""


class CorruptRecordError(StagingError, ValueError):
    """A record is truncated, or its checksum does not fit its bytes.

    Attributes:
      path: the record file.
      offset: of the record, in bytes from the file's (uncompressed) beginning.
    """

    def __init__(self, message: str, path: str, offset: int) -> None:
        super().__init__(message)
        self.path = path
        self.offset = offset
